package main

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"sigs.k8s.io/yaml"
)

// TestEventsPage checks that each schema has a section with its fields.
func TestEventsPage(t *testing.T) {
	t.Parallel()
	page, err := eventsPage("../../events/schemas")
	if err != nil {
		t.Fatal(err)
	}
	schemas, err := filepath.Glob("../../events/schemas/*.json")
	if err != nil || len(schemas) == 0 {
		t.Fatalf("there are no schemas: %v", err)
	}
	for _, file := range schemas {
		_, section, found := strings.Cut(page, "\n## "+strings.TrimSuffix(filepath.Base(file), ".json")+"\n")
		section, _, _ = strings.Cut(section, "\n## ")
		if !found || !strings.Contains(section, "| `data.") {
			t.Errorf("%s has no section with fields", file)
		}
	}
}

// TestRestPage checks that each request is on the page.
func TestRestPage(t *testing.T) {
	t.Parallel()
	const file = "../../gateway/internal/openapi/openapi.yaml"
	page, err := restPage(file)
	if err != nil {
		t.Fatal(err)
	}
	raw, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	var doc api
	if err := yaml.Unmarshal(raw, &doc); err != nil || len(doc.Paths) == 0 {
		t.Fatalf("the description has no paths: %v", err)
	}
	for path, operations := range doc.Paths {
		for method := range operations {
			if !strings.Contains(page, "| `"+strings.ToUpper(method)+" "+path+"` |") {
				t.Errorf("%s %s is missing", method, path)
			}
		}
	}
}

// TestMetricsPage checks that the page has each metric of the gateway, and what functions say about theirs.
func TestMetricsPage(t *testing.T) {
	t.Parallel()
	page := metricsPage([]family{{"vitistack_backend_up", "gauge", "Whether a server answers | works", []string{"backend", "server"}}},
		map[string]string{"resync": "# resync\n\n## Metrics\n\nThey are of full rounds.\n\n## Tests\n\nNone.\n", "idle": "# idle\n"})
	for _, want := range []string{"| `vitistack_backend_up` | gauge | `backend`, `server` | Whether a server answers \\| works |\n", "\n## resync\n\nThey are of full rounds.\n"} {
		if !strings.Contains(page, want) {
			t.Errorf("%q is missing in\n%s", want, page)
		}
	}
	for _, other := range []string{"idle", "None."} {
		if strings.Contains(page, other) {
			t.Errorf("%q is not about metrics:\n%s", other, page)
		}
	}
}
