package kubevirt

import (
	"context"
	"fmt"
	"slices"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/equality"
	"k8s.io/apimachinery/pkg/api/resource"
	kubevirtv1 "kubevirt.io/api/core/v1"

	"github.com/vitistack/stack/apis/v1alpha1"
	"github.com/vitistack/stack/functions/create-vm/hypervisor"
	"github.com/vitistack/stack/functions/internal/kube"
	"github.com/vitistack/stack/functions/internal/reconcile"
)

// update changes an existing virtual machine to the desired state, in one patch, after its disks.
// KubeVirt applies what it can while the machine runs, and reports that the rest
// waits for a restart. It returns the disks as it has left them. refused is the UserError of a disk that
// cannot become as requested. All other changes are applied. If the spec of the Machine has been changed since it was read, update
// changes nothing and returns an error for which kube.Conflict is true: another delivery may have applied the changed spec.
func (k *Hypervisor) update(ctx context.Context, m *v1alpha1.Machine, want hypervisor.Desired, vm *kubevirtv1.VirtualMachine) (claims []corev1.PersistentVolumeClaim, refused, err error) {
	if vm.DeletionTimestamp != nil || vm.Spec.Template == nil {
		return nil, nil, nil
	}
	if isStarting(m, vm) {
		if err := k.attachments().ensure(ctx, m, want, vm.Spec.Template.Spec.Networks); err != nil {
			return nil, nil, err
		}
	}
	before := vm.DeepCopy()
	if strategy := runStrategy(m.Spec.PowerState); vm.Spec.RunStrategy == nil || *vm.Spec.RunStrategy != strategy {
		vm.Spec.Running, vm.Spec.RunStrategy = nil, &strategy
	}
	setSize(&vm.Spec.Template.Spec.Domain, want)
	removeCarriedLabel(m, want, vm)
	if claims, err = k.objects().listClaims(ctx, m); err != nil {
		return nil, nil, err
	}
	larger, _ := planGrowth(vm.Spec.Template.Spec.Volumes, want.Disks, claims)
	if len(larger) > 0 || len(missingDisks(want, vm)) > 0 || !equality.Semantic.DeepEqual(before.Spec, vm.Spec) {
		if err := k.home.CheckSpecCurrent(ctx, m); err != nil { // after all objects were read: Patch notices a later write
			return nil, nil, err
		}
	}
	if claims, refused, err = k.updateDisks(ctx, m, want, vm, claims); err != nil {
		return nil, nil, err
	}
	if _, err := k.guests.Patch(ctx, before, vm); err != nil {
		return nil, nil, err
	}
	return claims, refused, k.replaceUnscheduled(ctx, vm)
}

// updateDisks adds and grows the disks of a virtual machine, which has claims, as far as possible, and returns them. refused is the
// first UserError.
func (k *Hypervisor) updateDisks(ctx context.Context, m *v1alpha1.Machine, want hypervisor.Desired, vm *kubevirtv1.VirtualMachine, claims []corev1.PersistentVolumeClaim) (all []corev1.PersistentVolumeClaim, refused, err error) {
	added, addErr := k.addDisks(ctx, m, want, vm)
	larger, shrunk := planGrowth(vm.Spec.Template.Spec.Volumes, want.Disks, claims)
	for _, problem := range []error{addErr, k.growDisks(ctx, larger), shrunk} {
		problem = k.toUserError(problem)
		if _, isUserError := reconcile.AsUserError(problem); problem != nil && !isUserError {
			return nil, nil, problem
		}
		if refused == nil {
			refused = problem
		}
	}
	return append(claims, added...), refused, nil
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

// missingDisks returns the disks that a virtual machine lacks.
func missingDisks(want hypervisor.Desired, vm *kubevirtv1.VirtualMachine) []hypervisor.Disk {
	return slices.DeleteFunc(slices.Clone(want.Disks), func(d hypervisor.Disk) bool {
		return slices.ContainsFunc(vm.Spec.Template.Spec.Volumes, func(v kubevirtv1.Volume) bool { return v.Name == d.Name })
	})
}

// addDisks creates the disks that the virtual machine lacks, and plugs them in. It returns the new disks.
func (k *Hypervisor) addDisks(ctx context.Context, m *v1alpha1.Machine, want hypervisor.Desired, vm *kubevirtv1.VirtualMachine) (added []corev1.PersistentVolumeClaim, err error) {
	spec, missing := &vm.Spec.Template.Spec, missingDisks(want, vm)
	if len(missing) == 0 {
		return nil, nil
	}
	class, err := k.resolveClasses(ctx, missing)
	if err != nil {
		return nil, err
	}
	for _, d := range missing {
		claim := renderClaim(m, d, class[d.StorageClass], k.local)
		created, err := k.objects().create(ctx, m, claim)
		if err != nil {
			return added, err
		}
		// Every release that can plug in a disk can do so on a SCSI bus.
		source := claimSource(claim.Name)
		source.PersistentVolumeClaim.Hotpluggable = true
		addDisk(spec, d.Name, source, diskTarget(kubevirtv1.DiskBusSCSI), nil)
		if created { // otherwise it was listed
			added = append(added, *claim)
		}
	}
	return added, nil
}

// growth is a PersistentVolumeClaim that has to become larger.
type growth struct {
	disk  string
	claim *corev1.PersistentVolumeClaim
	size  resource.Quantity
}

// planGrowth returns the claims of disks that are smaller than wanted. A claim grows once it is
// bound. shrunk is the UserError of a disk that is larger than wanted, which keeps its size. volumes are those of the
// virtual machine, because a restored disk has another claim than the stack gave it.
func planGrowth(volumes []kubevirtv1.Volume, want []hypervisor.Disk, claims []corev1.PersistentVolumeClaim) (larger []growth, shrunk error) {
	for _, d := range want {
		v := slices.IndexFunc(volumes, func(v kubevirtv1.Volume) bool { return v.Name == d.Name })
		if v < 0 {
			continue
		}
		i := slices.IndexFunc(claims, func(c corev1.PersistentVolumeClaim) bool { return c.Name == claimOf(volumes[v]) })
		if i < 0 {
			continue
		}
		has := claims[i].Spec.Resources.Requests[corev1.ResourceStorage]
		switch order := d.Size.Cmp(has); {
		case order < 0:
			shrunk = reconcile.UserError{Reason: "DiskCannotShrink", Message: fmt.Sprintf("disk %s has %s, which would be lost in part: write at least that into spec.disks", d.Name, has.String())}
		case order > 0 && claims[i].Status.Phase == corev1.ClaimBound:
			larger = append(larger, growth{d.Name, &claims[i], d.Size})
		}
	}
	return larger, shrunk
}

// waitsToGrow reports whether a disk of a virtual machine is smaller than wanted and has no volume yet. It grows once it has one, because the API server refuses
// the change of a claim that is not bound. CDI creates the claim of a disk with an image later, with the size in the template.
func waitsToGrow(vm *kubevirtv1.VirtualMachine, want []hypervisor.Disk, claims []corev1.PersistentVolumeClaim) bool {
	if vm.Spec.Template == nil {
		return false
	}
	requested := map[string]resource.Quantity{}
	for _, t := range vm.Spec.DataVolumeTemplates {
		if t.Spec.PVC != nil {
			requested[t.Name] = t.Spec.PVC.Resources.Requests[corev1.ResourceStorage]
		}
	}
	for _, c := range claims {
		delete(requested, c.Name)
		if c.Status.Phase != corev1.ClaimBound {
			requested[c.Name] = c.Spec.Resources.Requests[corev1.ResourceStorage]
		}
	}
	return slices.ContainsFunc(want, func(d hypervisor.Disk) bool {
		v := slices.IndexFunc(vm.Spec.Template.Spec.Volumes, func(v kubevirtv1.Volume) bool { return v.Name == d.Name })
		if v < 0 {
			return false
		}
		has, unbound := requested[claimOf(vm.Spec.Template.Spec.Volumes[v])]
		return unbound && d.Size.Cmp(has) > 0
	})
}

// growDisks requests more storage for claims, and changes them accordingly. Afterwards it returns a UserError for one
// whose StorageClass does not allow that.
func (k *Hypervisor) growDisks(ctx context.Context, larger []growth) (refused error) {
	for _, g := range larger {
		after := g.claim.DeepCopy()
		after.Spec.Resources.Requests[corev1.ResourceStorage] = g.size
		_, err := k.guests.Patch(ctx, g.claim, after)
		if message, isRefused := kube.RejectionMessage(err); isRefused {
			has := g.claim.Spec.Resources.Requests[corev1.ResourceStorage]
			refused = reconcile.UserError{Reason: "DiskCannotGrow", Message: fmt.Sprintf("disk %s cannot grow: allow it in its StorageClass with allowVolumeExpansion, or write %s again (%s)", g.disk, has.String(), message)}
			continue
		}
		if err != nil {
			return err
		}
		*g.claim = *after
	}
	return refused
}
