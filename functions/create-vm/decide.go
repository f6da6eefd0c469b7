package main

import (
	"slices"

	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/vitistack/stack/apis/v1alpha1"
	"github.com/vitistack/stack/functions/create-vm/hypervisor"
	"github.com/vitistack/stack/functions/internal/kube"
)

// Causes of a reconcile: the kind of object that has changed, or resync.
const (
	causeMachine   = "Machine"
	causeVM        = "VirtualMachine"
	causeInstance  = "VirtualMachineInstance"
	causeNetwork   = "NetworkConfiguration"
	causeNamespace = "NetworkNamespace"
	causeClaim     = "PersistentVolumeClaim"
	causeResync    = "resync"
)

// What a delivery does with a Machine.
const (
	actionNone         = "none"
	actionObserve      = "observe"
	actionEnsure       = "ensure"
	actionRemoveConfig = "remove configuration"
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
//	Machine                 machine configuration to provide  ensure
//	Machine                 machine configuration to remove   remove configuration, or ensure on another hypervisor
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
	needed := true
	switch cause {
	case causeMachine:
		needed = m.Status.Phase == "" || m.Status.ObservedGeneration != m.Generation || m.Status.Task != nil || kube.ReconcileRequested(m) || hasFailed(m)
		handover := decideHandover(m)
		if !needed && handover == hypervisor.HandoverRemove && isLocal(m) {
			return actionRemoveConfig
		}
		needed = needed || handover != hypervisor.HandoverNone
	case causeNetwork, causeNamespace:
		needed = m.Status.VMName == ""
	case causeVM, causeInstance, causeClaim:
		return decideLocalAction(m, cause)
	}
	if needed {
		return actionEnsure
	}
	return actionNone
}

// decideLocalAction is decideAction for events about the virtual machines of this cluster.
func decideLocalAction(m *v1alpha1.Machine, cause string) string {
	exists := m.Status.VMName != ""
	if exists && !isLocal(m) {
		return actionNone
	}
	starting := !exists || m.Status.Phase == v1alpha1.MachineCreating // its virtual machine causes the next event
	if cause == causeClaim && (starting || meta.IsStatusConditionTrue(m.Status.Conditions, v1alpha1.ConditionStorageReady)) {
		return actionNone
	}
	if cause == causeInstance && (!exists || m.Status.Phase != v1alpha1.MachineRunning) {
		return actionNone
	}
	upToDate := m.Status.ObservedGeneration == m.Generation && m.Status.RestartToken == m.Spec.RestartToken
	if exists && upToDate && !isSpecImpossible(m) && !hasFailed(m) && decideHandover(m) == hypervisor.HandoverNone {
		return actionObserve
	}
	return actionEnsure
}

// isLocal reports whether the virtual machine of a Machine is in the cluster of the function.
func isLocal(m *v1alpha1.Machine) bool {
	return m.Status.ProviderID == hypervisor.LocalID(m.Namespace, m.Name)
}

// isSpecImpossible reports whether a machine may have another size than its spec says, because the hypervisor
// cannot apply the spec, or its template does not exist. Events about the virtual machine do not show that. A machine
// that only waits for its start is not one.
func isSpecImpossible(m *v1alpha1.Machine) bool {
	if t := m.Status.Template; t != nil && t.Name != m.Spec.Template {
		return true
	}
	ready := meta.FindStatusCondition(m.Status.Conditions, v1alpha1.ConditionReady)
	if ready == nil || ready.Status != metav1.ConditionFalse {
		return false
	}
	return m.Status.Phase != v1alpha1.MachineCreating || !slices.Contains([]string{"Provisioning", "Starting", "Stopping"}, ready.Reason)
}
