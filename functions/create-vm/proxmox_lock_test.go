package main

import (
	"strings"
	"testing"

	"k8s.io/apimachinery/pkg/api/meta"

	"github.com/vitistack/stack/apis/v1alpha1"
	proxmoxsim "github.com/vitistack/stack/tests/sim/proxmox"
)

// TestProxmoxLock locks a virtual machine that runs, as a backup does.
func TestProxmoxLock(t *testing.T) {
	t.Parallel()
	var sim *proxmoxsim.Server
	r := newEnv(t, func(r *env) *site {
		server, p := r.pve(proxmoxsim.Options{}, nil)
		sim = server
		return pveSite(r, server, p.Name)
	})
	r.machine("m1")
	m := r.drive("m1", &wire{}, "runs", running)
	vmid := vmidOf(m)
	lock := func(value string) {
		t.Helper()
		if err := sim.Set(vmid, "lock", value); err != nil {
			t.Fatal(err)
		}
	}
	for _, kind := range []string{"backup", "snapshot", "snapshot-delete", "migrate", "rollback", "suspending"} {
		lock(kind)
		w := &wire{}
		f := r.process(w)
		for range 3 {
			if err := deliver(t.Context(), f, look(r.namespace, "m1")); err != nil {
				t.Errorf("%s: %v", kind, err)
			}
		}
		r.drive("m1", w, "runs while it is locked", running)
		if len(w.writes()) > 0 {
			t.Errorf("%s: nothing has to be written: %v", kind, w.order)
		}
	}
	r.edit("m1", func(m *v1alpha1.Machine) { m.Spec.Protected = true })
	m = r.drive("m1", &wire{}, "says that its change waits", ready("Locked"))
	told := meta.FindStatusCondition(m.Status.Conditions, v1alpha1.ConditionReady).Message
	if m.Status.Phase != v1alpha1.MachineRunning || !strings.Contains(told, "locked (suspending)") {
		t.Errorf("phase %s: %s", m.Status.Phase, told)
	}
	lock("")
	r.drive("m1", &wire{}, "is protected", running)
	r.edit("m1", func(m *v1alpha1.Machine) { m.Spec.Protected = false })
	m = r.drive("m1", &wire{}, "is not protected", running)
	lock("backup")
	if err := r.kube.Delete(t.Context(), m); err != nil {
		t.Fatal(err)
	}
	r.drive("m1", &wire{}, "says that its deletion waits", ready("Locked"))
	lock("")
	r.drive("m1", &wire{}, "is gone", gone)
	if left := r.site.left(m); len(left) > 0 {
		t.Errorf("left behind: %v", left)
	}
}
