package kubevirt

import (
	"context"
	"slices"
	"strings"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	kubevirtv1 "kubevirt.io/api/core/v1"

	"github.com/vitistack/stack/apis/v1alpha1"
	"github.com/vitistack/stack/functions/create-vm/hypervisor"
	"github.com/vitistack/stack/functions/internal/kube"
)

// annotationRestart on a virtual machine has the UID of the instance that the last restart
// ends, a blank, and the token that requested it.
const annotationRestart = "vitistack.io/restart"

// What a new spec.restartToken requires.
const (
	restartWait   = "wait"
	restartRecord = "record"
	restartDelete = "delete"
	restartServed = "served"
)

// decideRestart decides what a new token requires. recorded is the value of annotationRestart,
// instance the UID of the instance or empty, and phase the phase of the Machine:
//
//	instance                     token recorded    step
//	none, and phase Running      any               wait, because KubeVirt is replacing the instance
//	none                         any               served, because the next instance is new
//	exists                       another, or none  record, and then delete
//	exists, and is recorded      this one          delete
//	exists, and is not recorded  this one          served, because it is the successor
func decideRestart(token, recorded, instance string, phase v1alpha1.MachinePhase) string {
	uid, recordedToken, _ := strings.Cut(recorded, " ")
	switch {
	case instance == "" && phase == v1alpha1.MachineRunning:
		return restartWait
	case instance == "":
		return restartServed
	case recordedToken != token:
		return restartRecord
	case uid == instance:
		return restartDelete
	default:
		return restartServed
	}
}

// restart deletes the instance once for each new token, whether it runs or waits for a host. The
// run strategy creates it again. The instance is recorded before, so a second call does not delete
// its successor. A token that the spec does not have any more restarts nothing: restart returns an error for which kube.Conflict is true.
func (k *Hypervisor) restart(ctx context.Context, m *v1alpha1.Machine, vm *kubevirtv1.VirtualMachine, s *hypervisor.State) error {
	token := m.Spec.RestartToken
	if token == m.Status.RestartToken {
		return nil
	}
	vmi := &kubevirtv1.VirtualMachineInstance{}
	if err := k.guests.Get(ctx, m.Namespace, m.Name, vmi); err != nil && !kube.NotFound(err) {
		return err
	}
	step := decideRestart(token, vm.Annotations[annotationRestart], string(vmi.UID), s.Phase)
	if step == restartRecord || step == restartDelete {
		if err := k.home.CheckSpecCurrent(ctx, m); err != nil {
			return err
		}
	}
	if step == restartRecord {
		before := vm.DeepCopy()
		metav1.SetMetaDataAnnotation(&vm.ObjectMeta, annotationRestart, string(vmi.UID)+" "+token)
		if _, err := k.guests.Patch(ctx, before, vm); err != nil {
			return err
		}
	}
	if step == restartRecord || step == restartDelete {
		if err := k.guests.Delete(ctx, vmi); err != nil {
			return err
		}
	}
	if step != restartWait {
		s.RestartToken = token
	}
	return nil
}

// replaceUnscheduled deletes an instance that no host has taken if the virtual machine has
// another size now. KubeVirt changes instances that run, and creates new ones from the
// template, but does not change an instance that waits for a host.
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
