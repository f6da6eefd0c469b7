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
	"github.com/vitistack/stack/events/outbound"
	"github.com/vitistack/stack/functions/internal/kube"
	"github.com/vitistack/stack/functions/internal/reconcile"
)

// progress is how far a machine has come: its interfaces, and its virtual machine
// where there is one.
type progress struct {
	nics []nic
	vm   *seen
	err  error
	// last is the task that was recorded before the attempt, and now is when that ended.
	last *v1alpha1.ProviderTask
	now  time.Time
	// kind is the hypervisor's, where it is known.
	kind v1alpha1.ProviderType
}

// What a delivery does with a Machine.
const (
	stepNone    = "none"
	stepObserve = "observe"
	stepBuild   = "build"
)

// step says what a cause is worth doing, so that a change that the function has
// made itself, or that another event will tell more about, costs one request:
//
//	cause                   machine                         step
//	resync                  any                             build
//	Machine                 spec not yet acted upon         build
//	Machine                 with a task at its hypervisor   build
//	Machine                 somebody asks for a look        build
//	Machine                 its last attempt has failed     build
//	Machine                 its machine configuration moves build
//	Machine                 otherwise                       none
//	NetworkConfiguration    without a virtual machine       build
//	NetworkConfiguration    with one                        none
//	NetworkNamespace        as for a NetworkConfiguration
//	VirtualMachine          with one                        observe
//	VirtualMachine          not that its status knows       build
//	VirtualMachineInstance  Running                         observe
//	VirtualMachineInstance  otherwise                       none
//	PersistentVolumeClaim   up or down, waits for disks     observe
//	PersistentVolumeClaim   otherwise                       none
//	what has a step here    with one, and a new spec        build
//	what has a step here    with one, and a failure         build
//	what has a step here    its machine configuration moves build
//	what has a step here    runs, and its spec cannot be    build
//	any of the last five   on another hypervisor           none
func step(m *v1alpha1.Machine, cause string) string {
	worth := true
	switch cause {
	case causeMachine:
		worth = m.Status.Phase == "" || m.Status.ObservedGeneration != m.Generation || m.Status.Task != nil || kube.AskedFor(m) || failing(m) || nextHandover(m) != handoverNone
	case causeNetwork, causeNamespace:
		worth = m.Status.VMName == ""
	case causeVM, causeInstance, causeClaim:
		return stepHere(m, cause)
	}
	if worth {
		return stepBuild
	}
	return stepNone
}

// stepHere is step for what happens to the virtual machines of this cluster.
func stepHere(m *v1alpha1.Machine, cause string) string {
	made := m.Status.VMName != ""
	if made && m.Status.ProviderID != localID(m.Namespace, m.Name) {
		return stepNone
	}
	coming := !made || m.Status.Phase == v1alpha1.MachineCreating // its virtual machine tells when it goes on
	if cause == causeClaim && (coming || isTrue(m.Status.Conditions, v1alpha1.ConditionStorageReady)) {
		return stepNone
	}
	if cause == causeInstance && (!made || m.Status.Phase != v1alpha1.MachineRunning) {
		return stepNone
	}
	settled := m.Status.ObservedGeneration == m.Generation && m.Status.RestartToken == m.Spec.RestartToken
	if made && settled && !refused(m) && !failing(m) && nextHandover(m) == handoverNone {
		return stepObserve
	}
	return stepBuild
}

// refused tells whether a machine runs otherwise than its spec says, because that
// cannot be. The state of its virtual machine does not tell so.
func refused(m *v1alpha1.Machine) bool {
	ready := meta.FindStatusCondition(m.Status.Conditions, v1alpha1.ConditionReady)
	return m.Status.Phase == v1alpha1.MachineRunning && ready != nil && ready.Status == metav1.ConditionFalse
}

// decide writes into m's status how far the machine has come:
//
//	err           vm                phase                       Ready
//	fault, waits  none              Pending, or before          False  its reason
//	other         any               Pending, or before          False  ProviderUnavailable
//	nil           with a reason     the virtual machine's       False  its reason
//	nil           without a reason  the virtual machine's       True   MachineRunning
//
// "Pending, or before" keeps the phase of a machine that has come further: what
// hinders it now does not undo what is there. A machine whose hypervisor tells
// nobody when something changes gets a time for its next check that is always
// past, so that every resync looks at it and none has to write. After a failure that
// another attempt may mend, that time is the end of the back-off.
func decide(m *v1alpha1.Machine, p progress) reconcile.Outcome {
	s := &m.Status
	if s.Phase == "" || s.Phase == v1alpha1.MachineFailed {
		s.Phase = v1alpha1.MachinePending
	}
	s.ObservedGeneration = m.Generation
	describeNetwork(m, p)
	if p.err != nil {
		return hindered(m, p)
	}
	vm := p.vm
	s.Phase, s.ProviderID, s.VMName, s.VMIName = vm.phase, vm.providerID, vm.vmName, vm.vmiName
	s.RestartToken, s.Task = vm.restartToken, vm.task
	s.NodeName = vm.nodeName
	s.NextCheckTime = nil
	if vm.silent {
		s.NextCheckTime = &m.CreationTimestamp
	}
	switch {
	case vm.retried || repeats(p.last, vm.task):
		recordFailure(m, p.now)
	case vm.task == nil:
		s.Failures = 0
	}
	switch {
	case vm.failed:
		set(m, v1alpha1.ConditionVirtualMachineReady, false, "VMFailed", vm.message)
	case vm.vmName != "":
		set(m, v1alpha1.ConditionVirtualMachineReady, true, "VMCreated", "virtual machine "+vm.vmName+" is made")
	}
	describeMachineConfig(m, vm.handover)
	if vm.restart == "" {
		meta.RemoveStatusCondition(&s.Conditions, v1alpha1.ConditionRestartRequired)
	} else {
		set(m, v1alpha1.ConditionRestartRequired, true, "SpecChanged", vm.restart)
	}
	if vm.storage == "" {
		set(m, v1alpha1.ConditionStorageReady, true, "PVCBound", "every disk is there")
	} else {
		set(m, v1alpha1.ConditionStorageReady, false, "PVCPending", vm.storage)
	}
	if vm.reason != "" {
		return tell(m, false, vm.reason, vm.message)
	}
	return tell(m, true, "MachineRunning", "the machine is running")
}

// hindered says what a machine waits for, or what has to be changed.
func hindered(m *v1alpha1.Machine, p progress) reconcile.Outcome {
	if mends(p.err) {
		recordFailure(m, p.now)
	} else {
		m.Status.Failures, m.Status.NextCheckTime = 0, nil
	}
	reason, message := reasonOf(p.err)
	if f, ok := asFault(p.err); ok {
		if strings.HasSuffix(f.Reason, "ApiError") {
			set(m, v1alpha1.ConditionVirtualMachineReady, false, "VMFailed", f.Message)
		}
		if f.Reason == "StorageClassNotFound" {
			set(m, v1alpha1.ConditionStorageReady, false, "PVCPending", f.Message)
		}
		told := tell(m, false, reason, message)
		told.Warning = true
		return told
	}
	return tell(m, false, reason, message)
}

// reasonOf returns the reason and the message of the condition Ready after an error.
func reasonOf(err error) (reason, message string) {
	var w reconcile.WaitError
	if errors.As(err, &w) {
		return w.Reason, w.Message
	}
	if f, ok := asFault(err); ok {
		return f.Reason, f.Message
	}
	return "ProviderUnavailable", "the hypervisor does not answer as it should; it is asked again"
}

const reasonWaiting = "WaitingForAddress"

// networkReasons are the faults of a machine's networks.
var networkReasons = []string{"NetworkFailed", "NetworkConfigurationNotFound", "NetworkNamespaceNotFound", "NetworkNamespaceAmbiguous", "NoNetworkNamespace"}

// describeNetwork writes what layer 2 has given. A guest that says that it has
// other addresses than those is worth a look.
func describeNetwork(m *v1alpha1.Machine, p progress) {
	if f, ok := asFault(p.err); ok && slices.Contains(networkReasons, f.Reason) {
		set(m, v1alpha1.ConditionNetworkReady, false, "NetworkFailed", f.Message)
		return
	}
	if w := (reconcile.WaitError{}); errors.As(p.err, &w) && w.Reason == reasonWaiting && len(m.Status.IPAddresses) == 0 {
		set(m, v1alpha1.ConditionNetworkReady, false, w.Reason, w.Message)
		return
	}
	if len(p.nics) > 0 {
		m.Status.IPAddresses = nil
		for _, n := range p.nics {
			for _, a := range n.addresses {
				m.Status.IPAddresses = append(m.Status.IPAddresses, a.Addr().String())
			}
		}
	}
	if len(m.Status.IPAddresses) == 0 {
		return
	}
	if other := mismatch(m.Status.IPAddresses, p.vm); other != "" {
		set(m, v1alpha1.ConditionNetworkReady, false, "AddressMismatch", other)
		return
	}
	set(m, v1alpha1.ConditionNetworkReady, true, "NetworkConfigured", "every interface has its addresses")
}

// mismatch says which given addresses the guest does not have. A guest that
// reports nothing has no agent, and proves nothing.
func mismatch(given []string, vm *seen) string {
	if vm == nil || len(vm.reported) == 0 {
		return ""
	}
	var missing []string
	for _, a := range given {
		if !slices.Contains(vm.reported, a) {
			missing = append(missing, a)
		}
	}
	if len(missing) == 0 {
		return ""
	}
	return fmt.Sprintf("the guest does not have %s, but %s: check its network configuration", strings.Join(missing, ", "), strings.Join(vm.reported, ", "))
}

func set(m *v1alpha1.Machine, condition string, ok bool, reason, message string) {
	kube.SetCondition(&m.Status.Conditions, m.Generation, condition, ok, reason, message)
}

func tell(m *v1alpha1.Machine, ready bool, reason, message string) reconcile.Outcome {
	news := kube.SetReady(&m.Status.Conditions, m.Generation, ready, reason, message)
	return reconcile.Outcome{Reason: reason, Message: message, Changed: news}
}

// stamp dates a status that has changed since before.
func stamp(before, m *v1alpha1.Machine, now time.Time) {
	if equality.Semantic.DeepEqual(before.Status, m.Status) {
		return
	}
	m.Status.LastUpdated = &metav1.Time{Time: now.Truncate(time.Second)}
	m.Status.ResourceVersion = before.ResourceVersion
}

func isTrue(conditions []metav1.Condition, condition string) bool {
	return meta.IsStatusConditionTrue(conditions, condition)
}

// mends tells whether another delivery may mend an error.
func mends(err error) bool {
	_, isFault := asFault(err)
	return err != nil && !errors.As(err, new(reconcile.WaitError)) && (!isFault || errors.As(err, new(troubled)))
}

func asFault(err error) (reconcile.UserError, bool) {
	var f reconcile.UserError
	var denied *outbound.Denied
	if errors.As(err, &denied) {
		return reconcile.UserError{Reason: "EndpointNotAllowed", Message: denied.Error()}, true
	}
	return f, errors.As(err, &f)
}
