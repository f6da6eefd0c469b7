package proxmox

import (
	"cmp"
	"context"
	"fmt"
	"maps"
	"slices"
	"strings"

	"github.com/vitistack/stack/apis/v1alpha1"
	"github.com/vitistack/stack/functions/create-vm/hypervisor"
	"github.com/vitistack/stack/functions/internal/reconcile"
)

// hosts are the nodes of Proxmox VE.
type hosts struct {
	api
	settings
}

// choose chooses the host of a machine: the one that it has if that can still take it, or else
// the first of the ranked hosts that has its bridges.
func (h hosts) choose(ctx context.Context, m *v1alpha1.Machine, want hypervisor.Desired, all inventory, source inventoryItem, claims memoryClaims) (placement, error) {
	d := h.demandOf(m, want, source)
	d.claimed = claims.unlisted(all, m)
	if err := all.checkNamed(d); err != nil {
		return placement{}, err
	}
	fit, why := all.rankHosts(d)
	if had, _ := recordedPlacement(m); had != "" {
		slices.SortStableFunc(fit, func(a, b placement) int {
			return cmp.Compare(map[bool]int{true: 0, false: 1}[a.node == had], map[bool]int{true: 0, false: 1}[b.node == had])
		})
	}
	bridge, installer := "", ""
	for _, p := range fit {
		if objection := h.cloneObjection(p, source, all); objection != "" {
			why[p.node] = objection
			continue
		}
		lacks, err := h.missingBridge(ctx, p.node, want)
		if err != nil {
			return placement{}, err
		}
		if lacks != "" {
			bridge = lacks
			why[p.node] = "it has no bridge " + lacks
			continue
		}
		has, err := h.hasInstaller(ctx, p.node, d.installer)
		if err != nil || has {
			return p, err
		}
		installer = d.installer
		why[p.node] = "it does not have " + installer
	}
	if len(fit) < len(why) {
		bridge = "" // some hosts are refused for another reason
	}
	return placement{}, d.refuse(why, bridge, installer)
}

// cloneObjection returns why a host cannot get a copy of a template, or an empty string. source is empty for a machine without one.
func (h hosts) cloneObjection(p placement, source inventoryItem, all inventory) string {
	if source.VMID == 0 || p.node == source.Node {
		return ""
	}
	if source.Shared == 0 {
		return fmt.Sprintf("template %s is on a storage of node %s alone: move it to a shared one, or name that node", source.Name, source.Node)
	}
	if h.options.LinkedClone {
		return ""
	}
	storage := p.storages[0]
	if s, _ := all.storage(p.node, storage); s.Shared == 0 {
		return "a template of another node can only be copied to a shared storage"
	}
	if _, ok := all.storage(source.Node, storage); !ok { // that host makes the copy (API2/Qemu.pm, clone_vm)
		return fmt.Sprintf("node %s has template %s, but no storage %s to copy it to: add the node to that storage, or name another storage", source.Node, source.Name, storage)
	}
	return ""
}

// refuse returns the UserError of a machine that no host can take. why has the reason of each host; bridge is a bridge that every host
// lacks, and installer a volume that a host lacks which could take the machine otherwise. Both may be empty.
func (d demand) refuse(why map[string]string, bridge, installer string) error {
	var reasons []string
	for _, node := range slices.Sorted(maps.Keys(why)) {
		reasons = append(reasons, node+": "+why[node])
	}
	if bridge != "" {
		return reconcile.UserError{Reason: "BridgeNotFound", Message: fmt.Sprintf("no node has bridge %s: make it at Proxmox VE, or name another in the NetworkConfiguration or in spec.defaults.bridge of the MachineProvider", bridge)}
	}
	if installer != "" {
		return reconcile.UserError{Reason: "ImageNotFound", Message: fmt.Sprintf("no node that can take the machine has %s: upload it to one of them, or to a storage that they share, or write another volume into spec.os.isoUri: %s",
			installer, strings.Join(reasons, "; "))}
	}
	remedy := "add nodes, free some, or ask for less"
	if d.node != "" {
		remedy = "free it, ask for less, or name another node in " + d.field
	}
	return reconcile.UserError{Reason: reasonInsufficient, Message: "no node has room for the machine: " + remedy + ": " + strings.Join(reasons, "; ")}
}

// demandOf returns what a machine needs of a host. source is its template, or empty.
func (s settings) demandOf(m *v1alpha1.Machine, want hypervisor.Desired, source inventoryItem) demand {
	d := demand{
		node: m.Spec.NodeName, field: "spec.nodeName", memory: megabytes(want) << 20, cpus: want.Cores * want.Threads * want.Sockets, disks: want.Disks,
		storage: s.defaults.StorageClass,
	}
	if d.node == "" {
		d.node, d.field = s.defaults.NodeName, "spec.nodeName, or into spec.defaults.nodeName of MachineProvider "+s.provider.Name
	}
	if source.VMID != 0 && source.Shared == 0 && m.Spec.NodeName == "" {
		d.node = source.Node
	}
	if name := m.Labels[v1alpha1.LabelClusterName]; name != "" {
		d.ordinal = ordinalOf(m.Name)
		d.group = []string{tag("cluster", name), tag("role", m.Labels[v1alpha1.LabelClusterRole])}
	}
	if m.Spec.OS != nil {
		d.installer = m.Spec.OS.ISOURI
	}
	if imageURL(m) != "" {
		d.content = append(d.content, "import")
	}
	if decideFirstBoot(m, want).iso() {
		d.content = append(d.content, "iso")
	}
	return d
}

// hasInstaller reports whether a node has the volume of an installer. Every node has none.
func (h hosts) hasInstaller(ctx context.Context, node, volume string) (bool, error) {
	if volume == "" {
		return true, nil
	}
	storage, _, _ := strings.Cut(volume, ":")
	return h.hasVolume(ctx, node, storage, "iso", volume)
}

// missingBridge returns a bridge that a machine needs and a node lacks, or nothing.
func (h hosts) missingBridge(ctx context.Context, node string, want hypervisor.Desired) (string, error) {
	if len(want.NICs) == 0 {
		return "", nil
	}
	var networks []struct {
		Iface string `json:"iface"`
	}
	if err := h.client.Get(ctx, "/nodes/"+node+"/network?type=any_bridge", &networks); err != nil {
		return "", err
	}
	for _, n := range want.NICs {
		bridge := h.bridgeName(n)
		if !slices.ContainsFunc(networks, func(i struct {
			Iface string `json:"iface"`
		}) bool {
			return i.Iface == bridge
		}) {
			return bridge, nil
		}
	}
	return "", nil
}
