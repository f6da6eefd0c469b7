package proxmox

import (
	"context"
	"fmt"
	"strings"

	"k8s.io/apimachinery/pkg/api/meta"

	"github.com/vitistack/stack/apis/v1alpha1"
	"github.com/vitistack/stack/functions/create-vm/hypervisor"
	"github.com/vitistack/stack/functions/internal/reconcile"
)

// ensureMedia has the host of a virtual machine that is about to start have what is in its CD drives. A virtual machine that high availability or
// an administrator has moved leaves a CD on a storage of its former host, and Proxmox VE starts none without its volumes. The CD with the first
// configuration is uploaded again, because cloud-init would take the guest for a new one without it. It returns the task that it
// has started, or nil if nothing is missing. A missing installer is a UserError.
func (c changes) ensureMedia(ctx context.Context, m *v1alpha1.Machine, want hypervisor.Desired, vm *virtualMachine) (*v1alpha1.ProviderTask, error) {
	cd, missing, err := c.missingMedium(ctx, vm, cloudDrive)
	if err != nil {
		return nil, err
	}
	if missing && isCD(m, cd) {
		return c.replaceCD(ctx, m, want, vm)
	}
	installer, missing, err := c.missingMedium(ctx, vm, cdrom)
	if err != nil || !missing {
		return nil, err
	}
	return nil, hypervisor.RetriedUserError{UserError: reconcile.UserError{Reason: "ImageNotFound", Message: fmt.Sprintf("node %[1]s does not have %[2]s, which VM %[3]d needs to start: upload it to that node, or, "+
		"if the system is installed, run qm set %[3]d --%[4]s %[5]s there. The stack continues by itself", vm.node, installer, vm.id, cdrom, emptyDrive)}}
}

// missingMedium returns the volume in a CD drive, and reports whether the host of the virtual machine lacks it.
func (c changes) missingMedium(ctx context.Context, vm *virtualMachine, drive string) (volume string, missing bool, err error) {
	volume, _, _ = strings.Cut(vm.config[drive], ",")
	storage, _, isISO := strings.Cut(volume, ":iso/")
	if !isISO {
		return volume, false, nil
	}
	has, err := c.hasVolume(ctx, vm.node, storage, "iso", volume)
	return volume, err == nil && !has, err
}

// replaceCD uploads the CD with the first configuration of a machine to the host of its virtual machine. A node that still needs its machine
// configuration gets it again: the next call has it.
func (c changes) replaceCD(ctx context.Context, m *v1alpha1.Machine, want hypervisor.Desired, vm *virtualMachine) (*v1alpha1.ProviderTask, error) {
	if want.UserDataError != nil {
		return nil, want.UserDataError
	}
	if m.HoldsMachineConfig() && want.Handover == hypervisor.HandoverNone {
		meta.RemoveStatusCondition(&m.Status.Conditions, v1alpha1.ConditionMachineConfigRemoved)
		return taskOf(actionUpload, nil), nil
	}
	option, t, err := c.ensureCDOption(ctx, m, want, vm)
	if err != nil || t != nil {
		return t, err
	}
	return nil, c.configure(ctx, vm, map[string]string{cloudDrive: option})
}
