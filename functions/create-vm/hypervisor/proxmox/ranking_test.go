package proxmox

import (
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"k8s.io/apimachinery/pkg/api/resource"

	"github.com/vitistack/stack/functions/create-vm/hypervisor"
)

func TestRankHosts(t *testing.T) {
	t.Parallel()
	const gib = 1 << 30
	node := func(name string, used int64) inventoryItem {
		return inventoryItem{Type: "node", Node: name, Status: "online", MaxCPU: 8, MaxMem: 16 * gib, Mem: used * gib}
	}
	disks := func(node string, used int64) inventoryItem {
		return inventoryItem{Type: "storage", Node: node, Storage: "lvm", Status: "available", Content: "images,rootdir", MaxDisk: 100 * gib, Disk: used * gib}
	}
	vm := func(node, status string, tags ...string) inventoryItem {
		return inventoryItem{Type: "qemu", Node: node, Status: status, VMID: 1, MaxMem: 12 * gib, TagList: strings.Join(append(tags, tagManaged), ";")}
	}
	base := inventory{node("a", 4), node("b", 2), node("c", 6), disks("a", 0), disks("b", 0), disks("c", 0)}
	need := demand{memory: 4 * gib, cpus: 2, disks: []hypervisor.Disk{{Name: "root", Size: resource.MustParse("20Gi")}}}
	group := []string{"cluster-x", "role-worker"}
	cases := map[string]struct {
		reason string
		more   inventory
		change func(*demand)
		want   []string
		why    map[string]string
	}{
		"memory":  {reason: "the host with the most free memory is first", want: []string{"b", "a", "c"}},
		"named":   {reason: "only the named host counts", change: func(d *demand) { d.node = "c" }, want: []string{"c"}},
		"reserve": {reason: "a machine of this stack that is off needs its memory later", more: inventory{vm("b", "stopped")}, want: []string{"a", "c"}, why: map[string]string{"b": "it has 2Gi of memory left"}},
		"idle":    {reason: "a running guest may use all of its memory later", more: inventory{vm("b", "running"), {Type: "qemu", Node: "b", Status: "running", MaxMem: 1 * gib}}, want: []string{"a", "c"}, why: map[string]string{"b": "it has 3Gi of memory left"}},
		"others": {reason: "running guests of others count, templates and what is off do not", more: inventory{
			{Type: "lxc", Node: "b", Status: "running", MaxMem: 14 * gib}, {Type: "qemu", Node: "c", Status: "stopped", MaxMem: 16 * gib}, {Type: "qemu", Node: "a", Template: 1, MaxMem: 16 * gib},
		}, want: []string{"a", "c"}, why: map[string]string{"b": "it has 2Gi of memory left"}},
		"spread": {reason: "hosts with fewer members of the group are first", more: inventory{vm("b", "running", group...), vm("a", "running", group...)},
			change: func(d *demand) { d.group = group }, want: []string{"c", "a", "b"}},
		"turns": {reason: "machines of a group that are created concurrently take turns", change: func(d *demand) { d.group, d.ordinal = group, 1 }, want: []string{"b", "c", "a"}},
		"full": {reason: "a full storage is left out", more: inventory{}, change: func(d *demand) { d.disks = []hypervisor.Disk{{Name: "root", Size: resource.MustParse("200Gi")}} },
			why: map[string]string{"a": "its storage lvm is full", "b": "its storage lvm is full", "c": "its storage lvm is full"}},
		"cpus": {reason: "a host needs as many processors as the machine", change: func(d *demand) { d.cpus = 16 }, why: map[string]string{"a": "it has 8 CPUs", "b": "it has 8 CPUs", "c": "it has 8 CPUs"}},
		"off":  {reason: "a host that does not answer is left out", more: inventory{{Type: "node", Node: "d", Status: "offline"}}, want: []string{"b", "a", "c"}, why: map[string]string{"d": "it does not answer"}},
	}
	for name, tc := range cases {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			d := need
			if tc.change != nil {
				tc.change(&d)
			}
			fit, why := append(slices.Clone(base), tc.more...).rankHosts(d)
			var got []string
			for _, p := range fit {
				got = append(got, p.node)
			}
			if diff := cmp.Diff(tc.want, got); diff != "" {
				t.Errorf("%s (-want +got):\n%s", tc.reason, diff)
			}
			for node, what := range tc.why {
				if why[node] != what {
					t.Errorf("%s: %s: got %q, want %q", tc.reason, node, why[node], what)
				}
			}
		})
	}
}
