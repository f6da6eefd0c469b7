package main

import (
	"go/ast"
	"go/parser"
	"go/token"
	"path/filepath"
	"slices"
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

// TestTypes checks that no type of the function has itself in a field, also not through other types. function has
// the types of all phases, so none of these reaches it.
func TestTypes(t *testing.T) {
	t.Parallel()
	files, err := filepath.Glob("*.go")
	if err != nil {
		t.Fatal(err)
	}
	fields := map[string][]string{}
	for _, path := range files {
		file, err := parser.ParseFile(token.NewFileSet(), path, nil, 0)
		if err != nil {
			t.Fatal(err)
		}
		if !strings.HasSuffix(path, "_test.go") {
			addFields(fields, file)
		}
	}
	if !slices.Contains(fields["function"], "machineStore") {
		t.Fatalf("the fields of function are not found, only %v", fields["function"])
	}
	for name := range fields {
		if path := findCircle(fields, name); path != nil {
			t.Errorf("%s", strings.Join(path, " has "))
		}
	}
}

// addFields adds the names of the types in the fields of each struct of a file.
func addFields(fields map[string][]string, file *ast.File) {
	ast.Inspect(file, func(n ast.Node) bool {
		spec, isType := n.(*ast.TypeSpec)
		if !isType {
			return true
		}
		body, isStruct := spec.Type.(*ast.StructType)
		if !isStruct {
			return false
		}
		for _, field := range body.Fields.List {
			ast.Inspect(field.Type, func(n ast.Node) bool {
				if name, ok := n.(*ast.Ident); ok {
					fields[spec.Name.Name] = append(fields[spec.Name.Name], name.Name)
				}
				_, isOfPackage := n.(*ast.SelectorExpr)
				return !isOfPackage
			})
		}
		return false
	})
}

// findCircle returns the types on the way from a type to itself, or nil if there is none.
func findCircle(fields map[string][]string, path ...string) []string {
	for _, next := range fields[path[len(path)-1]] {
		way := append(slices.Clone(path), next)
		if next == path[0] {
			return way
		}
		if slices.Contains(path, next) {
			continue
		}
		if found := findCircle(fields, way...); found != nil {
			return found
		}
	}
	return nil
}
