package proxmox

import (
	"cmp"
	"fmt"
	"slices"
	"strconv"
	"strings"

	"k8s.io/apimachinery/pkg/api/resource"

	"github.com/vitistack/stack/functions/create-vm/hypervisor"
	"github.com/vitistack/stack/functions/internal/reconcile"
)

// demand is what a machine needs of a host.
type demand struct {
	// node is the only host that it may run on, or empty, and field is where it is named.
	node   string
	field  string
	memory int64
	cpus   int32
	disks  []hypervisor.Disk
	// storage is the storage of disks that name none, or empty.
	storage string
	// claimed is the memory of each host that other machines have claimed and Proxmox VE does not list yet, in bytes.
	claimed map[string]int64
	// group are the tags that machines share which are to be spread.
	group []string
	// ordinal is the machine's number in its group.
	ordinal int
	// content is what storages the host needs beside those for disks.
	content []string
	// installer is the volume of the CD that the machine is installed from, or empty.
	installer string
}

// placement is a host, and a storage there for each disk. vmid is the VMID that the machine has claimed, or 0 before it has one.
type placement struct {
	node     string
	storages []string
	vmid     int
}

// rankHosts sorts the hosts that can take a machine: those with the fewest machines of its
// group first, and among them in turn, because the machines of a group are created at the same
// time. A machine without a group goes to the host with the most free memory. why says for
// every other host what it lacks.
func (c inventory) rankHosts(d demand) (fit []placement, why map[string]string) {
	why = map[string]string{}
	free, group := c.count(d.group, d.claimed)
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

// count returns the free memory of each host, and its number of machines of a group. Free is what neither is in use nor claimed, nor belongs
// to a guest that runs, or to a machine of the stack that is off, because it will start. A guest uses less than its memory until it needs more, and the host has to
// have that then.
func (c inventory) count(tags []string, claimed map[string]int64) (free map[string]int64, group map[string]int) {
	free, group = map[string]int64{}, map[string]int{}
	unassigned := map[string]int64{}
	for _, i := range c {
		switch {
		case i.Type == "node":
			free[i.Node] += i.MaxMem - i.Mem
			unassigned[i.Node] += i.MaxMem
		case i.reservesMemory():
			unassigned[i.Node] -= i.MaxMem
			if i.Status != "running" {
				free[i.Node] -= i.MaxMem
			}
		}
		if i.isVM() && len(tags) > 0 && !slices.ContainsFunc(tags, func(t string) bool { return !slices.Contains(i.tags(), t) }) {
			group[i.Node]++
		}
	}
	for node := range free {
		free[node] = min(free[node], unassigned[node]) - claimed[node]
	}
	return free, group
}

// withoutHosts returns the inventory without some of its hosts.
func (c inventory) withoutHosts(names []string) inventory {
	return slices.DeleteFunc(slices.Clone(c), func(i inventoryItem) bool { return i.Type == "node" && slices.Contains(names, i.Node) })
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
	if name, _, ok := strings.Cut(d.installer, ":"); ok {
		if s, ok := c.storage(node, name); !ok || !s.has("iso") {
			return nil, "it has no storage " + name + " for ISO images"
		}
	}
	return storages, ""
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
