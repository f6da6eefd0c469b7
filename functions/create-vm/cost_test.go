package main

import (
	"fmt"
	"slices"
	"strings"
	"testing"

	"github.com/cloudevents/sdk-go/v2/event"
	"github.com/google/go-cmp/cmp"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	kubevirtv1 "kubevirt.io/api/core/v1"

	"github.com/vitistack/stack/apis/v1alpha1"
	"github.com/vitistack/stack/events"
	"github.com/vitistack/stack/functions/create-vm/hypervisor/hypervisortest"
	"github.com/vitistack/stack/functions/internal/kube"
	"github.com/vitistack/stack/tests/stand/feed"
)

// change returns the event of a change of an object, which carries the object unless that is nil.
func change(t *testing.T, eventType, kind, namespace, name string, object kube.Object) event.Event {
	t.Helper()
	e := event.New()
	e.SetID("1")
	e.SetSource("https://kubernetes")
	e.SetType(eventType)
	events.Ref{APIVersion: v1alpha1.GroupVersion.String(), Kind: kind, Namespace: namespace, Name: name}.Set(&e, "")
	if object != nil {
		if err := feed.Carry(&e, object); err != nil {
			t.Fatal(err)
		}
	}
	return e
}

// carriedChange is change for an event that carries its object.
func carriedChange(t *testing.T, eventType, kind string, object kube.Object) event.Event {
	t.Helper()
	return change(t, eventType, kind, object.GetNamespace(), object.GetName(), object)
}

// costs returns the requests of a wire by verb and resource, and resets their count.
func costs(w *hypervisortest.Wire) map[string]int {
	verbs := map[string]int{}
	for call, n := range w.Count {
		method, path, _ := strings.Cut(call, " ")
		parts := strings.Split(path, "/")
		last := len(parts) - 1
		if parts[last] == "status" {
			parts, last = append(parts[:last-2], parts[last-2]+"/status"), last-2
		} else if parts[last] == "*" || last > 0 && isObject(parts[last-1]) {
			last--
		}
		verbs[method+" "+parts[last]] += n
	}
	clear(w.Count)
	return verbs
}

// isObject reports whether a part of a path is a resource whose next part names an object.
func isObject(part string) bool {
	return slices.Contains([]string{"machineproviders", "networknamespaces", "network-attachment-definitions"}, part)
}

// TestMachineCost has one Machine without special wishes become Running, with the events that a burst
// merges delivered at once, and compares the requests of each delivery with a budget. An additional request is
// multiplied by all machines of a site: a change that adds one has to say why in the commit that changes the
// budget.
func TestMachineCost(t *testing.T) {
	t.Parallel()
	s := newEnv(t, kubevirtSite)
	w := &hypervisortest.Wire{}
	handle := s.NewHandler(w)
	m := &v1alpha1.Machine{ObjectMeta: metav1.ObjectMeta{Name: "m1"}, Spec: v1alpha1.MachineSpec{
		Template: "small", ProviderRef: &v1alpha1.ProviderReference{Name: s.Site.Provider}}}
	s.Create(m)
	// The first Machine of a provider adds its finalizer, and the first of a network its attachment.
	other := s.CreateMachine("m2")
	s.Drive(other.Name, &hypervisortest.Wire{}, "runs", hypervisortest.IsRunning)

	s.requireCosts(w, handle, []costStep{
		{
			name: "Declared", reason: "reads the Machine, its provider and its network, and creates the interface",
			event: func() event.Event { return change(t, events.TypeRefAdd, causeMachine, s.Namespace, "m1", nil) },
			want:  map[string]int{"GET machines": 1, "GET machineproviders": 1, "GET networknamespaces": 1, "POST networkconfigurations": 1},
		},
		{
			name: "Addresses", reason: "records the provider, looks for a virtual machine to adopt, creates the disk without looking for it, reads the Machine again before it creates the virtual machine, and writes one status and one Event",
			event: func() event.Event {
				return change(t, events.TypeUpdate, causeNetwork, s.Namespace, "m1", s.awaitAddresses("m1"))
			},
			want: map[string]int{
				"GET machines": 2, "GET machineproviders": 2, "PATCH machines": 1, "GET networkconfigurations": 1,
				"GET storageclasses": 1, "POST persistentvolumeclaims": 1, "GET network-attachment-definitions": 1, "GET virtualmachines": 1, "POST virtualmachines": 1,
				"PATCH machines/status": 1, "POST events": 1,
			},
		},
		{
			name: "OwnStatus", reason: "one read of the Machine shows that there is nothing to do",
			event: func() event.Event { return change(t, events.TypeRefUpdate, causeMachine, s.Namespace, "m1", nil) },
			want:  map[string]int{"GET machines": 1},
		},
		{
			name: "Created", reason: "KubeVirt has not looked at the virtual machine yet",
			event: func() event.Event {
				e := s.vmEvent("m1", func(vm *kubevirtv1.VirtualMachine) { vm.Status = kubevirtv1.VirtualMachineStatus{} })
				e.SetType(events.TypeAdd)
				return e
			},
			want: map[string]int{},
		},
		{
			name: "Scheduled", reason: "an instance that does not run yet says nothing that its virtual machine does not say",
			event: func() event.Event {
				s.awaitVM("m1", kubevirtv1.VirtualMachineStatusRunning)
				return s.instanceEvent("m1", func(vmi *kubevirtv1.VirtualMachineInstance) { vmi.Status.Phase = kubevirtv1.Scheduled })
			},
			want: map[string]int{},
		},
		{
			name: "Starting", reason: "the instance of a machine that does not run yet says nothing that its virtual machine does not say",
			event: func() event.Event { return change(t, events.TypeRefUpdate, causeInstance, s.Namespace, "m1", nil) },
			want:  map[string]int{"GET machines": 1},
		},
		{
			name: "Started", reason: "reads the virtual machine, its instance and once its disks, and writes one status and one Event",
			event: func() event.Event {
				s.awaitVM("m1", kubevirtv1.VirtualMachineStatusRunning)
				return change(t, events.TypeRefUpdate, causeVM, s.Namespace, "m1", nil)
			},
			want: map[string]int{
				"GET machines": 1, "GET virtualmachines": 1, "GET virtualmachineinstances": 1, "GET persistentvolumeclaims": 1,
				"PATCH machines/status": 1, "POST events": 1,
			},
		},
		{
			name: "StartedAgain", reason: "the event shows what the status says",
			event: func() event.Event { return s.vmEvent("m1", func(*kubevirtv1.VirtualMachine) {}) },
			want:  map[string]int{"GET machines": 1},
		},
		{
			name: "Instance", reason: "the event shows what the status says",
			event: func() event.Event { return s.instanceEvent("m1", func(*kubevirtv1.VirtualMachineInstance) {}) },
			want:  map[string]int{"GET machines": 1},
		},
	})
	if err := s.Kube.Get(t.Context(), s.Namespace, "m1", m); err != nil || !hypervisortest.IsRunning(m) {
		t.Errorf("m1 does not run after these deliveries: %v, %+v", err, m.Status)
	}
}

// TestNodeCost is TestMachineCost for the Machine of a node, whose disk has an image.
func TestNodeCost(t *testing.T) {
	t.Parallel()
	s := newEnv(t, kubevirtSite)
	w := &hypervisortest.Wire{}
	handle := s.NewHandler(w)
	m := hypervisortest.NewNode("m1")
	m.Spec.ProviderRef = &v1alpha1.ProviderReference{Name: s.Site.Provider}
	m.Spec.OS = &v1alpha1.MachineOS{ImageID: "https://images.example/talos.qcow2"}
	s.Create(m)
	other := s.CreateMachine("m2")
	s.Drive(other.Name, &hypervisortest.Wire{}, "runs", hypervisortest.IsRunning)
	now := func() *v1alpha1.Machine {
		if err := s.Kube.Get(t.Context(), s.Namespace, "m1", m); err != nil {
			t.Fatal(err)
		}
		return m
	}
	machineEvent := func(eventType string) event.Event {
		return change(t, eventType, causeMachine, s.Namespace, "m1", now())
	}
	s.requireCosts(w, handle, []costStep{
		{
			name: "NewCluster", reason: "the delivery only starts the process",
			event: func() event.Event {
				return change(t, events.TypeAdd, "KubernetesCluster", s.Namespace, "c", &v1alpha1.KubernetesCluster{})
			},
			want: map[string]int{},
		},
		{
			name: "Declared", reason: "reads the Machine and its network, and creates the interface",
			event: func() event.Event { return machineEvent(events.TypeAdd) },
			want:  map[string]int{"GET machines": 1, "GET networknamespaces": 1, "POST networkconfigurations": 1},
		},
		{
			name: "Addresses", reason: "writes the addresses, for which the cluster waits, and one Event",
			event: func() event.Event {
				return change(t, events.TypeUpdate, causeNetwork, s.Namespace, "m1", s.awaitAddresses("m1"))
			},
			want: map[string]int{
				"GET machines": 1, "GET networkconfigurations": 1,
				"PATCH machines/status": 1, "POST events": 1,
			},
		},
		{
			name: "Configuration", reason: "checks that no other claim and no other DataVolume has the name of the disk that CDI creates, records the provider, creates the Secret of the guest and, after another read of the Machine, the virtual machine, and reads neither again",
			event: func() event.Event {
				s.ProvideMachineConfig(m, "version: v1alpha1\n")
				return machineEvent(events.TypeUpdate)
			},
			want: map[string]int{
				"GET machines": 2, "GET machineproviders": 2, "PATCH machines": 1, "GET networkconfigurations": 1, "GET secrets": 1, "GET persistentvolumeclaims": 1, "GET datavolumes": 1,
				"GET storageclasses": 1, "GET network-attachment-definitions": 1, "GET virtualmachines": 1, "POST secrets": 1, "POST virtualmachines": 1,
				"PATCH machines/status": 1, "POST events": 1,
			},
		},
		{
			name: "Provisioning", reason: "the event shows what the status says, although KubeVirt has started no instance and observed no generation",
			event: func() event.Event {
				return s.vmEvent("m1", func(vm *kubevirtv1.VirtualMachine) {
					vm.Status = kubevirtv1.VirtualMachineStatus{PrintableStatus: kubevirtv1.VirtualMachineStatusProvisioning}
				})
			},
			want: map[string]int{"GET machines": 1},
		},
		{
			name: "Started", reason: "reads the virtual machine, its instance and once its disks, and writes one status and one Event",
			event: func() event.Event {
				s.awaitVM("m1", kubevirtv1.VirtualMachineStatusRunning)
				return change(t, events.TypeRefUpdate, causeVM, s.Namespace, "m1", nil)
			},
			want: map[string]int{
				"GET machines": 1, "GET virtualmachines": 1, "GET virtualmachineinstances": 1, "GET persistentvolumeclaims": 1,
				"PATCH machines/status": 1, "POST events": 1,
			},
		},
		{
			name: "Installed", reason: "removes the configuration from both Secrets, and reads neither the networks nor the virtual machine",
			event: func() event.Event {
				s.MarkInstalled(m)
				return machineEvent(events.TypeUpdate)
			},
			want: map[string]int{
				"GET machines": 1, "GET secrets": 1, "PATCH secrets": 1, "DELETE secrets": 1, "PATCH machines/status": 1,
			},
		},
		{
			name: "Over", reason: "the event shows that there is nothing to do",
			event: func() event.Event { return machineEvent(events.TypeUpdate) },
			want:  map[string]int{},
		},
	})
	if !hypervisortest.IsRunning(now()) || s.Site.HoldsUserData(m) {
		t.Errorf("m1 does not run, or its hypervisor still has the keys: %+v", m.Status)
	}
}

// costStep is a delivery, and the requests that it may send.
type costStep struct {
	name, reason string
	event        func() event.Event
	want         map[string]int
}

// requireCosts delivers events one after the other, and fails unless each delivery sends the requests of its step.
func (e *env) requireCosts(w *hypervisortest.Wire, handle events.Handler, steps []costStep) {
	e.Helper()
	for _, step := range steps {
		in := step.event()
		clear(w.Count)
		if _, err := handle(e.Context(), in); err != nil {
			e.Fatalf("%s: %v", step.name, err)
		}
		if diff := cmp.Diff(step.want, costs(w)); diff != "" {
			e.Errorf("%s: %s (-want +got):\n%s", step.name, step.reason, diff)
		}
	}
}

// awaitAddresses waits until a NetworkConfiguration has its addresses, and returns it.
func (e *env) awaitAddresses(name string) *v1alpha1.NetworkConfiguration {
	e.Helper()
	nc := &v1alpha1.NetworkConfiguration{}
	feed.Until(e.T, name+" has its addresses", func() (bool, string) {
		err := e.Kube.Get(e.Context(), e.Namespace, name, nc)
		return err == nil && len(nc.Status.NetworkInterfaces) > 0, fmt.Sprint(err)
	})
	return nc
}

// awaitVM waits until a virtual machine has a status.
func (e *env) awaitVM(name string, status kubevirtv1.VirtualMachinePrintableStatus) {
	e.Helper()
	vm := &kubevirtv1.VirtualMachine{}
	feed.Until(e.T, "virtual machine "+name+" is "+string(status), func() (bool, string) {
		err := e.Kube.Get(e.Context(), e.Namespace, name, vm)
		return err == nil && vm.Status.PrintableStatus == status && vm.Status.Created, fmt.Sprint(err, vm.Status.PrintableStatus)
	})
}
