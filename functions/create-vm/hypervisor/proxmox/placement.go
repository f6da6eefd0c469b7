package proxmox

import (
	"cmp"
	"context"
	"fmt"
	"maps"
	"slices"
	"strconv"
	"strings"

	"k8s.io/apimachinery/pkg/api/resource"

	"github.com/vitistack/stack/apis/v1alpha1"
	"github.com/vitistack/stack/functions/create-vm/hypervisor"
	"github.com/vitistack/stack/functions/internal/reconcile"
)

// inventoryItem is a host, a storage on a host, or a virtual machine, as /cluster/resources lists them.
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

func (i inventoryItem) isVM() bool     { return i.Type == "qemu" }
func (i inventoryItem) online() bool   { return i.Status == "online" }
func (i inventoryItem) tags() []string { return splitTags(i.TagList) }
func (i inventoryItem) has(content string) bool {
	return i.Type == "storage" && i.Status == "available" && slices.Contains(strings.Split(i.Content, ","), content)
}

// inventory lists the resources of a cluster of Proxmox VE.
type inventory []inventoryItem

func (x *Hypervisor) readInventory(ctx context.Context) (all inventory, err error) {
	return all, x.client.Get(ctx, "/cluster/resources", &all)
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

// demand is what a machine needs of a host.
type demand struct {
	// node is the only host that it may run on, or empty, and field is where it is named.
	node   string
	field  string
	memory int64
	cpus   int32
	disks  []hypervisor.Disk
	// storage is what disks are on that name none, or empty.
	storage string
	// group are the tags that machines share which are to be spread.
	group []string
	// ordinal is the machine's number in its group.
	ordinal int
	// content is what storages the host needs beside those for disks.
	content []string
}

// placement is a host, and a storage there for each disk.
type placement struct {
	node     string
	storages []string
}

// rankHosts sorts the hosts that can take a machine: those with the fewest machines of its
// group first, and among them in turn, because the machines of a group are created at the same
// time. A machine without a group goes to the host with the most free memory. why says for
// every other host what it lacks. A machine of the stack that is off counts with all of its
// memory, because it will start.
func (c inventory) rankHosts(d demand) (fit []placement, why map[string]string) {
	why = map[string]string{}
	free, group := c.count(d.group)
	for _, n := range c {
		if n.Type != "node" || (d.node != "" && n.Node != d.node) {
			continue
		}
		storages, refusal := c.findStorages(n.Node, d)
		switch {
		case !n.online():
			why[n.Node] = "it does not answer"
		case n.MaxMem > 0 && free[n.Node] < d.memory:
			why[n.Node] = fmt.Sprintf("it has %s of memory left", resource.NewQuantity(max(0, free[n.Node])>>20<<20, resource.BinarySI))
		case n.MaxCPU > 0 && int32(n.MaxCPU) < d.cpus:
			why[n.Node] = fmt.Sprintf("it has %d CPUs", int32(n.MaxCPU))
		case refusal != "":
			why[n.Node] = refusal
		default:
			fit = append(fit, placement{node: n.Node, storages: storages})
		}
	}
	turn := map[string]int{}
	for i, p := range fit {
		turn[p.node] = (i - d.ordinal%len(fit) + len(fit)) % len(fit)
	}
	slices.SortStableFunc(fit, func(a, b placement) int {
		if len(d.group) > 0 {
			return cmp.Or(group[a.node]-group[b.node], turn[a.node]-turn[b.node])
		}
		return cmp.Or(cmp.Compare(free[b.node], free[a.node]), strings.Compare(a.node, b.node))
	})
	return fit, why
}

// count returns the free memory of each host, and its number of machines of a group.
func (c inventory) count(tags []string) (free map[string]int64, group map[string]int) {
	free, group = map[string]int64{}, map[string]int{}
	for _, i := range c {
		switch {
		case i.Type == "node":
			free[i.Node] += i.MaxMem - i.Mem
		case !i.isVM() || i.Template == 1:
		case i.Status != "running" && slices.Contains(i.tags(), tagManaged):
			free[i.Node] -= i.MaxMem
		}
		if i.isVM() && len(tags) > 0 && !slices.ContainsFunc(tags, func(t string) bool { return !slices.Contains(i.tags(), t) }) {
			group[i.Node]++
		}
	}
	return free, group
}

// ordinalOf returns the number at the end of a name, or 0.
func ordinalOf(name string) int {
	n, _ := strconv.Atoi(name[len(strings.TrimRight(name, "0123456789")):])
	return n
}

// findStorages returns a storage on a node for each disk, or says what is missing.
func (c inventory) findStorages(node string, d demand) (storages []string, refusal string) {
	left := map[string]int64{}
	for _, i := range c {
		if i.Type == "storage" && i.Node == node {
			left[i.Storage] = i.MaxDisk - i.Disk
		}
	}
	for _, disk := range d.disks {
		name := disk.StorageClass
		if name == "" || name == hypervisor.DefaultClass {
			name = d.storage
		}
		if name == "" {
			best, ok := c.storageWithMostRoom(node, "images")
			if !ok {
				return nil, "it has no storage for disks"
			}
			name = best.Storage
		}
		s, ok := c.storage(node, name)
		if !ok || !s.has("images") {
			return nil, "it has no storage " + name + " for disks"
		}
		if left[name] -= disk.Size.Value(); left[name] < 0 {
			return nil, "its storage " + name + " is full"
		}
		storages = append(storages, name)
	}
	for _, content := range d.content {
		if _, ok := c.storageWithMostRoom(node, content); !ok {
			return nil, "it has no storage for content " + content
		}
	}
	return storages, ""
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

// choosePlacement chooses the host of a machine: the one that it has if that can still take it, or else
// the first of the ranked hosts that has its bridges.
func (x *Hypervisor) choosePlacement(ctx context.Context, m *v1alpha1.Machine, want hypervisor.Desired, all inventory, source inventoryItem) (placement, error) {
	d := x.demandOf(m, want, source)
	if err := all.checkNamed(d); err != nil {
		return placement{}, err
	}
	fit, why := all.rankHosts(d)
	if had, _ := recordedPlacement(m); had != "" {
		slices.SortStableFunc(fit, func(a, b placement) int {
			return cmp.Compare(map[bool]int{true: 0, false: 1}[a.node == had], map[bool]int{true: 0, false: 1}[b.node == had])
		})
	}
	bridge := ""
	for _, p := range fit {
		if source.VMID != 0 && source.Shared == 0 && p.node != source.Node {
			why[p.node] = fmt.Sprintf("template %s is on a storage of node %s alone: move it to a shared one, or name that node", source.Name, source.Node)
			continue
		}
		if s, _ := all.storage(p.node, p.storages[0]); source.VMID != 0 && p.node != source.Node && !x.options.LinkedClone && s.Shared == 0 {
			why[p.node] = "a template of another node can only be copied to a shared storage"
			continue
		}
		lacks, err := x.missingBridge(ctx, p.node, want)
		if err != nil {
			return placement{}, err
		}
		if lacks == "" {
			return p, nil
		}
		bridge = lacks
		why[p.node] = "it has no bridge " + lacks
	}
	var reasons []string
	for _, node := range slices.Sorted(maps.Keys(why)) {
		reasons = append(reasons, node+": "+why[node])
	}
	if bridge != "" && len(fit) == len(why) {
		return placement{}, reconcile.UserError{Reason: "BridgeNotFound", Message: fmt.Sprintf("no node has bridge %s: make it at Proxmox VE, or name another in the NetworkConfiguration or in spec.defaults.bridge of the MachineProvider", bridge)}
	}
	remedy := "add nodes, free some, or ask for less"
	if d.node != "" {
		remedy = "free it, ask for less, or name another node in " + d.field
	}
	return placement{}, reconcile.UserError{Reason: reasonInsufficient, Message: "no node has room for the machine: " + remedy + ": " + strings.Join(reasons, "; ")}
}

// checkNamed returns a UserError if a machine names a storage or a host that does not exist.
func (c inventory) checkNamed(d demand) error {
	classes := c.classes()
	for _, dk := range d.disks {
		if named := dk.StorageClass != "" && dk.StorageClass != hypervisor.DefaultClass; named && !slices.Contains(classes, dk.StorageClass) {
			return reconcile.UserError{Reason: "StorageClassNotFound", Message: fmt.Sprintf("Proxmox VE has no storage %s for disk %s: name one of %s", dk.StorageClass, dk.Name, strings.Join(classes, ", "))}
		}
	}
	var nodes []string
	for _, i := range c {
		if i.Type == "node" {
			nodes = append(nodes, i.Node)
		}
	}
	if d.node != "" && !slices.Contains(nodes, d.node) {
		slices.Sort(nodes)
		return reconcile.UserError{Reason: "NodeNotFound", Message: fmt.Sprintf("Proxmox VE has no node %s: write one of %s into %s, or leave it out", d.node, strings.Join(nodes, ", "), d.field)}
	}
	return nil
}

func (x *Hypervisor) demandOf(m *v1alpha1.Machine, want hypervisor.Desired, source inventoryItem) demand {
	d := demand{
		node: m.Spec.NodeName, field: "spec.nodeName", memory: megabytes(want) << 20, cpus: want.Cores * want.Threads * want.Sockets, disks: want.Disks,
		storage: x.defaults.StorageClass,
	}
	if d.node == "" {
		d.node, d.field = x.defaults.NodeName, "spec.nodeName, or into spec.defaults.nodeName of MachineProvider "+x.provider.Name
	}
	if source.VMID != 0 && source.Shared == 0 && m.Spec.NodeName == "" {
		d.node = source.Node
	}
	if name := m.Labels[v1alpha1.LabelClusterName]; name != "" {
		d.ordinal = ordinalOf(m.Name)
		d.group = []string{tag("cluster", name), tag("role", m.Labels[v1alpha1.LabelClusterRole])}
	}
	if imageURL(m) != "" {
		d.content = append(d.content, "import")
	}
	if decideFirstBoot(m, want).iso() {
		d.content = append(d.content, "iso")
	}
	return d
}

// missingBridge returns a bridge that a machine needs and a node lacks, or nothing.
func (x *Hypervisor) missingBridge(ctx context.Context, node string, want hypervisor.Desired) (string, error) {
	if len(want.NICs) == 0 {
		return "", nil
	}
	var networks []struct {
		Iface string `json:"iface"`
	}
	if err := x.client.Get(ctx, "/nodes/"+node+"/network?type=any_bridge", &networks); err != nil {
		return "", err
	}
	for _, n := range want.NICs {
		bridge := x.bridgeName(n)
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

// bridgeName returns the bridge of an interface.
func (x *Hypervisor) bridgeName(n hypervisor.NIC) string {
	return cmp.Or(n.Bridge, x.defaults.Bridge, "vmbr0")
}
