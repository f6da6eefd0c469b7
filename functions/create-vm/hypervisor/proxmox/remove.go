package proxmox

import (
	"context"
	"fmt"
	"regexp"
	"strings"

	pve "github.com/luthermonson/go-proxmox"

	"github.com/vitistack/stack/apis/v1alpha1"
	"github.com/vitistack/stack/functions/create-vm/hypervisor"
	"github.com/vitistack/stack/functions/internal/reconcile"
)

// Remove implements hypervisor.Interface.
func (x *Hypervisor) Remove(ctx context.Context, m *v1alpha1.Machine) (string, error) {
	waitsFor, err := x.remove(ctx, m)
	return waitsFor, x.toUserError(err)
}

// remove takes the next step of a deletion, and returns what it waits for.
func (x *Hypervisor) remove(ctx context.Context, m *v1alpha1.Machine) (string, error) {
	before := m.Status.Task
	if busy, err := x.awaitTask(ctx, m); err != nil || busy {
		return "the task of Proxmox VE", err
	}
	vm, all, err := x.finder.findRecorded(ctx, m)
	if err != nil {
		return "", err
	}
	if vm == nil {
		return x.removeRest(ctx, m, all, before)
	}
	name := fmt.Sprintf("VM %d on %s", vm.id, vm.node)
	begun := func(action string, t *pve.Task, err error) (string, error) {
		if err != nil {
			return "", err
		}
		m.Status.Task = taskOf(action, t)
		return name, nil
	}
	switch lock := vm.config["lock"]; lock {
	case "":
	case actionCreate, actionClone:
		if err := x.checkCreation(ctx, vm); err != nil {
			return "", err
		}
		m.Status.Task = &v1alpha1.ProviderTask{ID: fmt.Sprintf("VM %d is locked (%s)", vm.id, lock), Action: actionDelete}
		return name, nil
	default:
		return "", reconcile.UserError{Reason: "Locked", Message: fmt.Sprintf("%s is locked (%s), and is deleted when Proxmox VE unlocks it. If nothing works on it any more, run qm unlock %d there", name, lock, vm.id)}
	}
	status, err := x.readPower(ctx, vm)
	if err != nil {
		return "", err
	}
	if status.Status == pve.StatusVirtualMachineRunning && status.isRequested(before) {
		m.Status.Task = before
		return name, nil
	}
	if err := hypervisor.CheckRemoval(ctx, x.vmids.home, m); err != nil {
		return "", err
	}
	if err := x.unprotect(ctx, m, vm); err != nil {
		return "", err
	}
	if status.Status == pve.StatusVirtualMachineRunning {
		t, err := x.vmClient(vm).Stop(ctx)
		return begun(actionStop, t, err)
	}
	if t, err := x.cds.delete(ctx, m, vm); err != nil || t != nil {
		return begun(actionDeleteCD, t, err)
	}
	t, err := x.destroy(ctx, vm)
	return begun(actionDelete, t, err)
}

// removeRest removes what a machine without a virtual machine still has, and returns what it waits for. before is the task that has ended, or nil.
func (x *Hypervisor) removeRest(ctx context.Context, m *v1alpha1.Machine, all inventory, before *v1alpha1.ProviderTask) (string, error) {
	if err := x.checkDisksDeleted(ctx, before); err != nil {
		m.Status.Task = before
		return "", err
	}
	if t, err := x.cds.deleteOrphaned(ctx, m, all); err != nil || t != nil {
		m.Status.Task = taskOf(actionDeleteCD, t)
		return "the CD of the machine", err
	}
	return "", x.vmids.release(ctx, m)
}

// keptDisk matches what the log of a deletion says of a disk that Proxmox VE could not delete. The task succeeds (qemu-server, QemuServer.pm, destroy_vm).
var keptDisk = regexp.MustCompile(`Could not remove disk '([^']+)', check manually: (.*)`)

// checkDisksDeleted returns a UserError if a task has deleted a virtual machine without all of its disks, and one still exists: the storage has refused to delete
// it, for example because a host that was lost still has it open. t is the task that has ended, or nil.
func (x api) checkDisksDeleted(ctx context.Context, t *v1alpha1.ProviderTask) error {
	if t == nil || t.Action != actionDelete || !strings.HasPrefix(t.ID, "UPID:") {
		return nil
	}
	node := strings.Split(t.ID, ":")[1]
	const lines = 200
	log, err := pve.NewTask(pve.UPID(t.ID), x.client).Log(ctx, 0, lines)
	if hasMessage(err, "no such task") || x.isHostDown(ctx, node, err) {
		return nil
	}
	for _, line := range log {
		kept := keptDisk.FindStringSubmatch(line)
		if kept == nil {
			continue
		}
		storage, _, _ := strings.Cut(kept[1], ":")
		has, err := x.hasVolume(ctx, node, storage, "images", kept[1])
		if err != nil && !isForbidden(err) {
			return err
		}
		if has {
			return hypervisor.RetriedUserError{UserError: reconcile.UserError{Reason: "ProxmoxApiError", Message: fmt.Sprintf("Proxmox VE has deleted the virtual machine, but not its disk %[1]s: %[2]s: "+
				"run pvesm free %[1]s on node %[3]s. The deletion continues then", kept[1], kept[2], node)}}
		}
	}
	return err
}

// unprotect takes the protection that the stack has set, or that a new clone has from its template, off a virtual machine. That of an administrator is
// a UserError.
func (x *Hypervisor) unprotect(ctx context.Context, m *v1alpha1.Machine, vm *virtualMachine) error {
	if vm.config["protection"] != "1" {
		return nil
	}
	if !vm.isNewClone(m) && !strings.Contains(vm.config["description"], protectedLine) {
		return reconcile.UserError{Reason: "Protected", Message: fmt.Sprintf("VM %d on node %s is protected: disable Protection under Options of the VM in Proxmox VE", vm.id, vm.node)}
	}
	return x.configure(ctx, vm, map[string]string{"protection": "0"})
}

// destroy deletes a virtual machine with its disks. It returns the task, or nil if the virtual machine
// does not exist.
func (x api) destroy(ctx context.Context, vm *virtualMachine) (*pve.Task, error) {
	var upid pve.UPID
	err := x.client.DeleteWithParams(ctx, vm.path(), &pve.VirtualMachineDeleteOptions{Purge: true, DestroyUnreferencedDisks: true}, &upid)
	if isMissing(err) {
		return nil, nil
	}
	return pve.NewTask(upid, x.client), err
}
