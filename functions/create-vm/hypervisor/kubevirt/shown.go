package kubevirt

import (
	"slices"

	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	kubevirtv1 "kubevirt.io/api/core/v1"

	"github.com/vitistack/stack/apis/v1alpha1"
	"github.com/vitistack/stack/functions/create-vm/hypervisor"
)

// StateShown implements hypervisor.Observer.
func (k *Hypervisor) StateShown(m *v1alpha1.Machine, kind string, decode func(into any) bool) (s hypervisor.State, ok bool) {
	recorded, ok := recordedState(m)
	if !ok {
		return s, false
	}
	switch kind {
	case "VirtualMachine":
		vm := &kubevirtv1.VirtualMachine{}
		if s, ok = recorded, decode(vm); ok {
			s, ok = stateOfVM(recorded, m, vm)
		}
	case "VirtualMachineInstance":
		vmi := &kubevirtv1.VirtualMachineInstance{}
		if s, ok = recorded, decode(vmi); ok {
			s, ok = stateOfInstance(recorded, m, vmi)
		}
	default:
		return s, false
	}
	s.ProviderID = k.providerID(m)
	return s, ok
}

// ShowsNothing reports whether the object in an event about a kind, which decode decodes, shows nothing about its machine yet: a virtual
// machine that KubeVirt has not looked at, or an instance that does not run yet, about which its virtual machine says all. A change of the
// virtual machine follows, with an event of its own. It is false for an event without an object.
func ShowsNothing(kind string, decode func(into any) bool) bool {
	switch kind {
	case "VirtualMachine":
		vm := &kubevirtv1.VirtualMachine{}
		return decode(vm) && vm.DeletionTimestamp == nil && vm.Status.PrintableStatus == "" && len(vm.Status.Conditions) == 0
	case "VirtualMachineInstance":
		vmi := &kubevirtv1.VirtualMachineInstance{}
		return decode(vmi) && vmi.DeletionTimestamp == nil &&
			slices.Contains([]kubevirtv1.VirtualMachineInstancePhase{kubevirtv1.VmPhaseUnset, kubevirtv1.Pending, kubevirtv1.Scheduling, kubevirtv1.Scheduled}, vmi.Status.Phase)
	}
	return false
}

// stateOfVM returns the state that a VirtualMachine shows, with the recorded state of its instance and of its disks, whose changes cause
// events of their own. It is false if the instance was not recorded, or was started from another template than the present one: then the
// instance says what it lacks.
func stateOfVM(recorded hypervisor.State, m *v1alpha1.Machine, vm *kubevirtv1.VirtualMachine) (hypervisor.State, bool) {
	s := vmState(vm, m.Status.Phase, m.Spec.PowerState)
	s.RestartToken, s.StoragePending = recorded.RestartToken, recorded.StoragePending
	hasInstance := s.Phase == v1alpha1.MachineRunning && vm.Status.Created
	if hasInstance {
		s.VMIName, s.NodeName = recorded.VMIName, recorded.NodeName
	}
	isKnown := isMadeFor(vm, m) && !needsAdoption(vm, m) && vm.DeletionTimestamp == nil
	hasPresentTemplate := s.VMIName != "" && vm.Status.ObservedGeneration == vm.Generation
	return s, isKnown && (!hasInstance || hasPresentTemplate)
}

// stateOfInstance returns the recorded state with what a running instance shows. It is false for an instance that does not run, or
// has a disk that is not plugged in, was migrated, or does not have what its machine asks for: then the virtual machine says more.
func stateOfInstance(recorded hypervisor.State, m *v1alpha1.Machine, vmi *kubevirtv1.VirtualMachineInstance) (hypervisor.State, bool) {
	addInstanceState(&recorded, vmi)
	isUnplugged := slices.ContainsFunc(vmi.Status.VolumeStatus, func(v kubevirtv1.VolumeStatus) bool {
		return v.HotplugVolume != nil && v.Phase != kubevirtv1.VolumeReady
	})
	isKnown := isMadeFor(vmi, m) && vmi.DeletionTimestamp == nil && vmi.Status.Phase == kubevirtv1.Running
	isCurrent := !isUnplugged && vmi.Status.MigrationState == nil && recorded.StoragePending == "" && recorded.RestartRequired == ""
	return recorded, isKnown && isCurrent
}

// recordedState returns the state that the status of a Machine records. It is false for a status without that.
func recordedState(m *v1alpha1.Machine) (hypervisor.State, bool) {
	find := func(conditionType string) *metav1.Condition {
		return meta.FindStatusCondition(m.Status.Conditions, conditionType)
	}
	ready, storage := find(v1alpha1.ConditionReady), find(v1alpha1.ConditionStorageReady)
	if ready == nil || storage == nil {
		return hypervisor.State{}, false
	}
	s := hypervisor.State{
		Phase: m.Status.Phase, VMName: m.Status.VMName, VMIName: m.Status.VMIName, NodeName: m.Status.NodeName, RestartToken: m.Status.RestartToken,
		Failed: meta.IsStatusConditionFalse(m.Status.Conditions, v1alpha1.ConditionVirtualMachineReady),
	}
	if ready.Status != metav1.ConditionTrue || ready.Reason == hypervisor.ReasonStopped {
		s.Reason, s.Message = ready.Reason, ready.Message
	}
	if storage.Status != metav1.ConditionTrue {
		s.StoragePending = storage.Message
	}
	if restart := find(v1alpha1.ConditionRestartRequired); restart != nil {
		s.RestartRequired = restart.Message
	}
	return s, true
}
