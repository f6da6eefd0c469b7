// Package install checks that the manifests and the chart can be installed on a Kubernetes API server
// with the released definitions of Knative and KubeVirt.
package install

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"sigs.k8s.io/yaml"

	"github.com/vitistack/stack/tests/stand/engine"
)

// decode parses a stream of YAML documents, without the empty ones.
func decode(text []byte) ([]*unstructured.Unstructured, error) {
	var all []*unstructured.Unstructured
	for doc := range strings.SplitSeq("\n"+string(text), "\n---") {
		text, err := yaml.YAMLToJSONStrict([]byte(doc))
		if err != nil {
			return nil, fmt.Errorf("read %.60q: %w", doc, err)
		}
		if string(text) == "null" {
			continue
		}
		object := &unstructured.Unstructured{}
		if err := object.UnmarshalJSON(text); err != nil {
			return nil, fmt.Errorf("read %.60q: %w", doc, err)
		}
		all = append(all, object)
	}
	return all, nil
}

// files returns the objects in all files that match a pattern below the root of the repository, sorted
// by file name.
func files(pattern string) ([]*unstructured.Unstructured, error) {
	paths, err := filepath.Glob(filepath.Join(engine.Root(), pattern))
	if err != nil || len(paths) == 0 {
		return nil, errors.Join(err, fmt.Errorf("%s matches %d files", pattern, len(paths)))
	}
	var all []*unstructured.Unstructured
	for _, path := range paths {
		text, err := os.ReadFile(path)
		if err != nil {
			return nil, err
		}
		objects, err := decode(text)
		if err != nil {
			return nil, fmt.Errorf("%s: %w", path, err)
		}
		all = append(all, objects...)
	}
	return all, nil
}

// definitions returns the CustomResourceDefinitions of Knative, from the Go modules of the local
// engine's release, and those of KubeVirt. They have no conversion, because no webhook runs here.
func definitions(ctx context.Context) ([]*unstructured.Unstructured, error) {
	module, err := os.ReadFile(filepath.Join(engine.Root(), "knative", "local", "go.mod"))
	if err != nil {
		return nil, err
	}
	version := regexp.MustCompile(`knative.dev/eventing (v\S+)`).FindSubmatch(module)
	if version == nil {
		return nil, errors.New("the local engine's go.mod names no version of knative.dev/eventing")
	}
	all, err := files("tests/sim/kubevirt/crds/*.yaml")
	if err != nil {
		return nil, err
	}
	for path, folder := range map[string]string{"knative.dev/eventing": "config/core/resources", "knative.dev/serving": "config/core/300-resources"} {
		dir, err := download(ctx, path+"@"+string(version[1]))
		if err != nil {
			return nil, err
		}
		found, err := filepath.Glob(filepath.Join(dir, folder, "*.yaml"))
		if err != nil || len(found) == 0 {
			return nil, errors.Join(err, fmt.Errorf("%s of %s has %d definitions", folder, path, len(found)))
		}
		for _, file := range found {
			text, err := os.ReadFile(file)
			if err != nil {
				return nil, err
			}
			objects, err := decode(text)
			if err != nil {
				return nil, fmt.Errorf("%s: %w", file, err)
			}
			all = append(all, objects...)
		}
	}
	for _, crd := range all {
		if err := unstructured.SetNestedMap(crd.Object, map[string]any{"strategy": "None"}, "spec", "conversion"); err != nil {
			return nil, err
		}
	}
	return all, nil
}

// download returns the folder of a module in Go's module cache.
func download(ctx context.Context, module string) (string, error) {
	out, err := exec.CommandContext(ctx, "go", "mod", "download", "-json", module).Output()
	var answer struct{ Dir, Error string }
	if decodeErr := json.Unmarshal(out, &answer); err != nil || decodeErr != nil {
		return "", fmt.Errorf("download %s: %w", module, errors.Join(err, decodeErr, errors.New(answer.Error)))
	}
	return answer.Dir, nil
}
