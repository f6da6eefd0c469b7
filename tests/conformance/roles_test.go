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

// unexercised are rights that need a backend, or a turn of events, which the
// end-to-end and chaos tests do not have for certain. The function's own tests use
// them, against a simulator or the real server.
var unexercised = map[string]string{
	"allocate-ip ipallocations.vitistack.io delete":          "an interface that is taken away",
	"allocate-ip leases.coordination.k8s.io get":             "two that try for one address",
	"allocate-ip leases.coordination.k8s.io patch":           "an address that waits before it is reused",
	"allocate-ip leases.coordination.k8s.io update":          "an address that is reused",
	"bootstrap-talos ipallocations.vitistack.io create":      "a cluster with a virtual address",
	"bootstrap-talos ipallocations.vitistack.io delete":      "a cluster with a virtual address",
	"bootstrap-talos machineproviders.vitistack.io get":      "a cluster that names its provider",
	"bootstrap-talos networknamespaces.vitistack.io get":     "a cluster that names its network",
	"bootstrap-talos secrets patch":                          "credentials that are renewed",
	"create-vm leases.coordination.k8s.io create":            "VMIDs of Proxmox VE",
	"create-vm leases.coordination.k8s.io delete":            "VMIDs of Proxmox VE",
	"create-vm leases.coordination.k8s.io get":               "VMIDs of Proxmox VE",
	"create-vm leases.coordination.k8s.io list":              "VMIDs of Proxmox VE",
	"create-vm persistentvolumeclaims patch":                 "a disk that grows",
	"create-vm secrets create":                               "cloud-init that is kept from the VM's specification",
	"create-vm secrets delete":                               "cloud-init that is kept from the VM's specification",
	"create-vm virtualmachineinstances.kubevirt.io delete":   "a change that needs a restart",
	"etcd-backup etcdbackups.vitistack.io get":               "a place for backups",
	"etcd-backup etcdbackups/status.vitistack.io patch":      "a place for backups",
	"etcd-backup events create":                              "a place for backups",
	"etcd-backup kubernetesclusters.vitistack.io get":        "a place for backups",
	"etcd-backup secrets get":                                "a place for backups",
	"kea-reserve leases.coordination.k8s.io create":          "a Kea without the hook for commands",
	"kea-reserve leases.coordination.k8s.io get":             "a Kea without the hook for commands",
	"kea-reserve leases.coordination.k8s.io update":          "a Kea without the hook for commands",
	"provision-network kubernetesclusters.vitistack.io list": "a segment that is given back",
	"resync etcdbackups.vitistack.io patch":                  "an object that somebody asks to be looked at",
	"resync ipallocations.vitistack.io patch":                "an object that somebody asks to be looked at",
	"resync kubernetesclusters.vitistack.io patch":           "an object that somebody asks to be looked at",
	"resync machineproviders.vitistack.io patch":             "an object that somebody asks to be looked at",
	"resync machines.vitistack.io patch":                     "an object that somebody asks to be looked at",
	"resync networkconfigurations.vitistack.io patch":        "an object that somebody asks to be looked at",
	"resync networknamespaces.vitistack.io patch":            "an object that somebody asks to be looked at",
}

// TestRolesAreWhatIsUsed compares what the Roles allow with what the functions have
// asked the API server for in the end-to-end and chaos tests: nothing is missing, and
// nothing is unused. VITI_AUDIT is the folder where these tests have noted it.
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
	// An API server that has just been started forbids what it allows a moment later.
	for _, right := range slices.Sorted(maps.Keys(refused)) {
		if !used[right] {
			t.Errorf("missing: %s was forbidden", right)
		}
	}
	allowed := rights(t)
	for _, right := range slices.Sorted(maps.Keys(allowed)) {
		if unexercised[right] == "" && !used[right] {
			t.Errorf("unused: %s is allowed in knative/ and never asked for", right)
		}
	}
	for _, right := range slices.Sorted(maps.Keys(unexercised)) {
		if !allowed[right] {
			t.Errorf("%s is not allowed any more: take it from the list", right)
		}
	}
}

// rights are what the Roles of the functions allow, in the form of engine.Usage. Those
// that Knative's adapter and the gateway's watches have are theirs by contract: get,
// list and watch.
func rights(t *testing.T) map[string]bool {
	t.Helper()
	all := map[string]bool{}
	for _, doc := range manifests(t) {
		var role rbacv1.ClusterRole
		if err := yaml.Unmarshal([]byte(doc), &role); err != nil {
			t.Fatal(err)
		}
		function := strings.TrimPrefix(role.Name, "vitistack-")
		if role.Kind != "ClusterRole" && role.Kind != "Role" || function == "event-source" || function == "gateway" {
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
