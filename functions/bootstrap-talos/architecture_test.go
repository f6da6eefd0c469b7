package main

import (
	"go/parser"
	"go/token"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"testing"
)

// TestLayers checks which packages of the function import which: plan imports none of the others
// and nothing that acts, and talos, workload and manifests import only plan.
func TestLayers(t *testing.T) {
	t.Parallel()
	const own = "github.com/vitistack/stack/functions/bootstrap-talos/"
	acting := []string{"context", "log", "log/slog", "net", "net/http", "os", "sync", "github.com/vitistack/stack/events", "github.com/vitistack/stack/functions/internal/kube"}
	for folder, allowed := range map[string][]string{"plan": nil, "talos": {"plan"}, "workload": {"plan"}, "manifests": {"plan"}} {
		files, err := filepath.Glob(filepath.Join(folder, "*.go"))
		if err != nil || len(files) == 0 {
			t.Fatalf("%s has no source: %v", folder, err)
		}
		for _, path := range files {
			if strings.HasSuffix(path, "_test.go") {
				continue
			}
			file, err := parser.ParseFile(token.NewFileSet(), path, nil, parser.ImportsOnly)
			if err != nil {
				t.Fatal(err)
			}
			for _, spec := range file.Imports {
				imported, _ := strconv.Unquote(spec.Path.Value)
				if layer, ours := strings.CutPrefix(imported, own); ours && !slices.Contains(allowed, layer) {
					t.Errorf("%s imports %s", path, layer)
				}
				if folder == "plan" && (slices.Contains(acting, imported) || strings.HasPrefix(imported, "k8s.io/client-go")) {
					t.Errorf("%s imports %s: a decision has no context, client or log", path, imported)
				}
			}
		}
	}
}
