package main

import (
	"strings"
	"testing"

	"k8s.io/apimachinery/pkg/api/meta"

	"github.com/vitistack/stack/apis/v1alpha1"
	"github.com/vitistack/stack/functions/create-vm/hypervisor/hypervisortest"
	proxmoxsim "github.com/vitistack/stack/tests/sim/proxmox"
)

// TestProxmoxLock locks a running virtual machine, as a backup does.
func TestProxmoxLock(t *testing.T) {
	t.Parallel()
	var sim *proxmoxsim.Server
	r := newEnv(t, func(r *env) *hypervisortest.Site {
		server, p := r.pve(proxmoxsim.Options{}, nil)
		sim = server
		return pveSite(r, server, p.Name)
	})
	r.CreateMachine("m1")
	m := r.Drive("m1", &hypervisortest.Wire{}, "runs", hypervisortest.IsRunning)
	vmid := vmidOf(m)
	lock := func(value string) {
		t.Helper()
		if err := sim.Set(vmid, "lock", value); err != nil {
			t.Fatal(err)
		}
	}
	for _, kind := range []string{"backup", "snapshot", "snapshot-delete", "migrate", "rollback", "suspending"} {
		lock(kind)
		w := &hypervisortest.Wire{}
		f := r.process(w)
		for range 3 {
			if err := deliver(t.Context(), f, hypervisortest.ResyncEvent(r.Namespace, "m1")); err != nil {
				t.Errorf("%s: %v", kind, err)
			}
		}
		r.Drive("m1", w, "runs while it is locked", hypervisortest.IsRunning)
		if len(w.WriteFaults()) > 0 {
			t.Errorf("%s: a locked machine needs no request, got %v", kind, w.Order)
		}
	}
	r.Edit("m1", func(m *v1alpha1.Machine) { m.Spec.Protected = true })
	m = r.Drive("m1", &hypervisortest.Wire{}, "reports that its change waits", hypervisortest.HasReason("Locked"))
	message := meta.FindStatusCondition(m.Status.Conditions, v1alpha1.ConditionReady).Message
	if m.Status.Phase != v1alpha1.MachineRunning || !strings.Contains(message, "locked (suspending)") {
		t.Errorf("phase %s: %s", m.Status.Phase, message)
	}
	lock("")
	r.Drive("m1", &hypervisortest.Wire{}, "is protected", hypervisortest.IsRunning)
	r.Edit("m1", func(m *v1alpha1.Machine) { m.Spec.Protected = false })
	m = r.Drive("m1", &hypervisortest.Wire{}, "is not protected", hypervisortest.IsRunning)
	lock("backup")
	if err := r.Kube.Delete(t.Context(), m); err != nil {
		t.Fatal(err)
	}
	r.Drive("m1", &hypervisortest.Wire{}, "reports that its deletion waits", hypervisortest.HasReason("Locked"))
	lock("")
	r.Drive("m1", &hypervisortest.Wire{}, "is gone", hypervisortest.IsGone)
	if left := r.Site.Left(m); len(left) > 0 {
		t.Errorf("left behind: %v", left)
	}
}
