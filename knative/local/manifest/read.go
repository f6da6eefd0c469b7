// Package manifest reads the YAML manifests of the stack: the objects for Kubernetes, and the Knative objects that the local engine handles itself.
package manifest

import (
	"bufio"
	"bytes"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	utilyaml "k8s.io/apimachinery/pkg/util/yaml"
	"sigs.k8s.io/yaml"
)

// Document is one object in a file.
type Document struct {
	File   string
	Number int // in the file, from 1
	Object *unstructured.Unstructured
}

// String names the document and its object for an error message.
func (d Document) String() string {
	name := d.Object.GetName()
	if ns := d.Object.GetNamespace(); ns != "" {
		name = ns + "/" + name
	}
	return fmt.Sprintf("%s, document %d (%s %s)", d.File, d.Number, d.Object.GetKind(), name)
}

// ReadDir reads all *.yaml and *.yml files of a directory, sorted by name and without its subdirectories. It skips kustomization.yaml.
func ReadDir(dir string) ([]Document, error) {
	entries, err := os.ReadDir(dir)
	if err != nil {
		return nil, fmt.Errorf("read the manifests: %w", err)
	}
	var documents []Document
	for _, entry := range entries {
		extension := filepath.Ext(entry.Name())
		if entry.IsDir() || extension != ".yaml" && extension != ".yml" || entry.Name() == "kustomization.yaml" {
			continue
		}
		more, err := ReadFile(filepath.Join(dir, entry.Name()))
		if err != nil {
			return nil, err
		}
		documents = append(documents, more...)
	}
	return documents, nil
}

// ReadFile reads one file with one or more documents. It skips empty documents. A document without apiVersion, kind and name is an error, as is a
// duplicate key.
func ReadFile(path string) ([]Document, error) {
	text, err := os.ReadFile(path)
	if err != nil {
		return nil, fmt.Errorf("read a manifest: %w", err)
	}
	return parse(path, text)
}

// ReadFS reads the *.yaml files at the top of a file system.
func ReadFS(files fs.FS) ([]Document, error) {
	names, err := fs.Glob(files, "*.yaml")
	if err != nil {
		return nil, fmt.Errorf("list manifests: %w", err)
	}
	slices.Sort(names)
	var documents []Document
	for _, name := range names {
		text, err := fs.ReadFile(files, name)
		if err != nil {
			return nil, fmt.Errorf("read a manifest: %w", err)
		}
		more, err := parse(name, text)
		if err != nil {
			return nil, err
		}
		documents = append(documents, more...)
	}
	return documents, nil
}

func parse(path string, text []byte) ([]Document, error) {
	var documents []Document
	reader := utilyaml.NewYAMLReader(bufio.NewReader(bytes.NewReader(text)))
	for number := 1; ; number++ {
		part, err := reader.Read()
		if errors.Is(err, io.EOF) {
			return documents, nil
		}
		if err != nil {
			return nil, fmt.Errorf("read %s, document %d: %w", path, number, err)
		}
		var content map[string]any
		if err := yaml.UnmarshalStrict(part, &content); err != nil {
			return nil, fmt.Errorf("parse %s, document %d: %w", path, number, err)
		}
		if len(content) == 0 {
			continue
		}
		object := &unstructured.Unstructured{Object: content}
		var missing []string
		for _, field := range [][]string{{"apiVersion"}, {"kind"}, {"metadata", "name"}} {
			if value, _, err := unstructured.NestedString(content, field...); err != nil || value == "" {
				missing = append(missing, strings.Join(field, "."))
			}
		}
		if len(missing) > 0 {
			return nil, fmt.Errorf("parse %s, document %d: %s must be set", path, number, strings.Join(missing, ", "))
		}
		documents = append(documents, Document{File: path, Number: number, Object: object})
	}
}
