package main

import (
	"errors"
	"fmt"
	"strings"
	"testing"

	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/vitistack/stack/apis/v1alpha1"
	"github.com/vitistack/stack/functions/create-vm/hypervisor/hypervisortest"
	"github.com/vitistack/stack/tests/sim/faults"
	proxmoxsim "github.com/vitistack/stack/tests/sim/proxmox"
)

// TestProxmoxLock locks a running virtual machine, as a backup does.
func TestProxmoxLock(t *testing.T) {
	t.Parallel()
	r, sim := newPVE(t, proxmoxsim.Options{}, nil)
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

// TestProxmoxInterruptedCreation kills the worker that creates a virtual machine, as a power cut does, and follows the message. It
// also forgets the task of a creation at work, which is no reason to act.
func TestProxmoxInterruptedCreation(t *testing.T) {
	t.Parallel()
	for name, tc := range map[string]struct {
		task    faults.Rule
		image   string
		deleted bool
	}{
		"Create":        {task: faults.Rule{Operation: "task/qmcreate"}},
		"CreateDeleted": {task: faults.Rule{Operation: "task/qmcreate"}, deleted: true},
		"Clone":         {task: faults.Rule{Operation: "task/qmclone"}, image: "debian-13"},
		"CloneDeleted":  {task: faults.Rule{Operation: "task/qmclone"}, image: "debian-13", deleted: true},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			plan := &faults.Plan{}
			r, sim := newPVE(t, proxmoxsim.Options{Plan: plan}, nil)
			if err := sim.AddMachine(proxmoxsim.Machine{ID: 9000, Node: "pve2", Config: map[string]string{"name": "debian-13", "template": "1", "scsi0": "local-lvm:4", "boot": "order=scsi0"}}, "https://x/debian.qcow2"); err != nil {
				t.Fatal(err)
			}
			tc.task.Error, tc.task.Latency, tc.task.Times = "unexpected status", "2s", 1
			if err := plan.Set(tc.task); err != nil {
				t.Fatal(err)
			}
			r.Create(&v1alpha1.Machine{ObjectMeta: metav1.ObjectMeta{Name: "m1"}, Spec: v1alpha1.MachineSpec{
				Template: "small", ProviderRef: &v1alpha1.ProviderReference{Name: r.Site.Provider}, OS: &v1alpha1.MachineOS{ImageID: tc.image},
			}})
			m := r.Drive("m1", &hypervisortest.Wire{}, "is created", func(m *v1alpha1.Machine) bool {
				return m.Status.Task != nil && strings.HasSuffix(tc.task.Operation, m.Status.Task.Action)
			})
			before := m.DeepCopy()
			m.Status.Task = nil
			if _, err := r.Kube.PatchStatus(t.Context(), before, m); err != nil {
				t.Fatal(err)
			}
			m = r.Drive("m1", &hypervisortest.Wire{}, "waiting for its creation", func(m *v1alpha1.Machine) bool { return m.Status.Task != nil })
			if !hypervisortest.HasReason("Provisioning")(m) {
				t.Errorf("a creation at work is not interrupted: %+v", m.Status.Conditions)
			}
			m = r.Drive("m1", &hypervisortest.Wire{}, "reports the interrupted creation", hypervisortest.HasReason("Locked"))
			vmid := vmidOf(m)
			message := meta.FindStatusCondition(m.Status.Conditions, v1alpha1.ConditionReady).Message
			if !strings.Contains(message, fmt.Sprintf("qm unlock %[1]d and qm destroy %[1]d --purge on node", vmid)) {
				t.Errorf("the message does not say what to run: %s", message)
			}
			if tc.deleted {
				if err := r.Kube.Delete(t.Context(), m); err != nil {
					t.Fatal(err)
				}
				r.Drive("m1", &hypervisortest.Wire{}, "reports why it is not deleted", func(m *v1alpha1.Machine) bool {
					return m.Status.Phase == v1alpha1.MachineDeleting && hypervisortest.HasReason("Locked")(m)
				})
			}
			if err := errors.Join(sim.Set(vmid, "lock", ""), sim.Destroy(vmid)); err != nil {
				t.Fatal(err)
			}
			if !tc.deleted {
				m = r.Drive("m1", &hypervisortest.Wire{}, "runs", hypervisortest.IsRunning)
				r.RequireOneVM(m, &hypervisortest.Wire{})
				r.DeleteMachine(m, &hypervisortest.Wire{})
				return
			}
			r.Drive("m1", &hypervisortest.Wire{}, "is gone", hypervisortest.IsGone)
			if left := r.Site.Left(m); len(left) > 0 {
				t.Errorf("left behind: %v", left)
			}
		})
	}
}
