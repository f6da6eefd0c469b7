package main

import (
	"context"
	"fmt"
	"slices"
	"strings"

	pve "github.com/luthermonson/go-proxmox"

	"github.com/vitistack/stack/apis/v1alpha1"
)

// virtualMachine is a virtual machine of Proxmox VE.
type virtualMachine struct {
	id     int
	node   string
	config map[string]string
}

func (x *proxmox) handle(vm *virtualMachine) *pve.VirtualMachine {
	h := &pve.VirtualMachine{}
	h.New(x.client, vm.node, vm.id)
	return h
}

func (vm *virtualMachine) path() string { return fmt.Sprintf("/nodes/%s/qemu/%d", vm.node, vm.id) }

// find looks the machine's virtual machine up: where it was claimed for, and else
// by its UID in the whole cluster, of which it then returns what there is. It returns
// nothing where there is none. What has the claimed VMID and is not of this machine
// ends the claim.
func (x *proxmox) find(ctx context.Context, m *v1alpha1.Machine) (*virtualMachine, cluster, error) {
	node, vmid := placeOf(m)
	if node != "" && m.Status.VMName != "" {
		vm, err := x.read(ctx, node, vmid)
		if err == nil && vm.of(m) {
			return vm, nil, nil
		}
		if err != nil && !x.absent(ctx, vmid, err) {
			return nil, nil, err
		}
	}
	all, err := x.resources(ctx)
	if err != nil {
		return nil, nil, err
	}
	at := slices.IndexFunc(all, func(r item) bool { return r.isVM() && slices.Contains(r.tags(), tagOf(m)) })
	if at < 0 && vmid != 0 {
		at = slices.IndexFunc(all, func(r item) bool { return r.isVM() && r.VMID == vmid })
	}
	if at < 0 {
		return nil, all, nil
	}
	vm, err := x.read(ctx, all[at].Node, all[at].VMID)
	switch {
	case missing(err):
		return nil, all, nil
	case err != nil:
		return nil, nil, err
	case vm.of(m) || vm.claimed(m):
		m.Status.ProviderID = proxmoxID(vm.node, vm.id)
		return vm, all, nil
	}
	m.Status.ProviderID, m.Status.VMName = "", ""
	return nil, all, nil
}

// absent reports whether no virtual machine has a VMID, after an error of reading it. A user
// whose rights come from a pool cannot read the configuration of one that has gone: it is
// in no pool any more. So Proxmox VE is asked whether the VMID is unused.
func (x *proxmox) absent(ctx context.Context, vmid int, err error) bool {
	if missing(err) || !denied(err) {
		return missing(err)
	}
	var next any
	return x.client.Get(ctx, fmt.Sprintf("/cluster/nextid?vmid=%d", vmid), &next) == nil
}

// read reads a virtual machine's configuration, with what is pending.
func (x *proxmox) read(ctx context.Context, node string, vmid int) (*virtualMachine, error) {
	vm := &virtualMachine{id: vmid, node: node, config: map[string]string{}}
	var config map[string]any
	if err := x.client.Get(ctx, vm.path()+"/config", &config); err != nil {
		return nil, err
	}
	for key, value := range config {
		vm.config[key] = plain(value)
	}
	return vm, nil
}

// of tells whether a virtual machine was made for a machine.
func (vm *virtualMachine) of(m *v1alpha1.Machine) bool {
	return slices.Contains(splitTags(vm.config["tags"]), tagOf(m)) || strings.Contains(vm.config["description"], uidLine(m))
}

// claimed tells whether a virtual machine is being made under the VMID that the
// machine has claimed.
func (vm *virtualMachine) claimed(m *v1alpha1.Machine) bool {
	_, vmid := placeOf(m)
	lock := vm.config["lock"]
	return vmid == vm.id && (lock == "create" || lock == "clone")
}
