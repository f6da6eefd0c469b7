package conformance

import (
	"go/ast"
	"go/parser"
	"go/token"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/vitistack/stack/tests/stand/engine"
)

// program is the source of a function and its packages. Names are not resolved: one name must mean one
// thing in all of it.
type program struct {
	files []*ast.File
	// texts has all literals, and constants the named ones.
	texts     map[string]bool
	constants map[string]string
	// places has the position of the reason in each struct and in the parameters of each function.
	places map[string]int
}

// sources parses folders of the repository without tests, including the packages below a function.
func sources(t *testing.T, folders ...string) program {
	t.Helper()
	p := program{texts: map[string]bool{}, constants: map[string]string{}, places: map[string]int{}}
	for _, folder := range folders {
		patterns := []string{"*.go"}
		if folder == "gateway" || strings.HasPrefix(folder, "functions/") {
			patterns = append(patterns, "*/*.go", "*/*/*.go")
		}
		var paths []string
		for _, pattern := range patterns {
			found, err := filepath.Glob(filepath.Join(engine.Root(), folder, pattern))
			if err != nil {
				t.Fatal(err)
			}
			paths = append(paths, found...)
		}
		if len(paths) == 0 {
			t.Fatalf("%s has no source", folder)
		}
		for _, path := range paths {
			if strings.HasSuffix(path, "_test.go") {
				continue
			}
			file, err := parser.ParseFile(token.NewFileSet(), path, nil, parser.SkipObjectResolution)
			if err != nil {
				t.Fatal(err)
			}
			p.files = append(p.files, file)
			ast.Inspect(file, p.declares)
		}
	}
	return p
}

// declares records the declarations of a node.
func (p program) declares(node ast.Node) bool {
	switch node := node.(type) {
	case *ast.BasicLit:
		p.texts[strings.Trim(node.Value, "\"`")] = true
	case *ast.ValueSpec:
		for i, value := range node.Values {
			if text, ok := value.(*ast.BasicLit); ok {
				p.constants[node.Names[i].Name] = strings.Trim(text.Value, `"`)
			}
		}
	case *ast.TypeSpec:
		if s, ok := node.Type.(*ast.StructType); ok {
			p.places[node.Name.Name] = place(s.Fields)
		}
	case *ast.FuncDecl:
		p.places[node.Name.Name] = place(node.Type.Params)
	case *ast.Field:
		if f, ok := node.Type.(*ast.FuncType); ok && len(node.Names) == 1 {
			p.places[node.Names[0].Name] = place(f.Params)
		}
	}
	return true
}

// place returns the index of the reason in a list, or -1.
func place(list *ast.FieldList) int {
	var names []*ast.Ident
	for _, field := range list.List {
		names = append(names, field.Names...)
	}
	return slices.IndexFunc(names, func(name *ast.Ident) bool { return isReason(name) })
}

func isReason(e ast.Expr) bool { return strings.EqualFold(nameOf(e), "reason") }

// nameOf returns the last name in an expression such as kube.RecordEvent.
func nameOf(e ast.Expr) string {
	if s, ok := e.(*ast.SelectorExpr); ok {
		e = s.Sel
	}
	if name, ok := e.(*ast.Ident); ok {
		return name.Name
	}
	return ""
}

// reasons returns the words that occur where a reason is expected: at its place in a struct or a call,
// under its name, assigned to it, or returned as the first of two values.
func (p program) reasons() map[string]bool {
	found := map[string]bool{}
	for _, file := range p.files {
		ast.Inspect(file, func(node ast.Node) bool {
			var at []ast.Expr
			switch node := node.(type) {
			case *ast.CompositeLit:
				at = nth(node.Elts, p.places, nameOf(node.Type))
			case *ast.CallExpr:
				at = nth(node.Args, p.places, nameOf(node.Fun))
			case *ast.KeyValueExpr:
				if isReason(node.Key) {
					at = []ast.Expr{node.Value}
				}
			case *ast.AssignStmt:
				if i := slices.IndexFunc(node.Lhs, isReason); i >= 0 && i < len(node.Rhs) {
					at = node.Rhs[i : i+1]
				}
			case *ast.FuncDecl:
				if node.Type.Results != nil && place(node.Type.Results) == 0 {
					ast.Inspect(node, func(inner ast.Node) bool {
						if r, ok := inner.(*ast.ReturnStmt); ok {
							p.words(r.Results[:1], found)
						}
						return true
					})
				}
			}
			p.words(at, found)
			return true
		})
	}
	return found
}

func nth(all []ast.Expr, places map[string]int, name string) []ast.Expr {
	if i, ok := places[name]; ok && i >= 0 && i < len(all) {
		return all[i : i+1]
	}
	return nil
}

var word = regexp.MustCompile(`^[A-Z][A-Za-z0-9]+$`)

// words returns the words in expressions, and the values of constants.
func (p program) words(in []ast.Expr, found map[string]bool) {
	for _, e := range in {
		ast.Inspect(e, func(node ast.Node) bool {
			text := ""
			switch node := node.(type) {
			case *ast.KeyValueExpr:
				return isReason(node.Key)
			case *ast.BasicLit:
				text = strings.Trim(node.Value, `"`)
			case *ast.Ident:
				text = p.constants[node.Name]
			}
			if word.MatchString(text) {
				found[text] = true
			}
			return true
		})
	}
}
