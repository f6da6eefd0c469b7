package kubevirt

import (
	"context"
	"fmt"
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	kubevirtv1 "kubevirt.io/api/core/v1"

	"github.com/vitistack/stack/apis/v1alpha1"
	"github.com/vitistack/stack/functions/create-vm/hypervisor"
	"github.com/vitistack/stack/functions/internal/kube"
	"github.com/vitistack/stack/functions/internal/reconcile"
)

// update brings an existing virtual machine to what is wanted, in one patch, and its disks
// before it. KubeVirt applies what it can while the machine runs, and reports that the rest
// waits for a restart. After all other changes it returns a UserError for a disk that is
// larger than wanted.
func (k *Hypervisor) update(ctx context.Context, m *v1alpha1.Machine, want hypervisor.Desired, vm *kubevirtv1.VirtualMachine) error {
	if vm.DeletionTimestamp != nil || vm.Spec.Template == nil {
		return nil
	}
	if isStarting(m, vm) {
		if err := k.ensureAttachments(ctx, m, want); err != nil {
			return err
		}
	}
	before := vm.DeepCopy()
	if strategy := runStrategy(m.Spec.PowerState); vm.Spec.RunStrategy == nil || *vm.Spec.RunStrategy != strategy {
		vm.Spec.Running, vm.Spec.RunStrategy = nil, &strategy
	}
	setSize(&vm.Spec.Template.Spec.Domain, want)
	if err := k.addDisks(ctx, m, want, vm); err != nil {
		return err
	}
	shrunk, err := k.growDisks(ctx, m, want)
	if err != nil {
		return err
	}
	if _, err := k.guests.Patch(ctx, before, vm); err != nil {
		return err
	}
	if err := k.replaceUnscheduled(ctx, vm); err != nil {
		return err
	}
	return shrunk
}

// isStarting reports whether a virtual machine is about to start, or cannot. One that runs
// does not need its network attachments.
func isStarting(m *v1alpha1.Machine, vm *kubevirtv1.VirtualMachine) bool {
	up := vm.Status.PrintableStatus == kubevirtv1.VirtualMachineStatusRunning && m.Spec.RestartToken == m.Status.RestartToken
	return m.Spec.PowerState != v1alpha1.PowerStopped && !up
}

// setSize writes CPU and memory into a domain, unless they are equal.
func setSize(d *kubevirtv1.DomainSpec, want hypervisor.Desired) {
	if d.CPU == nil {
		d.CPU = &kubevirtv1.CPU{}
	}
	d.CPU.Cores, d.CPU.Threads, d.CPU.Sockets = uint32(want.Cores), uint32(want.Threads), uint32(want.Sockets)
	if d.Memory == nil {
		d.Memory = &kubevirtv1.Memory{}
	}
	if d.Memory.Guest == nil || !d.Memory.Guest.Equal(want.Memory) {
		memory := want.Memory
		d.Memory.Guest = &memory
	}
}

// addDisks creates the disks that the virtual machine lacks, and plugs them in.
func (k *Hypervisor) addDisks(ctx context.Context, m *v1alpha1.Machine, want hypervisor.Desired, vm *kubevirtv1.VirtualMachine) error {
	spec := &vm.Spec.Template.Spec
	missing := slices.DeleteFunc(slices.Clone(want.Disks), func(d hypervisor.Disk) bool {
		return slices.ContainsFunc(spec.Volumes, func(v kubevirtv1.Volume) bool { return v.Name == d.Name })
	})
	if len(missing) == 0 {
		return nil
	}
	class, err := k.resolveClasses(ctx, missing)
	if err != nil {
		return err
	}
	for _, d := range missing {
		if err := k.createObject(ctx, m, renderClaim(m, d, class[d.StorageClass], k.local)); err != nil {
			return err
		}
		// Every release that can plug in a disk can do so on a SCSI bus.
		addClaim(spec, d.Name, claimName(m, d.Name), diskTarget(kubevirtv1.DiskBusSCSI), nil)
		spec.Volumes[len(spec.Volumes)-1].PersistentVolumeClaim.Hotpluggable = true
	}
	return nil
}

// growDisks requests more storage for each disk that is smaller than wanted. A larger disk
// stays, and is the UserError shrunk.
func (k *Hypervisor) growDisks(ctx context.Context, m *v1alpha1.Machine, want hypervisor.Desired) (shrunk, err error) {
	claims, err := k.listClaims(ctx, m)
	if err != nil {
		return nil, err
	}
	for _, d := range want.Disks {
		i := slices.IndexFunc(claims, func(c corev1.PersistentVolumeClaim) bool { return c.Name == claimName(m, d.Name) })
		if i < 0 {
			continue
		}
		c := &claims[i]
		has := c.Spec.Resources.Requests[corev1.ResourceStorage]
		switch order := d.Size.Cmp(has); {
		case order < 0:
			shrunk = reconcile.UserError{Reason: "DiskCannotShrink", Message: fmt.Sprintf("disk %s has %s, which would be lost in part: write at least that into spec.disks", d.Name, has.String())}
		case order > 0 && c.Status.Phase == corev1.ClaimBound:
			before := c.DeepCopy()
			c.Spec.Resources.Requests[corev1.ResourceStorage] = d.Size
			_, err := k.guests.Patch(ctx, before, c)
			if message, refused := kube.Refused(err); refused {
				return nil, reconcile.UserError{Reason: "DiskCannotGrow", Message: fmt.Sprintf("disk %s cannot grow: allow it in its StorageClass with allowVolumeExpansion, or write %s again (%s)", d.Name, has.String(), message)}
			}
			if err != nil {
				return nil, err
			}
		}
	}
	return shrunk, nil
}

// annotationRestart on a virtual machine has the UID of the instance that the last restart
// ends, a blank, and the token that requested it.
const annotationRestart = "vitistack.io/restart"

// restart deletes the instance once for each new token, whether it runs or waits for a host;
// the run strategy creates it again. The instance is recorded before, so that a second attempt
// does not end its successor. A token counts as used if there is no instance.
func (k *Hypervisor) restart(ctx context.Context, m *v1alpha1.Machine, vm *kubevirtv1.VirtualMachine, s *hypervisor.State) error {
	token := m.Spec.RestartToken
	if token == m.Status.RestartToken {
		return nil
	}
	vmi := &kubevirtv1.VirtualMachineInstance{}
	err := k.guests.Get(ctx, m.Namespace, m.Name, vmi)
	if kube.NotFound(err) {
		if s.Phase != v1alpha1.MachineRunning {
			s.RestartToken = token
		}
		return nil
	}
	if err != nil {
		return err
	}
	uid, begun, _ := strings.Cut(vm.Annotations[annotationRestart], " ")
	if begun != token {
		before := vm.DeepCopy()
		uid = string(vmi.UID)
		metav1.SetMetaDataAnnotation(&vm.ObjectMeta, annotationRestart, uid+" "+token)
		if _, err := k.guests.Patch(ctx, before, vm); err != nil {
			return err
		}
	}
	if string(vmi.UID) == uid {
		if err := k.guests.Delete(ctx, vmi); err != nil {
			return err
		}
	}
	s.RestartToken = token
	return nil
}

// replaceUnscheduled deletes an instance that no host has taken if the virtual machine has
// another size now. KubeVirt changes instances that run, and creates new ones from the
// template, but does not change those that wait for a host.
func (k *Hypervisor) replaceUnscheduled(ctx context.Context, vm *kubevirtv1.VirtualMachine) error {
	if vm.Status.PrintableStatus != kubevirtv1.VirtualMachineStatusUnschedulable || vm.Spec.Template == nil {
		return nil
	}
	vmi := &kubevirtv1.VirtualMachineInstance{}
	err := k.guests.Get(ctx, vm.Namespace, vm.Name, vmi)
	if kube.NotFound(err) {
		return nil
	}
	if err != nil || !isUnscheduled(vmi) || sameSize(vm.Spec.Template.Spec.Domain, vmi.Spec.Domain) {
		return err
	}
	return k.guests.Delete(ctx, vmi)
}

// isUnscheduled reports whether an instance has never been on a host.
func isUnscheduled(vmi *kubevirtv1.VirtualMachineInstance) bool {
	return vmi.DeletionTimestamp == nil && vmi.Status.NodeName == "" &&
		slices.Contains([]kubevirtv1.VirtualMachineInstancePhase{kubevirtv1.VmPhaseUnset, kubevirtv1.Pending, kubevirtv1.Scheduling}, vmi.Status.Phase)
}

// sameSize reports whether two domains have the same processors and memory.
func sameSize(a, b kubevirtv1.DomainSpec) bool {
	if a.CPU == nil || b.CPU == nil || a.Memory == nil || b.Memory == nil || a.Memory.Guest == nil || b.Memory.Guest == nil {
		return true // nothing that was rendered here
	}
	return a.CPU.Cores == b.CPU.Cores && a.CPU.Sockets == b.CPU.Sockets && a.CPU.Threads == b.CPU.Threads && a.Memory.Guest.Equal(*b.Memory.Guest)
}
