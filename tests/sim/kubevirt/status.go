package kubevirt

import (
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/equality"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	virtv1 "kubevirt.io/api/core/v1"
	cdiv1 "kubevirt.io/containerized-data-importer-api/pkg/apis/core/v1beta1"
)

// machineView is the input of a machine's status.
type machineView struct {
	vm       *virtv1.VirtualMachine
	vmi      *virtv1.VirtualMachineInstance // nil when there is none
	strategy virtv1.VirtualMachineRunStrategy
	storage  storageView
	failure  *syncFailure // why the last step failed, or nil
	restart  string       // why the machine must be restarted, or empty
	backoff  time.Duration
}

// syncFailure is what the Failure condition of a machine says.
type syncFailure struct{ reason, message string }

// machineStatus returns the status of a machine.
func machineStatus(v machineView, now time.Time) virtv1.VirtualMachineStatus {
	vm := v.vm.DeepCopy()
	status := &vm.Status
	if requestDone(vm, v.vmi) {
		status.StateChangeRequests = status.StateChangeRequests[1:]
	}
	status.Created = v.vmi != nil
	status.Ready = isReady(v.vmi)
	if status.RunStrategy != "" || status.Created {
		status.RunStrategy = v.strategy
	}
	status.StartFailure = startFailure(vm, v.vmi, v.strategy, v.backoff, now)
	if v.vmi != nil {
		status.DesiredGeneration = vm.Generation
		status.ObservedGeneration = startedGeneration(v.vmi, vm.Generation)
		if v.restart == "" {
			status.ObservedGeneration = vm.Generation
		}
	}
	mirrorConditions(status, v, metav1.NewTime(now))
	status.PrintableStatus = printable(vm, v)
	return *status
}

// statusDiffers compares two statuses in their encoding, which does not distinguish nil from empty.
func statusDiffers(a, b virtv1.VirtualMachineStatus) bool {
	return !equality.Semantic.DeepEqual(a, b)
}

// mirrorConditions copies the conditions of the instance, and adds the machine's own.
func mirrorConditions(status *virtv1.VirtualMachineStatus, v machineView, now metav1.Time) {
	ready := virtv1.VirtualMachineCondition{
		Type: virtv1.VirtualMachineReady, Status: corev1.ConditionFalse,
		Reason: "VMINotExists", Message: "VMI does not exist",
	}
	if c := condition(v.vmi, virtv1.VirtualMachineInstanceReady); c != nil {
		ready.Status, ready.Reason, ready.Message = c.Status, c.Reason, c.Message
	}
	setMachineCondition(status, ready, now)
	if v.failure == nil {
		dropMachineCondition(status, virtv1.VirtualMachineFailure)
	} else {
		setMachineCondition(status, virtv1.VirtualMachineCondition{
			Type: virtv1.VirtualMachineFailure, Status: corev1.ConditionTrue,
			Reason: v.failure.reason, Message: v.failure.message,
		}, now)
	}
	if v.restart == "" || v.vmi == nil {
		dropMachineCondition(status, virtv1.VirtualMachineRestartRequired)
	} else {
		setMachineCondition(status, virtv1.VirtualMachineCondition{
			Type: virtv1.VirtualMachineRestartRequired, Status: corev1.ConditionTrue, Message: v.restart,
		}, now)
	}
	if v.vmi == nil {
		return
	}
	mirrored := map[virtv1.VirtualMachineConditionType]bool{
		virtv1.VirtualMachineReady: true, virtv1.VirtualMachineFailure: true, virtv1.VirtualMachineRestartRequired: true,
	}
	for _, c := range v.vmi.Status.Conditions {
		t := virtv1.VirtualMachineConditionType(c.Type)
		if mirrored[t] {
			continue
		}
		mirrored[t] = true
		setMachineCondition(status, virtv1.VirtualMachineCondition{
			Type: t, Status: c.Status, Reason: c.Reason, Message: c.Message,
		}, now)
	}
	kept := status.Conditions[:0]
	for _, c := range status.Conditions {
		if mirrored[c.Type] {
			kept = append(kept, c)
		}
	}
	status.Conditions = kept
}

// printable returns the first status that applies, in KubeVirt's order.
func printable(vm *virtv1.VirtualMachine, v machineView) virtv1.VirtualMachinePrintableStatus {
	vmi := v.vmi
	alive := vmi != nil && !vmi.IsFinal()
	switch {
	case vm.DeletionTimestamp != nil:
		return virtv1.VirtualMachineStatusTerminating
	case alive && vmi.DeletionTimestamp != nil:
		return virtv1.VirtualMachineStatusStopping
	case alive && vmi.IsRunning() && isPaused(vmi):
		return virtv1.VirtualMachineStatusPaused
	case alive && vmi.IsRunning():
		return virtv1.VirtualMachineStatusRunning
	case hasFalse(vmi, virtv1.VirtualMachineInstanceSynchronized, reasonPVCNotFound):
		return virtv1.VirtualMachineStatusPvcNotFound
	case v.storage.importFailed():
		return virtv1.VirtualMachineStatusDataVolumeError
	case hasFalse(vmi, podScheduled, corev1.PodReasonUnschedulable):
		return virtv1.VirtualMachineStatusUnschedulable
	case v.storage.importing():
		return virtv1.VirtualMachineStatusProvisioning
	case setToStart(vm, vmi, v.strategy) && v.storage.unbound():
		return virtv1.VirtualMachineStatusWaitingForVolumeBinding
	case alive:
		return virtv1.VirtualMachineStatusStarting
	case vm.Status.StartFailure != nil && vm.Status.StartFailure.ConsecutiveFailCount > 0:
		return virtv1.VirtualMachineStatusCrashLoopBackOff
	}
	return virtv1.VirtualMachineStatusStopped
}

// storageView is the storage in a machine's template.
type storageView struct {
	claims  []*corev1.PersistentVolumeClaim
	imports []*cdiv1.DataVolume
}

// unbound reports whether a claim has no volume yet.
func (s storageView) unbound() bool {
	for _, c := range s.claims {
		if c.Status.Phase != corev1.ClaimBound {
			return true
		}
	}
	return false
}

// importing reports whether a DataVolume is being filled.
func (s storageView) importing() bool {
	for _, dv := range s.imports {
		switch dv.Status.Phase {
		case cdiv1.Succeeded, cdiv1.PendingPopulation:
			continue
		}
		bound := importCondition(dv, cdiv1.DataVolumeBound)
		if (bound != nil && bound.Status == corev1.ConditionTrue) || dv.Status.Phase != cdiv1.WaitForFirstConsumer {
			return true
		}
	}
	return false
}

// importFailed reports whether a DataVolume cannot be filled, temporarily or permanently.
func (s storageView) importFailed() bool {
	for _, dv := range s.imports {
		running := importCondition(dv, cdiv1.DataVolumeRunning)
		if dv.Status.Phase == cdiv1.Failed ||
			(running != nil && running.Status == corev1.ConditionFalse &&
				(running.Reason == reasonImportError || running.Reason == reasonImagePull)) {
			return true
		}
	}
	return false
}

// volumeClaim returns the name of a volume's claim, or an empty string.
func volumeClaim(v virtv1.Volume) string {
	switch {
	case v.PersistentVolumeClaim != nil:
		return v.PersistentVolumeClaim.ClaimName
	case v.DataVolume != nil:
		return v.DataVolume.Name
	case v.Ephemeral != nil && v.Ephemeral.PersistentVolumeClaim != nil:
		return v.Ephemeral.PersistentVolumeClaim.ClaimName
	}
	return ""
}
