package main

import (
	"strings"
	"testing"

	"k8s.io/apimachinery/pkg/api/meta"

	"github.com/vitistack/stack/apis/v1alpha1"
	"github.com/vitistack/stack/functions/create-vm/hypervisor/hypervisortest"
	"github.com/vitistack/stack/tests/sim/faults"
	proxmoxsim "github.com/vitistack/stack/tests/sim/proxmox"
)

// TestProxmoxFailures creates machines on a host that is full despite its report, with a failing task,
// and with a protection that a user has set.
func TestProxmoxFailures(t *testing.T) {
	t.Parallel()
	plan := &faults.Plan{}
	var sim *proxmoxsim.Server
	r := newEnv(t, func(r *env) *hypervisortest.Site {
		server, p := r.pve(proxmoxsim.Options{Plan: plan}, nil)
		sim = server
		return pveSite(r, server, p.Name)
	})
	if err := plan.Set(
		faults.Rule{Operation: "task/qmstart", Error: "start failed: QEMU exited with code 1: Cannot allocate memory", Times: 1},
		faults.Rule{Operation: "task/qmcreate", Error: "unable to create VM: the storage is asleep", Times: 1},
	); err != nil {
		t.Fatal(err)
	}
	r.CreateMachine("m1")
	m := r.Drive("m1", &hypervisortest.Wire{}, "reports why a task failed", hypervisortest.HasReason("ProxmoxApiError"))
	if ready := meta.FindStatusCondition(m.Status.Conditions, v1alpha1.ConditionReady); !strings.Contains(ready.Message, "the storage is asleep") {
		t.Errorf("Proxmox VE's own message is missing: %s", ready.Message)
	}
	m = r.Drive("m1", &hypervisortest.Wire{}, "runs on the next host", hypervisortest.IsRunning)
	r.RequireOneVM(m, &hypervisortest.Wire{})
	vmid := vmidOf(m)
	if err := sim.Set(vmid, "protection", "1"); err != nil {
		t.Fatal(err)
	}
	r.Drive("m1", &hypervisortest.Wire{}, "remains protected", hypervisortest.IsRunning)
	if err := r.Kube.Delete(t.Context(), m); err != nil {
		t.Fatal(err)
	}
	r.Drive("m1", &hypervisortest.Wire{}, "reports that it is protected", hypervisortest.HasReason("Protected"))
	if err := sim.Set(vmid, "protection", "0"); err != nil {
		t.Fatal(err)
	}
	r.Drive("m1", &hypervisortest.Wire{}, "is gone", hypervisortest.IsGone)
	if left := r.Site.Left(m); len(left) > 0 {
		t.Errorf("left behind: %v", left)
	}
}

// TestProxmoxRestartFails has the shutdown of a restart fail, as it does while a backup starts.
func TestProxmoxRestartFails(t *testing.T) {
	t.Parallel()
	plan := &faults.Plan{}
	r := newEnv(t, func(r *env) *hypervisortest.Site {
		server, p := r.pve(proxmoxsim.Options{Plan: plan}, nil)
		return pveSite(r, server, p.Name)
	})
	r.CreateMachine("m1")
	before := r.Site.Starts(r.Drive("m1", &hypervisortest.Wire{}, "runs", hypervisortest.IsRunning))
	if err := plan.Set(faults.Rule{Operation: "task/qmshutdown", Error: "VM is locked (backup)", Times: 1}); err != nil {
		t.Fatal(err)
	}
	r.Edit("m1", func(m *v1alpha1.Machine) { m.Spec.RestartToken = "once" })
	m := r.Drive("m1", &hypervisortest.Wire{}, "runs after its restart", func(m *v1alpha1.Machine) bool {
		return hypervisortest.IsRunning(m) && m.Status.RestartToken == "once"
	})
	if now := r.Site.Starts(m); now != before+1 {
		t.Errorf("it was started %d times for one token", now-before)
	}
	r.DeleteMachine(m, &hypervisortest.Wire{})
}
