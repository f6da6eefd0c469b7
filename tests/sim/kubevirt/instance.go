package kubevirt

import (
	"fmt"
	"slices"
	"strconv"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	virtv1 "kubevirt.io/api/core/v1"

	"github.com/vitistack/stack/tests/sim/kubevirt/admission"
)

// observedVersion is the annotation value with which KubeVirt marks objects that its newest
// controllers have seen.
const observedVersion = "v1"

// newInstance returns the instance that starts a machine, as virt-controller creates it and virt-api
// completes it.
func newInstance(vm *virtv1.VirtualMachine, now time.Time) *virtv1.VirtualMachineInstance {
	template := vm.Spec.Template.DeepCopy()
	vmi := &virtv1.VirtualMachineInstance{ObjectMeta: template.ObjectMeta, Spec: template.Spec}
	vmi.Name, vmi.GenerateName, vmi.Namespace = vm.Name, "", vm.Namespace
	vmi.OwnerReferences = []metav1.OwnerReference{*metav1.NewControllerRef(vm, virtv1.VirtualMachineGroupVersionKind)}
	vmi.Finalizers = []string{virtv1.VirtualMachineControllerFinalizer, virtv1.VirtualMachineInstanceFinalizer}
	if vmi.Annotations == nil {
		vmi.Annotations = map[string]string{}
	}
	vmi.Annotations[virtv1.ControllerAPILatestVersionObservedAnnotation] = observedVersion
	vmi.Annotations[virtv1.ControllerAPIStorageVersionObservedAnnotation] = observedVersion
	vmi.Annotations[virtv1.VirtualMachineGenerationAnnotation] = strconv.FormatInt(vm.Generation, 10)
	if agent, ok := vm.Annotations[AgentAnnotation]; ok {
		vmi.Annotations[AgentAnnotation] = agent
	}
	admission.DefaultInstance(vmi)
	enterPending(vmi, metav1.NewTime(now))
	return vmi
}

// enterPending begins the life of an instance, which has no pod yet.
func enterPending(vmi *virtv1.VirtualMachineInstance, now metav1.Time) {
	enterPhase(vmi, virtv1.Pending, now)
	setCondition(vmi, notReady(virtv1.PodNotExistsReason, messageNoPod), now)
}

// startedGeneration returns the generation of the machine that the instance was created from.
func startedGeneration(vmi *virtv1.VirtualMachineInstance, otherwise int64) int64 {
	n, err := strconv.ParseInt(vmi.Annotations[virtv1.VirtualMachineGenerationAnnotation], 10, 64)
	if err != nil {
		return otherwise
	}
	return n
}

// enterPhase sets a phase with its time, unless the instance has it already.
func enterPhase(vmi *virtv1.VirtualMachineInstance, phase virtv1.VirtualMachineInstancePhase, now metav1.Time) {
	if vmi.Status.Phase == phase {
		return
	}
	vmi.Status.Phase = phase
	vmi.Status.PhaseTransitionTimestamps = append(vmi.Status.PhaseTransitionTimestamps,
		virtv1.VirtualMachineInstancePhaseTransitionTimestamp{Phase: phase, PhaseTransitionTimestamp: now})
}

// obstacle is why an instance cannot continue, as its conditions report it.
type obstacle struct {
	reason, message string
	// unschedulable also marks the pod as unschedulable.
	unschedulable bool
	// quiet keeps the instance's conditions unchanged.
	quiet bool
}

// block writes an obstacle into the conditions.
func block(vmi *virtv1.VirtualMachineInstance, o obstacle, now metav1.Time) {
	if o.quiet {
		return
	}
	if o.unschedulable {
		setCondition(vmi, virtv1.VirtualMachineInstanceCondition{
			Type: podScheduled, Status: corev1.ConditionFalse, Reason: corev1.PodReasonUnschedulable, Message: o.message,
		}, now)
	}
	if o.reason == corev1.PodReasonUnschedulable { // there is a pod, but no node for it
		enterPhase(vmi, virtv1.Scheduling, now)
		setCondition(vmi, notReady(virtv1.GuestNotRunningReason, messageNotRunning), now)
		return
	}
	setCondition(vmi, virtv1.VirtualMachineInstanceCondition{
		Type: virtv1.VirtualMachineInstanceSynchronized, Status: corev1.ConditionFalse, Reason: o.reason, Message: o.message,
	}, now)
}

// unblock removes what block wrote.
func unblock(vmi *virtv1.VirtualMachineInstance) {
	dropCondition(vmi, podScheduled)
	dropCondition(vmi, virtv1.VirtualMachineInstanceSynchronized)
}

// bind assigns an instance's pod to a node. It may not have started there yet.
func bind(vmi *virtv1.VirtualMachineInstance, node string, now metav1.Time) {
	unblock(vmi)
	enterPhase(vmi, virtv1.Scheduling, now)
	vmi.Status.ActivePods = map[podUID]string{podOf(vmi): node}
	vmi.Status.LauncherContainerImageVersion = "quay.io/kubevirt/virt-launcher:" + version
	vmi.Status.QOSClass = new(corev1.PodQOSBurstable)
	setCondition(vmi, notReady(virtv1.GuestNotRunningReason, messageNotRunning), now)
}

// handOver transfers an instance whose pod has started to the node's virt-handler.
func handOver(vmi *virtv1.VirtualMachineInstance, now metav1.Time) {
	enterPhase(vmi, virtv1.Scheduled, now)
	vmi.Status.NodeName = nodeOf(vmi)
	vmi.Status.MigrationTransport = virtv1.MigrationTransportUnix
	if vmi.Labels == nil {
		vmi.Labels = map[string]string{}
	}
	vmi.Labels[virtv1.NodeNameLabel] = vmi.Status.NodeName
}

// nodeOf returns the node that an instance's pod is bound to, or an empty string.
func nodeOf(vmi *virtv1.VirtualMachineInstance) string {
	if vmi.Status.NodeName != "" {
		return vmi.Status.NodeName
	}
	return vmi.Status.ActivePods[podOf(vmi)]
}

// fail ends an instance whose process crashed.
func fail(vmi *virtv1.VirtualMachineInstance, now metav1.Time) {
	enterPhase(vmi, virtv1.Failed, now)
	setCondition(vmi, notReady(virtv1.PodTerminatingReason, messageStopping), now)
	dropCondition(vmi, virtv1.VirtualMachineInstanceAgentConnected)
	dropCondition(vmi, virtv1.VirtualMachineInstancePaused)
	vmi.Status.ActivePods = nil
}

// release removes the finalizers of a stopped instance.
func release(vmi *virtv1.VirtualMachineInstance, now metav1.Time) {
	if !vmi.IsFinal() {
		enterPhase(vmi, virtv1.Succeeded, now)
	}
	vmi.Finalizers = slices.DeleteFunc(vmi.Finalizers, func(f string) bool {
		return f == virtv1.VirtualMachineControllerFinalizer || f == virtv1.VirtualMachineInstanceFinalizer
	})
}

// guestID returns the ID of a guest for Guests. It is the same after a restart of the machine.
func guestID(vmi *virtv1.VirtualMachineInstance) string {
	if f := vmi.Spec.Domain.Firmware; f != nil && f.UUID != "" {
		return string(f.UUID)
	}
	return string(vmi.UID)
}

// machineID returns the guestID of a machine's instances, or an empty string if they differ.
func machineID(vm *virtv1.VirtualMachine) string {
	if f := vm.Spec.Template.Spec.Domain.Firmware; f != nil {
		return string(f.UUID)
	}
	return ""
}

// launcher returns the name of the pod of an instance.
func launcher(vmi *virtv1.VirtualMachineInstance) string {
	uid := string(podOf(vmi))
	return fmt.Sprintf("virt-launcher-%s-%s", vmi.Name, uid[:5])
}
