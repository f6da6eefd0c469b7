package main

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	"k8s.io/apimachinery/pkg/api/equality"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/vitistack/stack/apis/machine/plan"
	"github.com/vitistack/stack/apis/v1alpha1"
	"github.com/vitistack/stack/functions/create-vm/hypervisor"
	"github.com/vitistack/stack/functions/internal/kube"
	"github.com/vitistack/stack/functions/internal/reconcile"
)

// requeueError returns an error that has the Broker redeliver the event while the hypervisor
// works on a task, whose end causes no event. A status that was just written causes an event
// itself.
func requeueError(m *v1alpha1.Machine, wrote bool) error {
	if wrote || m.Status.Task == nil {
		return nil
	}
	return fmt.Errorf("reconcile machine %s/%s: its hypervisor still works on task %s", m.Namespace, m.Name, m.Status.Task.Action)
}

// patchStatus writes the status if it differs, and records an Event if the phase has changed
// or a user has to act. It reports whether it wrote the status.
func (f *function) patchStatus(ctx context.Context, before, m *v1alpha1.Machine, o reconcile.Outcome) (bool, error) {
	setLastUpdated(before, m, f.now())
	o.Changed = o.Changed && (o.Warning || m.Status.Phase != before.Status.Phase)
	return reconcile.PatchStatus(ctx, f.kube, before, m, string(m.Status.Phase), o)
}

// attempt is the result of an attempt to create, change or observe a machine: its interfaces,
// and the state of its virtual machine if there is one.
type attempt struct {
	nics []hypervisor.NIC
	vm   *hypervisor.State
	err  error
	// previousTask is the task that was recorded before the attempt.
	previousTask *v1alpha1.ProviderTask
	// ended is when the attempt ended.
	ended time.Time
	// resolved is the size that was wanted of the virtual machine, if it was looked up.
	resolved *plan.Resolution
	// kind is the type of the hypervisor, if it is known.
	kind v1alpha1.ProviderType
}

// setStatus writes the state of a machine into its status:
//
//	err                   vm                phase                       Ready
//	UserError, WaitError  none              Pending, or before          False  its reason
//	UserError             exists            the virtual machine's       False  its reason
//	other                 none              Pending, or before          False  ProviderUnavailable
//	nil                   off, as wanted    Stopped                     True   Stopped
//	nil                   without template  the virtual machine's       False  TemplateNotFound
//	nil                   with a reason     the virtual machine's       False  its reason
//	nil                   without a reason  the virtual machine's       True   MachineRunning
//
// "Pending, or before" keeps the phase of a machine that exists, because a present problem
// does not undo it. A machine whose hypervisor sends no events gets a next check that is always
// past, so that every resync includes it without a write. After a failure that
// another attempt may resolve, the next check is the end of the back-off.
func setStatus(m *v1alpha1.Machine, a attempt) reconcile.Outcome {
	s := &m.Status
	if s.Phase == "" || s.Phase == v1alpha1.MachineFailed {
		s.Phase = v1alpha1.MachinePending
	}
	setObservedGeneration(m, a)
	setNetworkStatus(m, a)
	if a.vm == nil {
		return setProblem(m, a)
	}
	vm := a.vm
	s.Phase, s.ProviderID, s.VMName, s.VMIName = vm.Phase, vm.ProviderID, vm.VMName, vm.VMIName
	s.RestartToken, s.Task = vm.RestartToken, vm.Task
	s.NodeName = vm.NodeName
	s.NextCheckTime = nil
	if vm.Polled {
		s.NextCheckTime = &m.CreationTimestamp
	}
	switch {
	case vm.Retried || isRepeated(a.previousTask, vm.Task):
		recordFailure(m, a.ended)
	case vm.Task == nil:
		s.Failures = 0
	}
	switch {
	case vm.Failed:
		setCondition(m, v1alpha1.ConditionVirtualMachineReady, false, "VMFailed", vm.Message)
	case vm.VMName != "":
		setCondition(m, v1alpha1.ConditionVirtualMachineReady, true, "VMCreated", "virtual machine "+vm.VMName+" exists")
	}
	setMachineConfigRemoved(m, vm.Handover)
	if vm.RestartRequired == "" {
		meta.RemoveStatusCondition(&s.Conditions, v1alpha1.ConditionRestartRequired)
	} else {
		setCondition(m, v1alpha1.ConditionRestartRequired, true, "SpecChanged", vm.RestartRequired)
	}
	if vm.StoragePending == "" {
		setCondition(m, v1alpha1.ConditionStorageReady, true, "PVCBound", "every disk has its volume")
	} else {
		setCondition(m, v1alpha1.ConditionStorageReady, false, "PVCPending", vm.StoragePending)
	}
	if problem, ok := asUserError(a.err); ok { // status.template stays that of a size which was applied in full
		return setUserError(m, problem)
	}
	if r := a.resolved; r != nil && vm.VMName != "" {
		s.Template = r.Template
	}
	if reason, message := missingTemplate(a); reason != "" {
		return setReady(m, false, reason, message)
	}
	if vm.Reason != "" {
		return setReady(m, vm.Reason == hypervisor.ReasonStopped, vm.Reason, vm.Message)
	}
	return setReady(m, true, "MachineRunning", "the machine is running")
}

// setObservedGeneration writes that the spec was applied, unless a part of it waits for the virtual machine: then the next event applies that.
func setObservedGeneration(m *v1alpha1.Machine, a attempt) {
	if a.vm == nil || !a.vm.Incomplete {
		m.Status.ObservedGeneration = m.Generation
	}
}

// missingTemplate returns the reason and the message of a machine that keeps its size, because its spec names no
// size that exists. They are empty while the virtual machine has a reason of its own not to be Ready.
func missingTemplate(a attempt) (reason, message string) {
	if a.resolved == nil || a.resolved.Missing == nil || (a.vm.Reason != "" && a.vm.Reason != hypervisor.ReasonStopped) {
		return "", ""
	}
	return a.resolved.Missing.Reason, fmt.Sprintf("%s. Until then the machine keeps the size of %s", a.resolved.Missing.Message, a.resolved.Template.Name)
}

// setProblem writes what a machine waits for, or what a user has to change.
func setProblem(m *v1alpha1.Machine, a attempt) reconcile.Outcome {
	if reconcile.Retried(a.err) {
		recordFailure(m, a.ended)
	} else {
		m.Status.Failures, m.Status.NextCheckTime = 0, nil
	}
	if problem, ok := asUserError(a.err); ok {
		return setUserError(m, problem)
	}
	reason, message := reasonOf(a.err)
	return setReady(m, false, reason, message)
}

// setUserError writes what a user has to change.
func setUserError(m *v1alpha1.Machine, problem reconcile.UserError) reconcile.Outcome {
	if strings.HasSuffix(problem.Reason, "ApiError") {
		setCondition(m, v1alpha1.ConditionVirtualMachineReady, false, "VMFailed", problem.Message)
	}
	if problem.Reason == "StorageClassNotFound" {
		setCondition(m, v1alpha1.ConditionStorageReady, false, "PVCPending", problem.Message)
	}
	outcome := setReady(m, false, problem.Reason, problem.Message)
	outcome.Warning = true
	return outcome
}

// reasonOf returns the reason and the message of the condition Ready after an error.
func reasonOf(err error) (reason, message string) {
	var w reconcile.WaitError
	if errors.As(err, &w) {
		return w.Reason, w.Message
	}
	if problem, ok := asUserError(err); ok {
		return problem.Reason, problem.Message
	}
	return "ProviderUnavailable", "the request failed and is retried: " + stableMessage(err)
}

// reasonWaitingForAddress is the reason of a Machine whose interfaces wait for addresses.
const reasonWaitingForAddress = "WaitingForAddress"

// networkReasons are the reasons of UserErrors about the networks of a machine.
var networkReasons = []string{"NetworkFailed", "NetworkConfigurationNotFound", "NetworkNamespaceNotFound", "NetworkNamespaceAmbiguous", "NoNetworkNamespace"}

// setNetworkStatus writes the interfaces that layer 2 configured. It compares their addresses
// with the addresses that the guest reports.
func setNetworkStatus(m *v1alpha1.Machine, a attempt) {
	if problem, ok := asUserError(a.err); ok && slices.Contains(networkReasons, problem.Reason) {
		setCondition(m, v1alpha1.ConditionNetworkReady, false, "NetworkFailed", problem.Message)
		return
	}
	if w := (reconcile.WaitError{}); errors.As(a.err, &w) && w.Reason == reasonWaitingForAddress && len(m.Status.IPAddresses) == 0 {
		setCondition(m, v1alpha1.ConditionNetworkReady, false, w.Reason, w.Message)
		return
	}
	if len(a.nics) > 0 {
		m.Status.IPAddresses = nil
		for _, n := range a.nics {
			for _, a := range n.Addresses {
				m.Status.IPAddresses = append(m.Status.IPAddresses, a.Addr().String())
			}
		}
	}
	if len(m.Status.IPAddresses) == 0 {
		return
	}
	if other := missingAddresses(m.Status.IPAddresses, a.vm); other != "" {
		setCondition(m, v1alpha1.ConditionNetworkReady, false, "AddressMismatch", other)
		return
	}
	setCondition(m, v1alpha1.ConditionNetworkReady, true, "NetworkConfigured", "every interface has its addresses")
}

// missingAddresses says which of the given addresses the guest does not have, and is empty if
// it has all. A guest without an agent reports nothing, so nothing is missing.
func missingAddresses(given []string, vm *hypervisor.State) string {
	if vm == nil || len(vm.GuestAddresses) == 0 {
		return ""
	}
	var missing []string
	for _, a := range given {
		if !slices.Contains(vm.GuestAddresses, a) {
			missing = append(missing, a)
		}
	}
	if len(missing) == 0 {
		return ""
	}
	return fmt.Sprintf("the guest does not have %s, but %s: check its network configuration", strings.Join(missing, ", "), strings.Join(vm.GuestAddresses, ", "))
}

// setCondition writes a condition of a Machine.
func setCondition(m *v1alpha1.Machine, conditionType string, isTrue bool, reason, message string) {
	kube.SetCondition(&m.Status.Conditions, m.Generation, conditionType, isTrue, reason, message)
}

// setReady writes the condition Ready of a Machine.
func setReady(m *v1alpha1.Machine, ready bool, reason, message string) reconcile.Outcome {
	return reconcile.SetReady(&m.Status.Conditions, m.Generation, ready, reason, message)
}

// setLastUpdated dates a status that differs from before.
func setLastUpdated(before, m *v1alpha1.Machine, now time.Time) {
	if equality.Semantic.DeepEqual(before.Status, m.Status) {
		return
	}
	m.Status.LastUpdated = &metav1.Time{Time: now.Truncate(time.Second)}
	m.Status.ResourceVersion = before.ResourceVersion
}

// setMachineConfigRemoved writes what a hypervisor has done with the machine configuration of
// a node.
func setMachineConfigRemoved(m *v1alpha1.Machine, done hypervisor.Handover) {
	switch done {
	case hypervisor.HandoverProvide:
		setCondition(m, v1alpha1.ConditionMachineConfigRemoved, false, "Held", v1alpha1.MachineConfigHeldMessage(m.Annotations[v1alpha1.AnnotationMachineConfig]))
	case hypervisor.HandoverRemove:
		setCondition(m, v1alpha1.ConditionMachineConfigRemoved, true, "Removed", "the node has its machine configuration, and the hypervisor does not have it any more")
	case hypervisor.HandoverNone:
	}
}
