package proxmox

import (
	"context"
	"fmt"
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
		if t, err := x.cds.deleteOrphaned(ctx, m, all); err != nil || t != nil {
			m.Status.Task = taskOf(actionDeleteCD, t)
			return "the CD of the machine", err
		}
		return "", x.vmids.release(ctx, m)
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
	if err := x.unprotect(ctx, vm); err != nil {
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

// unprotect takes the protection that the stack has set off a virtual machine. That of an administrator is a UserError.
func (x *Hypervisor) unprotect(ctx context.Context, vm *virtualMachine) error {
	if vm.config["protection"] != "1" {
		return nil
	}
	if !strings.Contains(vm.config["description"], protectedLine) {
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
