// Command generate writes the CustomResourceDefinitions of KubeVirt, CDI and Multus into a folder, as
// their released Go modules define them.
//
// KubeVirt and CDI keep their schemas in Go source, as string literals of packages that are too large
// to import. The program downloads the modules with `go mod download`, and reads the literals with
// go/parser. It removes descriptions, which are most of the size, and keeps validation unchanged.
//
// Run it with `go generate ./tests/sim/kubevirt` after changing a version below.
package main

import (
	"bytes"
	"encoding/json"
	"flag"
	"fmt"
	"log"
	"os"
	"os/exec"
	"path/filepath"

	extv1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"
	"sigs.k8s.io/yaml"
)

const (
	kubevirtModule = "kubevirt.io/kubevirt@v1.9.0"
	cdiModule      = "kubevirt.io/containerized-data-importer@v1.65.0"
	nadModule      = "github.com/k8snetworkplumbingwg/network-attachment-definition-client@v1.7.7"
)

func main() {
	log.SetFlags(0)
	out := flag.String("out", ".", "folder that receives one YAML file per definition")
	flag.Parse()
	if err := run(*out); err != nil {
		log.Fatal(err)
	}
}

func run(out string) error {
	sources := []struct {
		module string
		read   func(dir string) ([]*extv1.CustomResourceDefinition, error)
	}{
		{kubevirtModule, kubevirtDefinitions},
		{cdiModule, cdiDefinitions},
		{nadModule, nadDefinitions},
	}
	for _, s := range sources {
		dir, err := download(s.module)
		if err != nil {
			return fmt.Errorf("download %s: %w", s.module, err)
		}
		crds, err := s.read(dir)
		if err != nil {
			return fmt.Errorf("read the definitions of %s: %w", s.module, err)
		}
		for _, crd := range crds {
			if err := write(out, s.module, crd); err != nil {
				return fmt.Errorf("write %s: %w", crd.Name, err)
			}
		}
	}
	return nil
}

// download returns the folder of a module in the module cache.
func download(module string) (string, error) {
	cmd := exec.Command("go", "mod", "download", "-json", module)
	cmd.Stderr = os.Stderr
	answer, err := cmd.Output()
	if err != nil {
		return "", err
	}
	var m struct{ Dir string }
	if err := json.Unmarshal(answer, &m); err != nil {
		return "", fmt.Errorf("decode the answer of go mod download: %w", err)
	}
	return m.Dir, nil
}

func write(out, module string, crd *extv1.CustomResourceDefinition) error {
	for i := range crd.Spec.Versions {
		if s := crd.Spec.Versions[i].Schema; s != nil {
			dropDescriptions(s.OpenAPIV3Schema)
		}
	}
	crd.Spec.Conversion = &extv1.CustomResourceConversion{Strategy: extv1.NoneConverter}
	body, err := encode(crd)
	if err != nil {
		return err
	}
	var file bytes.Buffer
	fmt.Fprintf(&file, "# Code generated from %s (Apache-2.0) by go generate. DO NOT EDIT.\n", module)
	file.Write(body)
	return os.WriteFile(filepath.Join(out, crd.Name+".yaml"), file.Bytes(), 0o644)
}

// encode omits the status and the creation time, which the server sets.
func encode(crd *extv1.CustomResourceDefinition) ([]byte, error) {
	raw, err := json.Marshal(crd)
	if err != nil {
		return nil, err
	}
	var object map[string]any
	if err := json.Unmarshal(raw, &object); err != nil {
		return nil, err
	}
	delete(object, "status")
	if metadata, ok := object["metadata"].(map[string]any); ok {
		delete(metadata, "creationTimestamp")
		delete(metadata, "annotations")
	}
	return yaml.Marshal(object)
}

// dropDescriptions walks the schema instead of its JSON, so that a property called "description"
// stays.
func dropDescriptions(s *extv1.JSONSchemaProps) {
	if s == nil {
		return
	}
	s.Description = ""
	dropFromMap(s.Properties)
	dropFromMap(s.PatternProperties)
	dropFromMap(s.Definitions)
	dropFromList(s.AllOf)
	dropFromList(s.AnyOf)
	dropFromList(s.OneOf)
	dropDescriptions(s.Not)
	if s.Items != nil {
		dropDescriptions(s.Items.Schema)
		dropFromList(s.Items.JSONSchemas)
	}
	if s.AdditionalProperties != nil {
		dropDescriptions(s.AdditionalProperties.Schema)
	}
	if s.AdditionalItems != nil {
		dropDescriptions(s.AdditionalItems.Schema)
	}
}

func dropFromMap(schemas map[string]extv1.JSONSchemaProps) {
	for name, s := range schemas {
		dropDescriptions(&s)
		schemas[name] = s
	}
}

func dropFromList(schemas []extv1.JSONSchemaProps) {
	for i := range schemas {
		dropDescriptions(&schemas[i])
	}
}
