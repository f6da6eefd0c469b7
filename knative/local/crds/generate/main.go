// Command generate writes Knative's CRDs into the package crds, from the module knative.dev/eventing in go.mod and the module knative.dev/serving of the
// same release. Run it with go generate in that package.
package main

import (
	"bytes"
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"log"
	"os"
	"os/exec"
	"path/filepath"

	"sigs.k8s.io/yaml"
)

const (
	eventing = "knative.dev/eventing"
	serving  = "knative.dev/serving"
)

// sources are the source files, by module and path.
var sources = []struct{ module, path string }{
	{eventing, "config/core/resources/apiserversource.yaml"},
	{eventing, "config/core/resources/broker.yaml"},
	{eventing, "config/core/resources/pingsource.yaml"},
	{eventing, "config/core/resources/sinkbindings.yaml"},
	{eventing, "config/core/resources/trigger.yaml"},
	{serving, "config/core/300-resources/service.yaml"},
}

type module struct{ Version, Dir, Error string }

func main() {
	if err := run(context.Background()); err != nil {
		log.Fatal(err)
	}
}

func run(ctx context.Context) error {
	modules := map[string]module{}
	var err error
	if modules[eventing], err = query(ctx, "list", "-m", "-json", eventing); err != nil {
		return err
	}
	if modules[serving], err = query(ctx, "mod", "download", "-json", serving+"@"+modules[eventing].Version); err != nil {
		return err
	}
	for _, source := range sources {
		m := modules[source.module]
		text, err := os.ReadFile(filepath.Join(m.Dir, source.path))
		if err != nil {
			return fmt.Errorf("read a CRD of %s: %w", source.module, err)
		}
		name, crd, err := slim(text)
		if err != nil {
			return fmt.Errorf("convert %s of %s: %w", source.path, source.module, err)
		}
		header := fmt.Sprintf("# Generated from %s %s by go generate; do not edit.\n# Copyright The Knative Authors. Licensed under the Apache License, Version 2.0.\n", source.module, m.Version)
		if err := os.WriteFile(name+".yaml", append([]byte(header), crd...), 0o644); err != nil {
			return fmt.Errorf("write CRD %s: %w", name, err)
		}
	}
	return nil
}

func query(ctx context.Context, args ...string) (module, error) {
	var out bytes.Buffer
	command := exec.CommandContext(ctx, "go", args...)
	command.Stdout, command.Stderr = &out, os.Stderr
	err := command.Run()
	var m module
	if decodeErr := json.Unmarshal(out.Bytes(), &m); decodeErr != nil || err != nil || m.Dir == "" {
		return module{}, fmt.Errorf("find the module by go %v: %w %s", args, cmp.Or(err, decodeErr, errors.New("it has no folder")), m.Error)
	}
	return m, nil
}

// slim removes descriptions, the conversion webhook and metadata that is not installed, and returns the CRD's name.
func slim(text []byte) (string, []byte, error) {
	var crd map[string]any
	if err := yaml.Unmarshal(text, &crd); err != nil {
		return "", nil, fmt.Errorf("parse: %w", err)
	}
	spec, metadata := crd["spec"].(map[string]any), crd["metadata"].(map[string]any)
	spec["conversion"] = map[string]any{"strategy": "None"}
	for _, version := range spec["versions"].([]any) {
		dropDescriptions(version.(map[string]any)["schema"])
	}
	delete(crd, "status")
	out, err := yaml.Marshal(crd)
	if err != nil {
		return "", nil, fmt.Errorf("format: %w", err)
	}
	return metadata["name"].(string), out, nil
}

// dropDescriptions removes descriptions from a schema, but not properties of that name.
func dropDescriptions(node any) {
	switch node := node.(type) {
	case map[string]any:
		if _, ok := node["description"].(string); ok {
			delete(node, "description")
		}
		for _, child := range node {
			dropDescriptions(child)
		}
	case []any:
		for _, child := range node {
			dropDescriptions(child)
		}
	}
}
