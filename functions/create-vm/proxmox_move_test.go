package main

import (
	"testing"

	"github.com/vitistack/stack/apis/v1alpha1"
	"github.com/vitistack/stack/functions/create-vm/hypervisor/hypervisortest"
	"github.com/vitistack/stack/tests/sim/faults"
	proxmoxsim "github.com/vitistack/stack/tests/sim/proxmox"
)

// TestProxmoxKeepsUsedDisks starts a machine that has run, on a host without memory for it, after its status was lost, or came from a backup
// that is older than its first start. It stays where its disks are.
func TestProxmoxKeepsUsedDisks(t *testing.T) {
	t.Parallel()
	for name, tc := range map[string]struct {
		reason string
		status func(v1alpha1.MachineStatus) v1alpha1.MachineStatus
	}{
		"Lost":   {"the Machine was created again", func(v1alpha1.MachineStatus) v1alpha1.MachineStatus { return v1alpha1.MachineStatus{} }},
		"Backup": {"the phase is from a backup", func(s v1alpha1.MachineStatus) v1alpha1.MachineStatus { s.Phase = v1alpha1.MachineCreating; return s }},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			plan := &faults.Plan{}
			r, _ := newPVE(t, proxmoxsim.Options{Plan: plan}, nil)
			r.CreateMachine("m1")
			r.Drive("m1", &hypervisortest.Wire{}, "runs", hypervisortest.IsRunning)
			r.Edit("m1", func(m *v1alpha1.Machine) { m.Spec.PowerState = v1alpha1.PowerStopped })
			m := r.Drive("m1", &hypervisortest.Wire{}, "stops", func(m *v1alpha1.Machine) bool {
				return m.Status.Phase == v1alpha1.MachineStopped && m.Status.Task == nil
			})
			if err := plan.Set(faults.Rule{Operation: "task/qmstart", Error: noMemory}); err != nil {
				t.Fatal(err)
			}
			before := m.DeepCopy()
			m.Status = tc.status(m.Status)
			if _, err := r.Kube.PatchStatus(t.Context(), before, m); err != nil {
				t.Fatal(err)
			}
			r.Edit("m1", func(m *v1alpha1.Machine) { m.Spec.PowerState = v1alpha1.PowerRunning })
			r.Drive("m1", &hypervisortest.Wire{}, "reports that its host is full", hypervisortest.HasReason("InsufficientResources"))
			if created := plan.Calls()["task/qmcreate"]; created != 1 || plan.Calls()["task/qmdestroy"] != 0 {
				t.Errorf("%s: its virtual machine was created %d times: its data is lost", tc.reason, created)
			}
			if err := plan.Set(); err != nil {
				t.Fatal(err)
			}
			m = r.Drive("m1", &hypervisortest.Wire{}, "runs again", hypervisortest.IsRunning)
			r.DeleteMachine(m, &hypervisortest.Wire{})
		})
	}
}

// TestProxmoxMovesProtected has the first host of a protected machine lack the memory that it reports. The machine has never run, and moves like another one.
func TestProxmoxMovesProtected(t *testing.T) {
	t.Parallel()
	plan := &faults.Plan{}
	r, sim := newPVE(t, proxmoxsim.Options{Plan: plan}, nil)
	if err := plan.Set(faults.Rule{Operation: "task/qmstart", Error: noMemory, Times: 1}); err != nil {
		t.Fatal(err)
	}
	m := machineWith("m1", func(m *v1alpha1.MachineSpec) {
		m.Protected, m.ProviderRef = true, &v1alpha1.ProviderReference{Name: r.Site.Provider}
	})
	r.Create(m)
	m = r.Drive("m1", &hypervisortest.Wire{}, "runs on the next host", hypervisortest.IsRunning)
	if created := plan.Calls()["task/qmcreate"]; created != 2 {
		t.Errorf("its virtual machine was created %d times, want once more on the next host", created)
	}
	for _, vm := range sim.Machines() {
		if vm.ID == vmidOf(m) && vm.Config["protection"] != "1" {
			t.Errorf("its virtual machine is not protected: %v", vm.Config)
		}
	}
	r.Edit("m1", func(m *v1alpha1.Machine) { m.Spec.Protected = false })
	r.DeleteMachine(r.Drive("m1", &hypervisortest.Wire{}, "is not protected", hypervisortest.IsRunning), &hypervisortest.Wire{})
}
