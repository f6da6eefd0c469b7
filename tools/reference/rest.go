package main

import (
	"fmt"
	"maps"
	"os"
	"slices"
	"strings"

	"sigs.k8s.io/yaml"
)

// api is what the page about the REST API has of an OpenAPI document.
type api struct {
	Info struct{ Description string }
	Tags []struct{ Name, Description string }
	// Paths are operations by path and method.
	Paths map[string]map[string]struct {
		Tags                 []string
		Summary, Description string
	}
}

// restPage returns the page about the requests of an OpenAPI document, in the order of its tags.
func restPage(file string) (string, error) {
	raw, err := os.ReadFile(file)
	if err != nil {
		return "", err
	}
	var doc api
	if err := yaml.Unmarshal(raw, &doc); err != nil {
		return "", fmt.Errorf("read %s: %w", file, err)
	}
	rows := map[string]string{} // by tag
	for _, path := range slices.Sorted(maps.Keys(doc.Paths)) {
		for _, method := range slices.Sorted(maps.Keys(doc.Paths[path])) {
			o := doc.Paths[path][method]
			about := strings.TrimSpace(strings.TrimSuffix(o.Summary, ".") + ". " + o.Description)
			rows[o.Tags[0]] += fmt.Sprintf("| `%s %s` | %s |\n", strings.ToUpper(method), path, cell(about))
		}
	}
	var b strings.Builder
	fmt.Fprintf(&b, `# REST API

The requests of the gateway. Its page `+"`/api/v1/docs`"+` and [openapi.yaml](../../%s) also have the parameters and the answers; [gateway](../../gateway/README.md#rest-api) has examples.

%s
`, file, strings.TrimSpace(doc.Info.Description))
	for _, tag := range doc.Tags {
		fmt.Fprintf(&b, "\n## %s\n\n", tag.Name)
		if tag.Description != "" {
			fmt.Fprintf(&b, "%s\n\n", tag.Description)
		}
		fmt.Fprintf(&b, "| request | |\n|---|---|\n%s", rows[tag.Name])
	}
	return b.String(), nil
}
