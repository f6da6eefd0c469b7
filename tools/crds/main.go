// Command crds turns enumerations and required fields in the spec of each CRD into validation rules, and labels the CRD. Run it in the root of the
// repository after controller-gen, as make generate does.
//
// The API server evaluates no rule of an object that breaks the schema itself, and adds a message that says so. A value that
// only a rule refuses has one message, which says what to write.
package main

import (
	"fmt"
	"os"
	"path/filepath"

	apiextensionsv1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"sigs.k8s.io/yaml"
)

// pattern matches the files that are rewritten.
const pattern = "apis/crds/*.yaml"

func main() {
	if err := run(); err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
}

func run() error {
	files, err := filepath.Glob(pattern)
	if err != nil {
		return err
	}
	if len(files) == 0 {
		return fmt.Errorf("no file matches %s: run this command in the root of the repository", pattern)
	}
	for _, file := range files {
		text, err := os.ReadFile(file)
		if err != nil {
			return err
		}
		if text, err = rewrite(text); err != nil {
			return fmt.Errorf("rewrite %s: %w", file, err)
		}
		if err := os.WriteFile(file, text, 0o600); err != nil {
			return err
		}
	}
	return nil
}

// rewrite returns a CustomResourceDefinition that has the label of the stack, by which an uninstallation selects it, and whose schemas have the rules. A second call changes nothing.
func rewrite(text []byte) ([]byte, error) {
	var crd apiextensionsv1.CustomResourceDefinition
	if err := yaml.UnmarshalStrict(text, &crd); err != nil {
		return nil, err
	}
	metav1.SetMetaDataLabel(&crd.ObjectMeta, "app.kubernetes.io/part-of", "vitistack")
	for _, v := range crd.Spec.Versions {
		rewriteSpec(v.Schema.OpenAPIV3Schema, crd.Spec.Names.Singular)
	}
	object, err := runtime.DefaultUnstructuredConverter.ToUnstructured(&crd)
	if err != nil {
		return nil, err
	}
	delete(object, "status")
	text, err = yaml.Marshal(object)
	return append([]byte("---\n"), text...), err
}
