package backend_test

import (
	"encoding/json"
	"os"
	"regexp"
	"slices"
	"testing"

	"sigs.k8s.io/yaml"

	"github.com/vitistack/stack/apis/backend"
)

func names(kinds []backend.Kind) (all []string) {
	for _, k := range kinds {
		all = append(all, k.Name)
	}
	return all
}

// TestKinds holds each entry against what the others rely on.
func TestKinds(t *testing.T) {
	t.Parallel()
	name := regexp.MustCompile(`^[a-z]+$`)
	seen := map[string]bool{}
	for _, k := range backend.All() {
		if !name.MatchString(k.Name) || k.Title == "" || k.Owner == "" || k.Function == "" || k.Layer == "" {
			t.Errorf("incomplete: %+v", k)
		}
		if seen[k.Name] {
			t.Errorf("%s has two entries", k.Name)
		}
		seen[k.Name] = true
		if found, ok := backend.Find(k.Name); !ok || found.Title != k.Title {
			t.Errorf("%s: found %+v, %t", k.Name, found, ok)
		}
		if k.Operator != nil && (len(k.Operator.Capabilities) == 0 || k.Operator.Namespace == "" || k.Operator.SyncInterval <= 0) {
			t.Errorf("%s: incomplete operator: %+v", k.Name, k.Operator)
		}
		if k.Layer == backend.LayerMachine && (k.Operator == nil || k.MetricsPrefix == "") {
			t.Errorf("hypervisor %s is no operator or has no metrics", k.Name)
		}
	}
	if _, ok := backend.Find("none"); ok {
		t.Error("found a kind that does not exist")
	}
}

// TestEnumerations holds the places that have to repeat names, because they are files, against
// the registry.
func TestEnumerations(t *testing.T) {
	t.Parallel()
	t.Run("MachineProvider", func(t *testing.T) {
		t.Parallel()
		got := enumeration(t, "../crds/vitistack.io_machineproviders.yaml", "spec", "versions", "0", "schema", "openAPIV3Schema", "properties", "spec", "properties", "type", "enum")
		if want := slices.Sorted(slices.Values(names(backend.In(backend.LayerMachine)))); !slices.Equal(got, want) {
			t.Errorf("spec.type admits %v, the registry has %v", got, want)
		}
	})
	t.Run("Event", func(t *testing.T) {
		t.Parallel()
		got := enumeration(t, "../../events/schemas/infrastructure.operator.status.json", "properties", "operator", "enum")
		if want := slices.Sorted(slices.Values(names(backend.Operators()))); !slices.Equal(got, want) {
			t.Errorf("the event of an operator's status admits %v, the registry has %v", got, want)
		}
	})
}

// enumeration reads the sorted strings at a place in a file of YAML or JSON.
func enumeration(t *testing.T, file string, place ...string) (values []string) {
	t.Helper()
	raw, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	text, err := yaml.YAMLToJSON(raw)
	if err != nil {
		t.Fatal(err)
	}
	for _, key := range place {
		var object map[string]json.RawMessage
		var list []json.RawMessage
		if json.Unmarshal(text, &object) == nil {
			text = object[key]
		} else if err := json.Unmarshal(text, &list); err == nil && len(list) > 0 {
			text = list[0]
		} else {
			t.Fatalf("%s has no %s", file, key)
		}
	}
	if err := json.Unmarshal(text, &values); err != nil {
		t.Fatal(err)
	}
	slices.Sort(values)
	return values
}
