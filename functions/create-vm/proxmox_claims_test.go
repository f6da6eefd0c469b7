package main

import (
	"slices"
	"strings"
	"testing"

	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/vitistack/stack/apis/v1alpha1"
	"github.com/vitistack/stack/events"
	"github.com/vitistack/stack/functions/create-vm/hypervisor/hypervisortest"
	"github.com/vitistack/stack/tests/sim/faults"
	proxmoxsim "github.com/vitistack/stack/tests/sim/proxmox"
)

const noMemory = "start failed: QEMU exited with code 1: Cannot allocate memory"

// TestProxmoxTriesEachHost has two of three hosts lack the memory that they report. The machine runs on the third one.
func TestProxmoxTriesEachHost(t *testing.T) {
	t.Parallel()
	plan := &faults.Plan{}
	r, _ := newPVE(t, proxmoxsim.Options{Plan: plan}, nil)
	if err := plan.Set(faults.Rule{Operation: "task/qmstart", Error: noMemory, Times: 2}); err != nil {
		t.Fatal(err)
	}
	r.CreateMachine("m1")
	var tried []string
	m := r.Drive("m1", &hypervisortest.Wire{}, "runs on the third host", func(m *v1alpha1.Machine) bool {
		if host := m.Status.NodeName; host != "" && !slices.Contains(tried, host) {
			tried = append(tried, host)
		}
		return hypervisortest.IsRunning(m)
	})
	if len(tried) != 3 || plan.Calls()["task/qmcreate"] != 3 {
		t.Errorf("it has tried %v, and was created %d times, want each host once", tried, plan.Calls()["task/qmcreate"])
	}
	r.RequireOneVM(m, &hypervisortest.Wire{})
	r.DeleteMachine(m, &hypervisortest.Wire{})
}

// TestProxmoxAllHostsAreFull has no host with the memory that it reports. The machine tries each host once, and then stays where it is,
// says so, and is started there again with back-off.
func TestProxmoxAllHostsAreFull(t *testing.T) {
	t.Parallel()
	plan := &faults.Plan{}
	r, _ := newPVE(t, proxmoxsim.Options{Plan: plan}, nil)
	if err := plan.Set(faults.Rule{Operation: "task/qmstart", Error: noMemory}); err != nil {
		t.Fatal(err)
	}
	r.CreateMachine("m1")
	r.Drive("m1", &hypervisortest.Wire{}, "has failed several times", func(*v1alpha1.Machine) bool { return plan.Calls()["task/qmstart"] > 6 })
	if created := plan.Calls()["task/qmcreate"]; created != 3 {
		t.Errorf("its virtual machine was created %d times for three hosts", created)
	}
	m := r.Drive("m1", &hypervisortest.Wire{}, "reports that no host could start it", hypervisortest.HasReason("InsufficientResources"))
	message := meta.FindStatusCondition(m.Status.Conditions, v1alpha1.ConditionReady).Message
	for _, part := range []string{"Cannot allocate memory", "nodes pve1, pve2, pve3 had too little memory", "free memory there, add nodes, or ask for less", v1alpha1.AnnotationReconcile} {
		if !strings.Contains(message, part) {
			t.Errorf("the message lacks %q: %s", part, message)
		}
	}
	if err := plan.Set(); err != nil {
		t.Fatal(err)
	}
	m = r.Drive("m1", &hypervisortest.Wire{}, "runs once its host has room", hypervisortest.IsRunning)
	r.DeleteMachine(m, &hypervisortest.Wire{})
}

// TestProxmoxMistypedFormerUID deletes a Machine whose annotation names something that is no UID.
func TestProxmoxMistypedFormerUID(t *testing.T) {
	t.Parallel()
	r, _ := newPVE(t, proxmoxsim.Options{}, nil)
	r.Create(&v1alpha1.Machine{
		ObjectMeta: metav1.ObjectMeta{Name: "m1", Annotations: map[string]string{v1alpha1.AnnotationFormerUIDs: "machine/m1, uid:"}},
		Spec:       v1alpha1.MachineSpec{Template: "small", ProviderRef: &v1alpha1.ProviderReference{Name: r.Site.Provider}},
	})
	m := r.Drive("m1", &hypervisortest.Wire{}, "runs", hypervisortest.IsRunning)
	m.Annotations = nil // the site looks for what is left under each UID
	r.DeleteMachine(m, &hypervisortest.Wire{})
}

// TestProxmoxSharedByProviders has a second MachineProvider for one Proxmox VE, with the same endpoint or with that of another host. It takes
// no VMID that a machine of the first one has claimed, before its virtual machine exists.
func TestProxmoxSharedByProviders(t *testing.T) {
	t.Parallel()
	for _, host := range []string{"127.0.0.1", "localhost"} {
		t.Run(host, func(t *testing.T) { sharedByProviders(t, host) })
	}
}

func sharedByProviders(t *testing.T, host string) {
	t.Parallel()
	only := func(p *v1alpha1.MachineProvider) {
		p.Spec.Proxmox = &v1alpha1.ProxmoxOptions{VMIDStart: 5000, VMIDEnd: 5000}
	}
	r, _ := newPVE(t, proxmoxsim.Options{}, only)
	first := r.providerNow()
	second := &v1alpha1.MachineProvider{ObjectMeta: metav1.ObjectMeta{Name: "second-" + r.Namespace}, Spec: *first.Spec.DeepCopy()}
	second.Spec.Endpoint.URL = strings.Replace(second.Spec.Endpoint.URL, "127.0.0.1", host, 1)
	if err := r.Kube.Create(t.Context(), second); err != nil {
		t.Fatal(err)
	}
	r.dropProvider(second.Name)
	for _, name := range []string{first.Name, second.Name} {
		if err := deliver(t.Context(), r.process(&hypervisortest.Wire{}), lookAtProvider(name, events.TypeResync)); err != nil {
			t.Fatal(err)
		}
	}
	r.CreateMachine("m1")
	m1 := r.Drive("m1", &hypervisortest.Wire{}, "has claimed its VMID", func(m *v1alpha1.Machine) bool { return m.Status.ProviderID != "" })
	if len(r.Site.VMs(m1)) > 0 {
		t.Fatal("its virtual machine exists already")
	}
	m := machineWith("m2", func(m *v1alpha1.MachineSpec) { m.ProviderRef = &v1alpha1.ProviderReference{Name: second.Name} })
	r.Create(m)
	r.Drive("m2", &hypervisortest.Wire{}, "finds the VMID taken", hypervisortest.HasReason("VMIDsExhausted"))
	r.DeleteMachine(r.Drive("m1", &hypervisortest.Wire{}, "runs", hypervisortest.IsRunning), &hypervisortest.Wire{})
}

// TestProxmoxClaimLists counts how often the creation of a machine with a CD lists the claims of all machines: before its own claim, and
// once afterwards.
func TestProxmoxClaimLists(t *testing.T) {
	t.Parallel()
	r, _ := newPVE(t, proxmoxsim.Options{}, nil)
	m := hypervisortest.NewNode("m1")
	m.Spec.ProviderRef = &v1alpha1.ProviderReference{Name: r.Site.Provider}
	r.Create(m)
	m = r.Drive("m1", &hypervisortest.Wire{}, "waiting for its configuration", hypervisortest.HasReason(reasonWaitingForMachineConfig))
	r.ProvideMachineConfig(m, "version: v1alpha1\n")
	w := &hypervisortest.Wire{}
	r.Drive("m1", w, "runs", hypervisortest.IsRunning)
	if n := w.Count["GET /apis/coordination.k8s.io/v1/namespaces/"+defaultNamespace+"/leases"]; n != 2 {
		t.Errorf("%d lists, want 2: %v", n, w.Count)
	}
}
