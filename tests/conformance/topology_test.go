package conformance

import (
	"encoding/json"
	"go/ast"
	"go/parser"
	"go/token"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"testing"

	"sigs.k8s.io/yaml"

	"github.com/vitistack/stack/tests/stand/engine"
)

// trigger has the fields of a Trigger that select events.
type trigger struct {
	Kind     string
	Metadata struct{ Name string }
	Spec     struct{ Filters []filter }
}

type filter struct {
	Exact, Prefix map[string]string
	Any, All      []filter
	Not           *filter
}

// types calls found for each type that the filter selects, with its dialect. Excluded types do not
// count.
func (f filter) types(found func(dialect, eventType string)) {
	if t, ok := f.Exact["type"]; ok {
		found("exact", t)
	}
	if t, ok := f.Prefix["type"]; ok {
		found("prefix", t)
	}
	for _, nested := range append(slices.Clone(f.Any), f.All...) {
		nested.types(found)
	}
}

// triggers returns the Triggers in the manifests.
func triggers(t *testing.T) []trigger {
	t.Helper()
	var all []trigger
	for _, doc := range manifests(t) {
		var one trigger
		if err := yaml.Unmarshal([]byte(doc), &one); err != nil {
			t.Fatal(err)
		}
		if one.Kind == "Trigger" {
			all = append(all, one)
		}
	}
	return all
}

// manifests returns the documents of knative/.
func manifests(t *testing.T) []string {
	t.Helper()
	paths, err := filepath.Glob(filepath.Join(engine.Root(), "knative", "*.yaml"))
	if err != nil || len(paths) == 0 {
		t.Fatalf("find the manifests: %d files, %v", len(paths), err)
	}
	var all []string
	for _, path := range paths {
		text, err := os.ReadFile(path)
		if err != nil {
			t.Fatal(err)
		}
		all = append(all, strings.Split(string(text), "\n---\n")...)
	}
	return all
}

// declaredTypes returns the constants Type... of the package events.
func declaredTypes(t *testing.T) []string {
	t.Helper()
	file, err := parser.ParseFile(token.NewFileSet(), filepath.Join(engine.Root(), "events", "types.go"), nil, 0)
	if err != nil {
		t.Fatal(err)
	}
	var all []string
	ast.Inspect(file, func(node ast.Node) bool {
		spec, ok := node.(*ast.ValueSpec)
		if ok && strings.HasPrefix(spec.Names[0].Name, "Type") && len(spec.Values) == 1 {
			if literal, ok := spec.Values[0].(*ast.BasicLit); ok {
				value, err := strconv.Unquote(literal.Value)
				if err != nil {
					t.Fatal(err)
				}
				all = append(all, value)
			}
		}
		return true
	})
	return all
}

// TestTriggersAskForTypesThatExist compares the types in the Triggers with the declared event types,
// in both directions: each type has a Trigger, or a schema that names its recipient outside of the
// stack.
func TestTriggersAskForTypesThatExist(t *testing.T) {
	t.Parallel()
	declared := declaredTypes(t)
	if len(declared) < 15 {
		t.Fatalf("only %d types were found in the package events", len(declared))
	}
	taken := map[string]bool{}
	for _, one := range triggers(t) {
		for _, f := range one.Spec.Filters {
			f.types(func(dialect, wanted string) {
				matches := 0
				for _, eventType := range declared {
					if eventType == wanted || dialect == "prefix" && strings.HasPrefix(eventType, wanted) {
						taken[eventType] = true
						matches++
					}
				}
				if matches == 0 {
					t.Errorf("Trigger %s selects %s %s, which is no event type", one.Metadata.Name, dialect, wanted)
				}
			})
		}
	}
	for _, eventType := range declared {
		if !taken[eventType] && purpose(t, eventType) == "" {
			t.Errorf("no Trigger selects type %s, and no schema describes its purpose", eventType)
		}
	}
}

// purpose returns the purpose in the schema of a type.
func purpose(t *testing.T, eventType string) string {
	t.Helper()
	text, err := os.ReadFile(filepath.Join(engine.Root(), "events", "schemas", eventType+".json"))
	if err != nil {
		return ""
	}
	var schema struct{ Title string }
	if err := json.Unmarshal(text, &schema); err != nil {
		t.Fatal(err)
	}
	return schema.Title
}
