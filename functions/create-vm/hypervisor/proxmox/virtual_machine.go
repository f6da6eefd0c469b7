package proxmox

import (
	"cmp"
	"context"
	"fmt"
	"slices"
	"strings"

	pve "github.com/luthermonson/go-proxmox"

	"github.com/vitistack/stack/apis/v1alpha1"
)

// virtualMachine is a virtual machine of Proxmox VE.
type virtualMachine struct {
	id   int
	node string
	// config has the options with their pending changes, which take effect at the next start. current has the options without them.
	config, current map[string]string
}

// vmClient returns the client of the library for a virtual machine.
func (x api) vmClient(vm *virtualMachine) *pve.VirtualMachine {
	h := &pve.VirtualMachine{}
	h.New(x.client, vm.node, vm.id)
	return h
}

// path returns the path of a virtual machine in the API.
func (vm *virtualMachine) path() string { return fmt.Sprintf("/nodes/%s/qemu/%d", vm.node, vm.id) }

// finder finds the virtual machines of Machines.
type finder struct{ api }

// find returns the machine's virtual machine: at the recorded place, or else by its UID in the
// whole cluster, whose resources it then returns too. It adopts the one of a former UID. It returns nil if there is none. Another
// virtual machine with the recorded VMID ends the claim. High availability moves virtual machines off a host that does not
// answer, so the failure of the recorded host is an error only if the cluster knows no other host of the virtual machine.
func (f finder) find(ctx context.Context, m *v1alpha1.Machine) (*virtualMachine, inventory, error) {
	node, vmid := recordedPlacement(m)
	var failure error
	if node != "" && m.Status.VMName != "" {
		vm, err := f.readRecorded(ctx, m, node, vmid)
		if vm != nil || (err != nil && !isHostFailure(err)) {
			return vm, nil, err
		}
		failure = err
	}
	all, err := f.readInventory(ctx)
	if err != nil {
		return nil, nil, cmp.Or(failure, err)
	}
	at := all.indexOf(m, vmid)
	if failure != nil && all.mayBeOn(node, at) {
		return nil, nil, all.hostError(node, vmid, failure)
	}
	if at < 0 {
		return nil, all, nil
	}
	return f.readListed(ctx, m, all, all[at])
}

// findRecorded returns the virtual machine of a machine that is being deleted like find, but only under the recorded VMID, if there is one. Clones, templates and
// restored backups that an administrator has made of it have its tags and its description (PVE/API2/Qemu.pm, clone_vm), so that nothing but
// the VMID distinguishes them. They stay. The ones that are no templates are orphans once the Machine is gone.
func (f finder) findRecorded(ctx context.Context, m *v1alpha1.Machine) (*virtualMachine, inventory, error) {
	id := m.Status.ProviderID
	_, vmid := recordedPlacement(m)
	vm, all, err := f.find(ctx, m)
	if vm == nil || vmid == 0 || vm.id == vmid {
		return vm, all, err
	}
	m.Status.ProviderID = id
	return nil, all, err
}

// readListed returns the virtual machine of an item of the inventory like find.
func (f finder) readListed(ctx context.Context, m *v1alpha1.Machine, all inventory, i inventoryItem) (*virtualMachine, inventory, error) {
	vm, err := f.read(ctx, i.Node, i.VMID)
	if err == nil {
		err = f.adopt(ctx, m, vm)
	}
	switch {
	case isMissing(err):
		return nil, all, nil
	case err != nil:
		return nil, nil, all.hostError(i.Node, i.VMID, err)
	case vm.isOf(m) || vm.isClaimedBy(m):
		m.Status.ProviderID = formatProviderID(vm.node, vm.id)
		return vm, all, nil
	}
	m.Status.ProviderID, m.Status.VMName = "", ""
	return nil, all, nil
}

// indexOf returns the place of a machine's virtual machine, or else of one of a former UID, or else of
// the one with its recorded VMID, if that is not 0. A template that was made of the virtual machine has its tags, and is not one of them. It returns -1 if
// there is none.
func (c inventory) indexOf(m *v1alpha1.Machine, vmid int) int {
	for _, is := range []func(inventoryItem) bool{
		func(r inventoryItem) bool { return r.Template == 0 && slices.Contains(r.tags(), uidTag(m)) },
		func(r inventoryItem) bool { return r.Template == 0 && isAdoptable(m, r.tags(), "") },
		func(r inventoryItem) bool { return vmid != 0 && r.VMID == vmid },
	} {
		if at := slices.IndexFunc(c, func(r inventoryItem) bool { return r.isVM() && is(r) }); at >= 0 {
			return at
		}
	}
	return -1
}

// mayBeOn reports whether a virtual machine may be on a host: it is listed there at an index, or nowhere, with the index -1,
// although the host is a member of the cluster.
func (c inventory) mayBeOn(node string, at int) bool {
	if at >= 0 {
		return c[at].Node == node
	}
	return slices.ContainsFunc(c, func(i inventoryItem) bool { return i.Type == "node" && i.Node == node })
}

// readRecorded returns the virtual machine at the recorded place, and adopts it if it has a former UID
// of the Machine. It returns nil if it is another one, or none.
func (f finder) readRecorded(ctx context.Context, m *v1alpha1.Machine, node string, vmid int) (*virtualMachine, error) {
	vm, err := f.read(ctx, node, vmid)
	if err != nil {
		if f.isUnusedVMID(ctx, vmid, err) {
			return nil, nil
		}
		return nil, err
	}
	if err := f.adopt(ctx, m, vm); err != nil {
		return nil, err
	}
	if !vm.isOf(m) {
		return nil, nil
	}
	return vm, nil
}

// isUnusedVMID reports whether no virtual machine has a VMID, after an error of reading it. A
// user whose rights come from a pool cannot read the configuration of a deleted virtual
// machine, because it is in no pool. So it asks Proxmox VE whether the VMID is unused.
func (x api) isUnusedVMID(ctx context.Context, vmid int, err error) bool {
	if isMissing(err) || !isForbidden(err) {
		return isMissing(err)
	}
	var next any
	return x.client.Get(ctx, fmt.Sprintf("/cluster/nextid?vmid=%d", vmid), &next) == nil
}

// read reads a virtual machine's configuration with its pending changes.
func (x api) read(ctx context.Context, node string, vmid int) (*virtualMachine, error) {
	vm := &virtualMachine{id: vmid, node: node, config: map[string]string{}, current: map[string]string{}}
	var options []struct {
		Key     string `json:"key"`
		Value   any    `json:"value"`
		Pending any    `json:"pending"`
		Delete  int    `json:"delete"`
	}
	if err := x.client.Get(ctx, vm.path()+"/pending", &options); err != nil {
		return nil, err
	}
	for _, o := range options {
		if o.Value != nil {
			vm.current[o.Key] = formatValue(o.Value)
		}
		if value := cmp.Or(o.Pending, o.Value); value != nil && o.Delete == 0 {
			vm.config[o.Key] = formatValue(value)
		}
	}
	return vm, nil
}

// isPending reports whether an option of a running virtual machine has another value at its next start.
func (vm *virtualMachine) isPending(option string) bool {
	return vm.current[option] != vm.config[option]
}

// diskStorages returns the storages of the disks of a virtual machine, sorted.
func (vm *virtualMachine) diskStorages() (names []string) {
	for key, value := range vm.config {
		if diskOption.MatchString(key) && !strings.Contains(value, "media=cdrom") {
			name, _, _ := strings.Cut(value, ":")
			names = append(names, name)
		}
	}
	slices.Sort(names)
	return slices.Compact(names)
}

// isOf reports whether a virtual machine was created for a machine.
func (vm *virtualMachine) isOf(m *v1alpha1.Machine) bool {
	return slices.Contains(splitTags(vm.config["tags"]), uidTag(m)) || strings.Contains(vm.config["description"], uidLine(m))
}

// isClaimedBy reports whether a virtual machine is being created under the VMID that the
// machine has claimed.
func (vm *virtualMachine) isClaimedBy(m *v1alpha1.Machine) bool {
	_, vmid := recordedPlacement(m)
	lock := vm.config["lock"]
	return vmid == vm.id && (lock == "create" || lock == "clone")
}

// configure changes options of a virtual machine, and reads its configuration again. It returns
// errConflict if the configuration has changed since it was read.
func (x api) configure(ctx context.Context, vm *virtualMachine, change map[string]string) error {
	var options []pve.VirtualMachineOption
	for key, value := range change {
		options = append(options, pve.VirtualMachineOption{Name: key, Value: value})
	}
	options = append(options, pve.VirtualMachineOption{Name: "digest", Value: vm.config["digest"]})
	if err := x.vmClient(vm).ConfigSync(ctx, options...); err != nil {
		if isModified(err) {
			return errConflict
		}
		return err
	}
	fresh, err := x.read(ctx, vm.node, vm.id)
	if err != nil {
		return err
	}
	vm.config, vm.current = fresh.config, fresh.current
	return nil
}
