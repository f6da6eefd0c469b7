package conformance

import (
	"go/ast"
	"go/parser"
	"go/token"
	"os"
	"path/filepath"
	"regexp"
	"testing"

	"github.com/vitistack/stack/tests/stand/engine"
)

var indexRow = regexp.MustCompile("(?m)^\\| [^|]+\\? \\| \\[([^]]+)\\]\\(([^)]+)\\) \\| `(\\w+)` \\|$")

// TestArchitectureIndex checks that each file in the index of ARCHITECTURE.md declares the name beside
// it.
func TestArchitectureIndex(t *testing.T) {
	t.Parallel()
	page, err := os.ReadFile(filepath.Join(engine.Root(), "ARCHITECTURE.md"))
	if err != nil {
		t.Fatal(err)
	}
	rows := indexRow.FindAllStringSubmatch(string(page), -1)
	if len(rows) < 40 {
		t.Errorf("the index has %d rows, want 40", len(rows))
	}
	for _, row := range rows {
		path, name := row[2], row[3]
		if row[1] != path {
			t.Errorf("%s links to %s", row[1], path)
		}
		file, err := parser.ParseFile(token.NewFileSet(), filepath.Join(engine.Root(), path), nil, parser.SkipObjectResolution)
		if err != nil {
			t.Errorf("read %s: %v", path, err)
			continue
		}
		if !declares(file, name) {
			t.Errorf("%s does not declare %s", path, name)
		}
	}
}

// declares reports whether a file declares a function, method, type, constant or variable with a name.
func declares(file *ast.File, name string) bool {
	for _, d := range file.Decls {
		switch d := d.(type) {
		case *ast.FuncDecl:
			if d.Name.Name == name {
				return true
			}
		case *ast.GenDecl:
			for _, s := range d.Specs {
				switch s := s.(type) {
				case *ast.TypeSpec:
					if s.Name.Name == name {
						return true
					}
				case *ast.ValueSpec:
					for _, n := range s.Names {
						if n.Name == name {
							return true
						}
					}
				}
			}
		}
	}
	return false
}
