package backend_test

import (
	"encoding/json"
	"maps"
	"os"
	"regexp"
	"slices"
	"strings"
	"testing"

	"sigs.k8s.io/yaml"

	"github.com/vitistack/stack/apis/backend"
	"github.com/vitistack/stack/apis/v1alpha1"
)

func names(kinds []backend.Kind) (all []string) {
	for _, k := range kinds {
		all = append(all, k.Name)
	}
	return all
}

// TestKinds checks that each entry is complete.
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

// TestEnumerations compares the names in CRDs and schemas with the registry.
func TestEnumerations(t *testing.T) {
	t.Parallel()
	t.Run("MachineProvider", func(t *testing.T) {
		t.Parallel()
		var rule string
		read(t, &rule, "../crds/vitistack.io_machineproviders.yaml", "spec", "versions", "0", "schema", "openAPIV3Schema", "properties", "spec", "properties", "type", "x-kubernetes-validations", "0", "rule")
		want := "self in ['" + strings.Join(slices.Sorted(slices.Values(names(backend.In(backend.LayerMachine)))), "', '") + "']"
		if rule != want {
			t.Errorf("the rule of spec.type is %s, by the registry it is %s", rule, want)
		}
	})
	t.Run("Event", func(t *testing.T) {
		t.Parallel()
		var got []string
		read(t, &got, "../../events/schemas/infrastructure.operator.status.json", "properties", "operator", "enum")
		slices.Sort(got)
		if want := slices.Sorted(slices.Values(names(backend.Operators()))); !slices.Equal(got, want) {
			t.Errorf("the event of an operator's status admits %v, the registry has %v", got, want)
		}
	})
}

// TestPage compares the names on the status page with the registry.
func TestPage(t *testing.T) {
	t.Parallel()
	for file, tc := range map[string]struct {
		constant string
		kinds    []backend.Kind
	}{
		"overview.js": {"backends", backend.Operators()},
		"hosts.js":    {"kinds", backend.In(backend.LayerMachine)},
	} {
		text, err := os.ReadFile("../../gateway/internal/page/" + file)
		if err != nil {
			t.Fatal(err)
		}
		line := regexp.MustCompile(`(?m)^const ` + tc.constant + ` = \{ (.*) \};$`).FindSubmatch(text)
		if line == nil {
			t.Fatalf("%s has no constant %s", file, tc.constant)
		}
		got := map[string]string{}
		for _, pair := range regexp.MustCompile(`(\w+): "([^"]*)"`).FindAllSubmatch(line[1], -1) {
			got[string(pair[1])] = string(pair[2])
		}
		want := map[string]string{}
		for _, k := range tc.kinds {
			want[k.Name] = k.Title
		}
		if !maps.Equal(got, want) {
			t.Errorf("%s: %s has %v, the registry has %v", file, tc.constant, got, want)
		}
	}
}

// TestOpenAPI compares the hypervisors and operators in the description of the REST API with the
// registry.
func TestOpenAPI(t *testing.T) {
	t.Parallel()
	text, err := os.ReadFile("../../gateway/internal/openapi/openapi.yaml")
	if err != nil {
		t.Fatal(err)
	}
	for property, want := range map[string][]string{
		"operator": append(names(backend.Operators()), ""),
		"type":     names(backend.In(backend.LayerMachine)),
	} {
		slices.Sort(want)
		found := 0
		for _, line := range regexp.MustCompile(`(?m)^ +`+property+`: \{type: string, enum: \[(.*)\]\}$`).FindAllSubmatch(text, -1) {
			got := strings.Split(strings.ReplaceAll(string(line[1]), "'", ""), ", ")
			slices.Sort(got)
			if slices.Contains(got, "kubernetes") || !slices.Contains(got, string(v1alpha1.ProviderKubeVirt)) {
				continue // another type, such as that of clusters
			}
			if found++; !slices.Equal(got, want) {
				t.Errorf("%s admits %q, the registry has %q", property, got, want)
			}
		}
		if found == 0 {
			t.Errorf("no enumeration of %s", property)
		}
	}
}

// read decodes the value at a path of a file in YAML or JSON. Of a list, the path has the first item.
func read(t *testing.T, value any, file string, place ...string) {
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
	if err := json.Unmarshal(text, value); err != nil {
		t.Fatal(err)
	}
}

func TestReportKey(t *testing.T) {
	t.Parallel()
	for _, tc := range []struct{ kind, instance, want string }{{"netbox", "", "netbox"}, {"kea", "primary", "kea.primary"}, {"proxmox", "pve.east.example", "proxmox.pve.east.example"}} {
		key := backend.ReportKey(tc.kind, tc.instance)
		if kind, instance := backend.ParseReportKey(key); key != tc.want || kind != tc.kind || instance != tc.instance {
			t.Errorf("got %s, and %s %s of it, want %+v", key, kind, instance, tc)
		}
	}
}
