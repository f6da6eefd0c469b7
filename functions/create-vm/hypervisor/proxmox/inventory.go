package proxmox

import (
	"context"
	"fmt"
	"maps"
	"slices"
	"strings"

	"github.com/vitistack/stack/apis/v1alpha1"
	"github.com/vitistack/stack/functions/create-vm/hypervisor"
	"github.com/vitistack/stack/functions/internal/reconcile"
)

// inventoryItem is a host, a storage on a host, a virtual machine or a container, as /cluster/resources lists them.
type inventoryItem struct {
	Type       string  `json:"type"`
	Node       string  `json:"node"`
	Name       string  `json:"name"`
	Status     string  `json:"status"`
	TagList    string  `json:"tags"`
	Storage    string  `json:"storage"`
	Content    string  `json:"content"`
	VMID       int     `json:"vmid"`
	Template   int     `json:"template"`
	Shared     int     `json:"shared"`
	MaxCPU     float64 `json:"maxcpu"`
	CPU        float64 `json:"cpu"`
	MaxMem     int64   `json:"maxmem"`
	Mem        int64   `json:"mem"`
	MaxDisk    int64   `json:"maxdisk"`
	Disk       int64   `json:"disk"`
	PluginType string  `json:"plugintype"`
}

// isVM reports whether an item is a virtual machine.
func (i inventoryItem) isVM() bool { return i.Type == "qemu" }

// isGuest reports whether an item is a virtual machine or a container.
func (i inventoryItem) isGuest() bool { return i.isVM() || i.Type == "lxc" }

// reservesMemory reports whether an item is a guest whose memory the host has to have: it runs, or is a machine of the stack that will start.
func (i inventoryItem) reservesMemory() bool {
	return i.isGuest() && i.Template == 0 && (i.Status == "running" || slices.Contains(i.tags(), tagManaged))
}

// online reports whether a host answers.
func (i inventoryItem) online() bool { return i.Status == "online" }

// tags returns the tags of a virtual machine.
func (i inventoryItem) tags() []string { return splitTags(i.TagList) }

// has reports whether an item is a storage for a content that is available.
func (i inventoryItem) has(content string) bool {
	return i.Type == "storage" && i.Status == "available" && slices.Contains(strings.Split(i.Content, ","), content)
}

// inventory lists the resources of a cluster of Proxmox VE.
type inventory []inventoryItem

// readInventory lists the resources of the cluster.
func (x api) readInventory(ctx context.Context) (all inventory, err error) {
	return all, x.client.Get(ctx, "/cluster/resources", &all)
}

// isAnswering reports whether the cluster gets answers from a host.
func (c inventory) isAnswering(node string) bool {
	return slices.ContainsFunc(c, func(i inventoryItem) bool { return i.Type == "node" && i.Node == node && i.online() })
}

// hostError returns the error of a request about a virtual machine. It is a UserError if the cluster gets no answers from the
// host either.
func (c inventory) hostError(node string, vmid int, err error) error {
	if !isHostFailure(err) || c.isAnswering(node) {
		return err
	}
	return hypervisor.RetriedUserError{UserError: reconcile.UserError{Reason: "HostUnavailable", Message: fmt.Sprintf("node %[1]s, which has VM %[2]d, does not answer: start it. If it is lost, run pvecm delnode %[1]s on another node. "+
		"Then move the virtual machine with mv /etc/pve/nodes/%[1]s/qemu-server/%[2]d.conf /etc/pve/nodes/NODE/qemu-server/, or, if its disks are lost too, run rm /etc/pve/nodes/%[1]s/qemu-server/%[2]d.conf. The stack continues by itself", node, vmid)}}
}

// vmids returns the VMIDs in use, also by containers.
func (c inventory) vmids() map[int]bool {
	used := map[int]bool{}
	for _, i := range c {
		if i.VMID != 0 {
			used[i.VMID] = true
		}
	}
	return used
}

// hasFormerTag reports whether another Machine has adopted a virtual machine of a machine.
func (c inventory) hasFormerTag(m *v1alpha1.Machine) bool {
	return slices.ContainsFunc(c, func(r inventoryItem) bool { return r.isVM() && slices.Contains(r.tags(), formerTag(string(m.UID))) })
}

// storage returns a storage on a node.
func (c inventory) storage(node, name string) (inventoryItem, bool) {
	for _, i := range c {
		if i.Type == "storage" && i.Node == node && i.Storage == name {
			return i, true
		}
	}
	return inventoryItem{}, false
}

// storageWithMostRoom returns the storage of a node with the most free space for a content.
func (c inventory) storageWithMostRoom(node, content string) (best inventoryItem, ok bool) {
	for _, i := range c {
		if i.Node != node || !i.has(content) {
			continue
		}
		if room := i.MaxDisk - i.Disk; !ok || room > best.MaxDisk-best.Disk || (room == best.MaxDisk-best.Disk && i.Storage < best.Storage) {
			best, ok = i, true
		}
	}
	return best, ok
}

// cdStorage returns the storage of a node for CDs: a shared one if there is one, so that a machine which high availability moves finds its CD.
func (c inventory) cdStorage(node string) (inventoryItem, bool) {
	shared := slices.DeleteFunc(slices.Clone(c), func(i inventoryItem) bool { return i.Shared == 0 })
	if s, ok := shared.storageWithMostRoom(node, "iso"); ok {
		return s, true
	}
	return c.storageWithMostRoom(node, "iso")
}

// classes returns the storages of the cluster that take disks.
func (c inventory) classes() []string {
	names := map[string]bool{}
	for _, i := range c {
		if i.has("images") {
			names[i.Storage] = true
		}
	}
	return slices.Sorted(maps.Keys(names))
}
