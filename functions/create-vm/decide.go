package main

import (
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	"k8s.io/apimachinery/pkg/api/equality"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/vitistack/stack/apis/v1alpha1"
	"github.com/vitistack/stack/functions/create-vm/hypervisor"
	"github.com/vitistack/stack/functions/internal/kube"
	"github.com/vitistack/stack/functions/internal/reconcile"
)

// progress is the state of a machine after an attempt: its interfaces, and its virtual machine
// if there is one.
type progress struct {
	nics []hypervisor.NIC
	vm   *hypervisor.State
	err  error
	// last is the task that was recorded before the attempt, and now is when the attempt
	// ended.
	last *v1alpha1.ProviderTask
	now  time.Time
	// kind is the type of the hypervisor, if it is known.
	kind v1alpha1.ProviderType
}

// What a delivery does with a Machine.
const (
	actionNone    = "none"
	actionObserve = "observe"
	actionEnsure  = "ensure"
)

// decideAction decides what an event requires, so that a change by the function itself, or one
// that another event will follow, costs one request:
//
//	cause                   machine                           action
//	resync                  any                               ensure
//	Machine                 new spec                          ensure
//	Machine                 with a task at its hypervisor     ensure
//	Machine                 reconcile requested               ensure
//	Machine                 last attempt failed               ensure
//	Machine                 machine configuration to move     ensure
//	Machine                 otherwise                         none
//	NetworkConfiguration    without a virtual machine         ensure
//	NetworkConfiguration    with one                          none
//	NetworkNamespace        as for a NetworkConfiguration
//	VirtualMachine          with one                          observe
//	VirtualMachine          not in its status                 ensure
//	VirtualMachineInstance  Running                           observe
//	VirtualMachineInstance  otherwise                         none
//	PersistentVolumeClaim   waiting for disks                 observe
//	PersistentVolumeClaim   otherwise                         none
//	one with an action      with one, and a new spec          ensure
//	one with an action      with one, and a failure           ensure
//	one with an action      machine configuration to move     ensure
//	one with an action      whose spec is impossible          ensure
//	any of the last five    on another hypervisor             none
func decideAction(m *v1alpha1.Machine, cause string) string {
	worth := true
	switch cause {
	case causeMachine:
		worth = m.Status.Phase == "" || m.Status.ObservedGeneration != m.Generation || m.Status.Task != nil || kube.AskedFor(m) || hasFailed(m) || nextHandover(m) != hypervisor.HandoverNone
	case causeNetwork, causeNamespace:
		worth = m.Status.VMName == ""
	case causeVM, causeInstance, causeClaim:
		return decideLocalAction(m, cause)
	}
	if worth {
		return actionEnsure
	}
	return actionNone
}

// decideLocalAction is decideAction for events about the virtual machines of this cluster.
func decideLocalAction(m *v1alpha1.Machine, cause string) string {
	made := m.Status.VMName != ""
	if made && m.Status.ProviderID != hypervisor.LocalID(m.Namespace, m.Name) {
		return actionNone
	}
	coming := !made || m.Status.Phase == v1alpha1.MachineCreating // its virtual machine tells when it goes on
	if cause == causeClaim && (coming || meta.IsStatusConditionTrue(m.Status.Conditions, v1alpha1.ConditionStorageReady)) {
		return actionNone
	}
	if cause == causeInstance && (!made || m.Status.Phase != v1alpha1.MachineRunning) {
		return actionNone
	}
	settled := m.Status.ObservedGeneration == m.Generation && m.Status.RestartToken == m.Spec.RestartToken
	if made && settled && !isSpecImpossible(m) && !hasFailed(m) && nextHandover(m) == hypervisor.HandoverNone {
		return actionObserve
	}
	return actionEnsure
}

// isSpecImpossible reports whether a machine runs otherwise than its spec says, because the
// hypervisor cannot do that. Events about its virtual machine do not show it.
func isSpecImpossible(m *v1alpha1.Machine) bool {
	ready := meta.FindStatusCondition(m.Status.Conditions, v1alpha1.ConditionReady)
	return m.Status.Phase == v1alpha1.MachineRunning && ready != nil && ready.Status == metav1.ConditionFalse
}

// setStatus writes the state of a machine into its status:
//
//	err                   vm                phase                       Ready
//	UserError, WaitError  none              Pending, or before          False  its reason
//	other                 any               Pending, or before          False  ProviderUnavailable
//	nil                   with a reason     the virtual machine's       False  its reason
//	nil                   without a reason  the virtual machine's       True   MachineRunning
//
// "Pending, or before" keeps the phase of a machine that exists, because a present problem
// does not undo it. A machine whose hypervisor sends no events gets a next check that is
// always past, so that every resync includes it and none has to write. After a failure that
// another attempt may resolve, the next check is the end of the back-off.
func setStatus(m *v1alpha1.Machine, p progress) reconcile.Outcome {
	s := &m.Status
	if s.Phase == "" || s.Phase == v1alpha1.MachineFailed {
		s.Phase = v1alpha1.MachinePending
	}
	s.ObservedGeneration = m.Generation
	setNetworkStatus(m, p)
	if p.err != nil {
		return setProblem(m, p)
	}
	vm := p.vm
	s.Phase, s.ProviderID, s.VMName, s.VMIName = vm.Phase, vm.ProviderID, vm.VMName, vm.VMIName
	s.RestartToken, s.Task = vm.RestartToken, vm.Task
	s.NodeName = vm.NodeName
	s.NextCheckTime = nil
	if vm.Polled {
		s.NextCheckTime = &m.CreationTimestamp
	}
	switch {
	case vm.Retried || isRepeated(p.last, vm.Task):
		recordFailure(m, p.now)
	case vm.Task == nil:
		s.Failures = 0
	}
	switch {
	case vm.Failed:
		setCondition(m, v1alpha1.ConditionVirtualMachineReady, false, "VMFailed", vm.Message)
	case vm.VMName != "":
		setCondition(m, v1alpha1.ConditionVirtualMachineReady, true, "VMCreated", "virtual machine "+vm.VMName+" is made")
	}
	setMachineConfigRemoved(m, vm.Handover)
	if vm.RestartPending == "" {
		meta.RemoveStatusCondition(&s.Conditions, v1alpha1.ConditionRestartRequired)
	} else {
		setCondition(m, v1alpha1.ConditionRestartRequired, true, "SpecChanged", vm.RestartPending)
	}
	if vm.StoragePending == "" {
		setCondition(m, v1alpha1.ConditionStorageReady, true, "PVCBound", "every disk is there")
	} else {
		setCondition(m, v1alpha1.ConditionStorageReady, false, "PVCPending", vm.StoragePending)
	}
	if vm.Reason != "" {
		return setReady(m, false, vm.Reason, vm.Message)
	}
	return setReady(m, true, "MachineRunning", "the machine is running")
}

// setProblem writes what a machine waits for, or what a user has to change.
func setProblem(m *v1alpha1.Machine, p progress) reconcile.Outcome {
	if isRetried(p.err) {
		recordFailure(m, p.now)
	} else {
		m.Status.Failures, m.Status.NextCheckTime = 0, nil
	}
	reason, message := reasonOf(p.err)
	if f, ok := asUserError(p.err); ok {
		if strings.HasSuffix(f.Reason, "ApiError") {
			setCondition(m, v1alpha1.ConditionVirtualMachineReady, false, "VMFailed", f.Message)
		}
		if f.Reason == "StorageClassNotFound" {
			setCondition(m, v1alpha1.ConditionStorageReady, false, "PVCPending", f.Message)
		}
		told := setReady(m, false, reason, message)
		told.Warning = true
		return told
	}
	return setReady(m, false, reason, message)
}

// reasonOf returns the reason and the message of the condition Ready after an error.
func reasonOf(err error) (reason, message string) {
	var w reconcile.WaitError
	if errors.As(err, &w) {
		return w.Reason, w.Message
	}
	if f, ok := asUserError(err); ok {
		return f.Reason, f.Message
	}
	return "ProviderUnavailable", "the hypervisor does not answer as it should; it is asked again"
}

const reasonWaiting = "WaitingForAddress"

// networkReasons are the reasons of UserErrors about the networks of a machine.
var networkReasons = []string{"NetworkFailed", "NetworkConfigurationNotFound", "NetworkNamespaceNotFound", "NetworkNamespaceAmbiguous", "NoNetworkNamespace"}

// setNetworkStatus writes the interfaces that layer 2 configured. It compares their addresses
// with those that the guest reports.
func setNetworkStatus(m *v1alpha1.Machine, p progress) {
	if f, ok := asUserError(p.err); ok && slices.Contains(networkReasons, f.Reason) {
		setCondition(m, v1alpha1.ConditionNetworkReady, false, "NetworkFailed", f.Message)
		return
	}
	if w := (reconcile.WaitError{}); errors.As(p.err, &w) && w.Reason == reasonWaiting && len(m.Status.IPAddresses) == 0 {
		setCondition(m, v1alpha1.ConditionNetworkReady, false, w.Reason, w.Message)
		return
	}
	if len(p.nics) > 0 {
		m.Status.IPAddresses = nil
		for _, n := range p.nics {
			for _, a := range n.Addresses {
				m.Status.IPAddresses = append(m.Status.IPAddresses, a.Addr().String())
			}
		}
	}
	if len(m.Status.IPAddresses) == 0 {
		return
	}
	if other := missingAddresses(m.Status.IPAddresses, p.vm); other != "" {
		setCondition(m, v1alpha1.ConditionNetworkReady, false, "AddressMismatch", other)
		return
	}
	setCondition(m, v1alpha1.ConditionNetworkReady, true, "NetworkConfigured", "every interface has its addresses")
}

// missingAddresses says which of the given addresses the guest does not have, and is empty if
// it has all. A guest that reports nothing has no agent, and proves nothing.
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

func setCondition(m *v1alpha1.Machine, condition string, ok bool, reason, message string) {
	kube.SetCondition(&m.Status.Conditions, m.Generation, condition, ok, reason, message)
}

func setReady(m *v1alpha1.Machine, ready bool, reason, message string) reconcile.Outcome {
	news := kube.SetReady(&m.Status.Conditions, m.Generation, ready, reason, message)
	return reconcile.Outcome{Reason: reason, Message: message, Changed: news}
}

// setLastUpdated dates a status that differs from before.
func setLastUpdated(before, m *v1alpha1.Machine, now time.Time) {
	if equality.Semantic.DeepEqual(before.Status, m.Status) {
		return
	}
	m.Status.LastUpdated = &metav1.Time{Time: now.Truncate(time.Second)}
	m.Status.ResourceVersion = before.ResourceVersion
}
