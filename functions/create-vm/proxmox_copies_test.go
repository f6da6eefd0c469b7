package main

import (
	"maps"
	"slices"
	"testing"

	"github.com/vitistack/stack/apis/v1alpha1"
	"github.com/vitistack/stack/functions/create-vm/hypervisor/hypervisortest"
	proxmoxsim "github.com/vitistack/stack/tests/sim/proxmox"
)

// copyMachine adds a copy of the virtual machine of a machine as qm clone makes it: with its description and tags (PVE/API2/Qemu.pm, clone_vm).
func copyMachine(r *env, sim *proxmoxsim.Server, m *v1alpha1.Machine, id int, options map[string]string) {
	r.Helper()
	all := sim.Machines()
	at := slices.IndexFunc(all, func(vm proxmoxsim.Machine) bool { return vm.ID == vmidOf(m) })
	config := map[string]string{"scsi0": "local-lvm:4"}
	for _, option := range []string{"description", "tags", "memory", "cores"} {
		config[option] = all[at].Config[option]
	}
	maps.Copy(config, options)
	if err := sim.AddMachine(proxmoxsim.Machine{ID: id, Node: "pve1", Config: config}, ""); err != nil {
		r.Fatal(err)
	}
}

// vmIDs returns the VMIDs of all virtual machines, sorted.
func vmIDs(sim *proxmoxsim.Server) (ids []int) {
	for _, vm := range sim.Machines() {
		ids = append(ids, vm.ID)
	}
	slices.Sort(ids)
	return ids
}

// TestProxmoxCopies has an administrator clone the virtual machine of a machine, and make a template of it. The deletion of the Machine leaves both.
func TestProxmoxCopies(t *testing.T) {
	t.Parallel()
	r, sim := newPVE(t, proxmoxsim.Options{}, nil)
	r.CreateMachine("m1")
	m := r.Drive("m1", &hypervisortest.Wire{}, "runs", hypervisortest.IsRunning)
	copyMachine(r, sim, m, 900, map[string]string{"name": "Copy-of-VM-m1"})
	copyMachine(r, sim, m, 901, map[string]string{"name": "golden", "template": "1", "boot": "order=scsi0"})
	if err := r.Kube.Delete(t.Context(), m); err != nil {
		t.Fatal(err)
	}
	r.Drive("m1", &hypervisortest.Wire{}, "is gone", hypervisortest.IsGone)
	if left := vmIDs(sim); !slices.Equal(left, []int{900, 901}) {
		t.Errorf("virtual machines %v are left, want the clone 900 and the template 901", left)
	}
}

// TestProxmoxTemplateOfMachine loses a virtual machine of which a template was made. The machine is created again, and does not take the template for its own.
func TestProxmoxTemplateOfMachine(t *testing.T) {
	t.Parallel()
	r, sim := newPVE(t, proxmoxsim.Options{}, nil)
	r.CreateMachine("m1")
	m := r.Drive("m1", &hypervisortest.Wire{}, "runs", hypervisortest.IsRunning)
	copyMachine(r, sim, m, 901, map[string]string{"name": "golden", "template": "1", "boot": "order=scsi0"})
	sim.RemoveConfig(vmidOf(m))
	m = r.Drive("m1", &hypervisortest.Wire{}, "runs again", func(m *v1alpha1.Machine) bool {
		return hypervisortest.IsRunning(m) && slices.Contains(vmIDs(sim), vmidOf(m))
	})
	if vmidOf(m) == 901 {
		t.Errorf("it has taken the template")
	}
}
