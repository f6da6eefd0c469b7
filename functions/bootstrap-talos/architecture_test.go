package main

import (
	"go/parser"
	"go/token"
	"path/filepath"
	"strconv"
	"strings"
	"testing"
)

// TestLayers checks that no package of the function imports another one: they share apis/cluster/plan.
func TestLayers(t *testing.T) {
	t.Parallel()
	const own = "github.com/vitistack/stack/functions/bootstrap-talos/"
	files, err := filepath.Glob("*/*.go")
	if err != nil || len(files) == 0 {
		t.Fatalf("there are no packages: %v", err)
	}
	for _, path := range files {
		file, err := parser.ParseFile(token.NewFileSet(), path, nil, parser.ImportsOnly)
		if err != nil {
			t.Fatal(err)
		}
		for _, spec := range file.Imports {
			imported, _ := strconv.Unquote(spec.Path.Value)
			layer, ours := strings.CutPrefix(imported, own)
			if ours && !strings.HasSuffix(path, "_test.go") {
				t.Errorf("%s imports %s", path, layer)
			}
		}
	}
}
