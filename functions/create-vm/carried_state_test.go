package main

import (
	"testing"

	"github.com/cloudevents/sdk-go/v2/event"
	corev1 "k8s.io/api/core/v1"
	kubevirtv1 "kubevirt.io/api/core/v1"

	"github.com/vitistack/stack/apis/v1alpha1"
	"github.com/vitistack/stack/events"
	"github.com/vitistack/stack/functions/create-vm/hypervisor/hypervisortest"
)

// vmEvent returns an event with a virtual machine as it is now, and then changed.
func (e *env) vmEvent(name string, change func(*kubevirtv1.VirtualMachine)) event.Event {
	e.Helper()
	vm := &kubevirtv1.VirtualMachine{}
	if err := e.Kube.Get(e.Context(), e.Namespace, name, vm); err != nil {
		e.Fatal(err)
	}
	change(vm)
	return carriedChange(e.T, events.TypeUpdate, causeVM, vm)
}

// instanceEvent returns an event with an instance as it is now, and then changed.
func (e *env) instanceEvent(name string, change func(*kubevirtv1.VirtualMachineInstance)) event.Event {
	e.Helper()
	vmi := &kubevirtv1.VirtualMachineInstance{}
	if err := e.Kube.Get(e.Context(), e.Namespace, name, vmi); err != nil {
		e.Fatal(err)
	}
	change(vmi)
	return carriedChange(e.T, events.TypeUpdate, causeInstance, vmi)
}

// TestCarriedState delivers events about a Machine that runs. An event whose object shows what the status says costs one request. For
// any other object, also one that is older than the virtual machine is now, the function reads the live objects, and writes nothing because
// they have not changed.
func TestCarriedState(t *testing.T) {
	t.Parallel()
	s := newEnv(t, kubevirtSite)
	s.CreateMachine("m1")
	s.Drive("m1", &hypervisortest.Wire{}, "runs", hypervisortest.IsRunning)
	w := &hypervisortest.Wire{}
	handle := s.NewHandler(w)
	if _, err := handle(t.Context(), hypervisortest.ResyncEvent(s.Namespace, "m1")); err != nil { // the guest may have reported more since
		t.Fatal(err)
	}
	before := &v1alpha1.Machine{}
	if err := s.Kube.Get(t.Context(), s.Namespace, "m1", before); err != nil {
		t.Fatal(err)
	}
	vm := func(change func(*kubevirtv1.VirtualMachine)) func() event.Event {
		return func() event.Event { return s.vmEvent("m1", change) }
	}
	vmi := func(change func(*kubevirtv1.VirtualMachineInstance)) func() event.Event {
		return func() event.Event { return s.instanceEvent("m1", change) }
	}
	for name, tc := range map[string]struct {
		reason string
		event  func() event.Event
		reads  bool
	}{
		"VM": {reason: "its status is recorded", event: vm(func(*kubevirtv1.VirtualMachine) {})},
		"VMCondition": {reason: "no status depends on it", event: vm(func(vm *kubevirtv1.VirtualMachine) {
			vm.Status.Conditions = append(vm.Status.Conditions, kubevirtv1.VirtualMachineCondition{Type: "LiveMigratable", Status: corev1.ConditionTrue})
		})},
		"VMStarting": {reason: "the event is old", reads: true, event: vm(func(vm *kubevirtv1.VirtualMachine) {
			vm.Status.PrintableStatus = kubevirtv1.VirtualMachineStatusStarting
		})},
		"VMPaused": {reason: "it has been unpaused since", reads: true, event: vm(func(vm *kubevirtv1.VirtualMachine) {
			vm.Status.PrintableStatus = kubevirtv1.VirtualMachineStatusPaused
		})},
		"VMRestart": {reason: "a restart was required", reads: true, event: vm(func(vm *kubevirtv1.VirtualMachine) {
			vm.Status.Conditions = append(vm.Status.Conditions, kubevirtv1.VirtualMachineCondition{Type: kubevirtv1.VirtualMachineRestartRequired, Status: corev1.ConditionTrue})
		})},
		"VMTemplate": {reason: "its template has changed, and the instance may lack the change", reads: true, event: vm(func(vm *kubevirtv1.VirtualMachine) { vm.Generation++ })},
		"VMOfOther":  {reason: "it is of an earlier Machine of the name", reads: true, event: vm(func(vm *kubevirtv1.VirtualMachine) { vm.Annotations[v1alpha1.AnnotationUID] = "other" })},
		"VMDeleting": {reason: "it may be gone", reads: true, event: vm(func(vm *kubevirtv1.VirtualMachine) { vm.DeletionTimestamp = &vm.CreationTimestamp })},
		"VMDeleted": {reason: "it may be gone", reads: true, event: func() event.Event {
			e := s.vmEvent("m1", func(*kubevirtv1.VirtualMachine) {})
			e.SetType(events.TypeDelete)
			return e
		}},
		"Instance": {reason: "its status is recorded", event: vmi(func(*kubevirtv1.VirtualMachineInstance) {})},
		"InstanceMoved": {reason: "it was on another host before", reads: true, event: vmi(func(vmi *kubevirtv1.VirtualMachineInstance) {
			vmi.Status.NodeName = "before"
		})},
		"InstanceAddress": {reason: "the guest had another address", reads: true, event: vmi(func(vmi *kubevirtv1.VirtualMachineInstance) {
			vmi.Status.Interfaces = []kubevirtv1.VirtualMachineInstanceNetworkInterface{{IPs: []string{"192.0.2.99"}}}
		})},
		"InstanceDisk": {reason: "a disk was being plugged in", reads: true, event: vmi(func(vmi *kubevirtv1.VirtualMachineInstance) {
			vmi.Status.VolumeStatus = append(vmi.Status.VolumeStatus, kubevirtv1.VolumeStatus{Name: "more", HotplugVolume: &kubevirtv1.HotplugVolumeStatus{}})
		})},
		"InstanceMigrated": {reason: "a change may have arrived by the migration", reads: true, event: vmi(func(vmi *kubevirtv1.VirtualMachineInstance) {
			vmi.Status.MigrationState = &kubevirtv1.VirtualMachineInstanceMigrationState{Completed: true}
		})},
		"InstanceEnded":    {reason: "it was the one before", reads: true, event: vmi(func(vmi *kubevirtv1.VirtualMachineInstance) { vmi.Status.Phase = kubevirtv1.Succeeded })},
		"InstanceOfOther":  {reason: "it is of an earlier Machine of the name", reads: true, event: vmi(func(vmi *kubevirtv1.VirtualMachineInstance) { vmi.Annotations[v1alpha1.AnnotationUID] = "other" })},
		"InstanceDeleting": {reason: "it may be gone", reads: true, event: vmi(func(vmi *kubevirtv1.VirtualMachineInstance) { vmi.DeletionTimestamp = &vmi.CreationTimestamp })},
	} {
		in := tc.event()
		clear(w.Count)
		if _, err := handle(t.Context(), in); err != nil {
			t.Errorf("%s: %v", name, err)
		}
		got := costs(w)
		if reads := got["GET virtualmachines"] > 0; reads != tc.reads || got["GET machines"] != 1 || got["PATCH machines/status"] > 0 {
			t.Errorf("%s: %s: requested %v, want a read of the virtual machine to be %v", name, tc.reason, got, tc.reads)
		}
	}
	after := &v1alpha1.Machine{}
	if err := s.Kube.Get(t.Context(), s.Namespace, "m1", after); err != nil || after.ResourceVersion != before.ResourceVersion {
		t.Errorf("m1 was written: %v\nbefore %+v\nafter %+v", err, before.Status, after.Status)
	}
}
