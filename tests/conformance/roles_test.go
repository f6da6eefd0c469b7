package conformance

import (
	"maps"
	"os"
	"slices"
	"strings"
	"testing"

	rbacv1 "k8s.io/api/rbac/v1"
	"sigs.k8s.io/yaml"

	"github.com/vitistack/stack/tests/stand/engine"
)

// unexercised are rights that the end-to-end and chaos tests do not reliably use, because they require
// a conflict, a repetition, or another server. The function's own tests use them.
var unexercised = map[string]string{
	"allocate-ip events patch":                        "an object that has the same reason and message for the second time",
	"bootstrap-talos events patch":                    "an object that has the same reason and message for the second time",
	"broker-address brokers.eventing.knative.dev get": "no SinkBinding has set the Broker's address in a process",
	"create-vm events patch":                          "an object that has the same reason and message for the second time",
	"create-vm leases.coordination.k8s.io get":        "two deliveries that claim one VMID",
	"create-vm leases.coordination.k8s.io patch":      "a machine whose host has given its memory to another machine before its creation",
	"etcd-backup events patch":                        "an object that has the same reason and message for the second time",
	"gateway namespaces get":                          "a preview where labels decide which NetworkPool or MachineProvider a namespace may use",
	"gateway networkpools.vitistack.io list":          "a preview of a network",
	"kea-reserve events patch":                        "an object that has the same reason and message for the second time",
	"kea-reserve leases.coordination.k8s.io create":   "a Kea without the hook for reservations, whose whole configuration is written",
	"kea-reserve leases.coordination.k8s.io get":      "a Kea without the hook for reservations, whose whole configuration is written",
	"kea-reserve leases.coordination.k8s.io update":   "a Kea without the hook for reservations, whose whole configuration is written",
	"provision-network events patch":                  "an object that has the same reason and message for the second time",
	"resync clustertemplates.vitistack.io patch":      "a requested reconcile of a ClusterTemplate",
	"resync configmaps patch":                         "a Lease whose holder is gone, in two full rounds",
	"resync machines.vitistack.io get":                "a full round while a Machine on Proxmox VE holds a VMID",
	"resync networknamespaces.vitistack.io patch":     "a requested reconcile whose event provision-network does not get",
}

// TestRolesAreWhatIsUsed compares the rights in the Roles with the requests of the functions in the
// end-to-end and chaos tests: none is missing, and none is unused. VITI_AUDIT is the folder with the
// recorded requests.
func TestRolesAreWhatIsUsed(t *testing.T) {
	t.Parallel()
	dir := os.Getenv("VITI_AUDIT")
	if dir == "" {
		t.Skip("make roles sets VITI_AUDIT, and runs the tests that fill it before this one")
	}
	usage, err := engine.ReadUsage(dir)
	if err != nil {
		t.Fatal(err)
	}
	used, refused := map[string]bool{}, map[string]bool{}
	for _, u := range usage {
		if u.Forbidden {
			refused[u.String()] = true
		} else {
			used[u.String()] = true
		}
	}
	// A newly started API server may reject permitted requests for a moment.
	for _, right := range slices.Sorted(maps.Keys(refused)) {
		if !used[right] {
			t.Errorf("missing: %s was forbidden", right)
		}
	}
	allowed := rights(t)
	for _, right := range slices.Sorted(maps.Keys(allowed)) {
		// Knative's controller checks that the source may get and list before it is Ready. The
		// adapter's watches begin with the existing objects.
		forKnative := strings.HasPrefix(right, "event-source ") && !strings.HasSuffix(right, " watch")
		if unexercised[right] == "" && !used[right] && !forKnative {
			t.Errorf("unused: %s is allowed in knative/ and never used", right)
		}
	}
	for _, right := range slices.Sorted(maps.Keys(unexercised)) {
		if !allowed[right] {
			t.Errorf("%s is not allowed any more: remove it from the list", right)
		}
	}
}

// rights returns the rights in the Roles of the functions, the gateway and the event source, in the
// form of engine.Usage.
func rights(t *testing.T) map[string]bool {
	t.Helper()
	all := map[string]bool{}
	for _, doc := range manifests(t) {
		var role rbacv1.ClusterRole
		if err := yaml.Unmarshal([]byte(doc), &role); err != nil {
			t.Fatal(err)
		}
		function := strings.TrimPrefix(role.Name, "vitistack-")
		if (role.Kind != "ClusterRole" && role.Kind != "Role") || slices.Contains(userRoles, role.Name) {
			continue
		}
		for _, rule := range role.Rules {
			for _, group := range rule.APIGroups {
				for _, resource := range rule.Resources {
					for _, verb := range rule.Verbs {
						resource, subresource, _ := strings.Cut(resource, "/")
						all[engine.Usage{Function: function, Group: group, Resource: resource, Subresource: subresource, Verb: verb}.String()] = true
					}
				}
			}
		}
	}
	if len(all) < 30 {
		t.Fatalf("only %d rights were found in the manifests", len(all))
	}
	return all
}
