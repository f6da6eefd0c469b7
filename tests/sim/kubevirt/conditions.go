package kubevirt

import (
	"slices"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	virtv1 "kubevirt.io/api/core/v1"
)

// Reasons in KubeVirt's conditions that its API module has no constants for.
const (
	reasonPVCNotFound  = "FailedPvcNotFound"
	reasonFailedCreate = "FailedCreate"
	reasonFailedDelete = "FailedDelete"
	reasonDomainSync   = "Synchronizing with the Domain failed."

	podScheduled = virtv1.VirtualMachineInstanceConditionType(corev1.PodScheduled)
)

// Messages of the Ready condition of an instance.
const (
	messageNoPod      = "virt-launcher pod has not yet been scheduled"
	messageNotRunning = "Guest VM is not reported as running"
	messageStopping   = "virt-launcher pod is terminating"
)

// setCondition sets the condition of c's type. An equal condition keeps its times.
func setCondition(vmi *virtv1.VirtualMachineInstance, c virtv1.VirtualMachineInstanceCondition, now metav1.Time) {
	for i, old := range vmi.Status.Conditions {
		if old.Type != c.Type {
			continue
		}
		if old.Status == c.Status && old.Reason == c.Reason && old.Message == c.Message {
			return
		}
		c.LastTransitionTime = now
		if old.Status == c.Status {
			c.LastTransitionTime = old.LastTransitionTime
		}
		vmi.Status.Conditions[i] = c
		return
	}
	c.LastTransitionTime = now
	vmi.Status.Conditions = append(vmi.Status.Conditions, c)
}

func dropCondition(vmi *virtv1.VirtualMachineInstance, t virtv1.VirtualMachineInstanceConditionType) {
	vmi.Status.Conditions = slices.DeleteFunc(vmi.Status.Conditions, func(c virtv1.VirtualMachineInstanceCondition) bool {
		return c.Type == t
	})
}

// condition returns the instance's condition of a type, or nil. vmi may be nil.
func condition(vmi *virtv1.VirtualMachineInstance, t virtv1.VirtualMachineInstanceConditionType) *virtv1.VirtualMachineInstanceCondition {
	if vmi == nil {
		return nil
	}
	for i := range vmi.Status.Conditions {
		if vmi.Status.Conditions[i].Type == t {
			return &vmi.Status.Conditions[i]
		}
	}
	return nil
}

// hasFalse reports whether a condition has status False and a reason.
func hasFalse(vmi *virtv1.VirtualMachineInstance, t virtv1.VirtualMachineInstanceConditionType, reason string) bool {
	c := condition(vmi, t)
	return c != nil && c.Status == corev1.ConditionFalse && c.Reason == reason
}

func isPaused(vmi *virtv1.VirtualMachineInstance) bool {
	c := condition(vmi, virtv1.VirtualMachineInstancePaused)
	return c != nil && c.Status == corev1.ConditionTrue
}

func isReady(vmi *virtv1.VirtualMachineInstance) bool {
	c := condition(vmi, virtv1.VirtualMachineInstanceReady)
	return c != nil && c.Status == corev1.ConditionTrue
}

func notReady(reason, message string) virtv1.VirtualMachineInstanceCondition {
	return virtv1.VirtualMachineInstanceCondition{
		Type: virtv1.VirtualMachineInstanceReady, Status: corev1.ConditionFalse, Reason: reason, Message: message,
	}
}

// setMachineCondition is setCondition for a machine.
func setMachineCondition(status *virtv1.VirtualMachineStatus, c virtv1.VirtualMachineCondition, now metav1.Time) {
	for i, old := range status.Conditions {
		if old.Type != c.Type {
			continue
		}
		if old.Status == c.Status && old.Reason == c.Reason && old.Message == c.Message {
			return
		}
		c.LastTransitionTime = now
		if old.Status == c.Status {
			c.LastTransitionTime = old.LastTransitionTime
		}
		status.Conditions[i] = c
		return
	}
	c.LastTransitionTime = now
	status.Conditions = append(status.Conditions, c)
}

func dropMachineCondition(status *virtv1.VirtualMachineStatus, t virtv1.VirtualMachineConditionType) {
	status.Conditions = slices.DeleteFunc(status.Conditions, func(c virtv1.VirtualMachineCondition) bool { return c.Type == t })
}
