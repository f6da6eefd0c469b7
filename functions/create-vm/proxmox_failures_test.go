package main

import (
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

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
	r, sim := newPVE(t, proxmoxsim.Options{Plan: plan}, nil)
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
	r, _ := newPVE(t, proxmoxsim.Options{Plan: plan}, nil)
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

// TestProxmoxDiskStays deletes a machine whose storage does not delete the disk. The task of Proxmox VE succeeds.
func TestProxmoxDiskStays(t *testing.T) {
	t.Parallel()
	for name, version := range map[string]string{"8": "8.4.14", "9": "9.1.3"} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			r, sim := newPVE(t, proxmoxsim.Options{Version: version}, nil)
			r.CreateMachine("m1")
			m := r.Drive("m1", &hypervisortest.Wire{}, "runs", hypervisortest.IsRunning)
			volumes := sim.Volumes()
			disk := volumes[slices.IndexFunc(volumes, func(v string) bool { return strings.Contains(v, fmt.Sprintf("vm-%d-disk-0", vmidOf(m))) })]
			sim.HoldVolume(disk)
			if err := r.Kube.Delete(t.Context(), m); err != nil {
				t.Fatal(err)
			}
			m = r.Drive("m1", &hypervisortest.Wire{}, "reports the disk", func(m *v1alpha1.Machine) bool { return m == nil || hypervisortest.HasReason("ProxmoxApiError")(m) })
			if m == nil {
				t.Fatalf("it is gone, and disk %s is left", disk)
			}
			if want := "image still has watchers: run pvesm free " + disk; !strings.Contains(condition(m, "Ready"), want) {
				t.Errorf("Ready is %s, want %q in it", condition(m, "Ready"), want)
			}
			sim.FreeVolume(disk)
			r.Drive("m1", &hypervisortest.Wire{}, "is gone", hypervisortest.IsGone)
			if left := r.Site.Left(m); len(left) > 0 {
				t.Errorf("left behind: %v", left)
			}
		})
	}
}

// TestProxmoxRefusedDiskBlocksNothing has an administrator grow a disk. The spec asks for less, which holds up no other change.
func TestProxmoxRefusedDiskBlocksNothing(t *testing.T) {
	t.Parallel()
	r, sim := newPVE(t, proxmoxsim.Options{}, nil)
	r.CreateMachine("m1")
	m := r.Drive("m1", &hypervisortest.Wire{}, "runs", hypervisortest.IsRunning)
	config := func() map[string]string {
		machines := sim.Machines()
		return machines[slices.IndexFunc(machines, func(vm proxmoxsim.Machine) bool { return vm.ID == vmidOf(m) })].Config
	}
	if err := sim.Set(vmidOf(m), "scsi0", strings.Replace(config()["scsi0"], "size=20G", "size=30G", 1)); err != nil {
		t.Fatal(err)
	}
	for _, state := range []v1alpha1.PowerState{v1alpha1.PowerStopped, v1alpha1.PowerRunning} {
		r.Edit("m1", func(m *v1alpha1.Machine) {
			m.Spec.PowerState, m.Spec.Disks = state, []v1alpha1.MachineDisk{{Name: "root", Size: "20Gi"}, {Name: "data", Size: "1Gi"}}
		})
		m = r.Drive("m1", &hypervisortest.Wire{}, "is "+string(state), func(m *v1alpha1.Machine) bool {
			return m.Status.Phase == v1alpha1.MachinePhase(state) && m.Status.Task == nil && hypervisortest.HasReason("DiskCannotShrink")(m) && m.Status.ObservedGeneration == m.Generation
		})
		if data := config()["scsi1"]; !strings.Contains(data, "size=1G") {
			t.Errorf("%s: disk data is %q, want 1G", state, data)
		}
	}
	r.Edit("m1", func(m *v1alpha1.Machine) { m.Spec.Disks[0].Size = "30Gi" })
	m = r.Drive("m1", &hypervisortest.Wire{}, "runs with its present disk", hypervisortest.IsRunning)
	r.DeleteMachine(m, &hypervisortest.Wire{})
}

// TestProxmoxFailedDiskBlocksNothing has each task fail that grows a disk. The machine is switched off and on all the same.
func TestProxmoxFailedDiskBlocksNothing(t *testing.T) {
	t.Parallel()
	for reason, message := range map[string]string{"InsufficientResources": "lvextend 'pve/vm-100-disk-0' error: Insufficient free space", "ProxmoxApiError": "the storage is asleep"} {
		t.Run(reason, func(t *testing.T) {
			t.Parallel()
			plan := &faults.Plan{}
			r, _ := newPVE(t, proxmoxsim.Options{Plan: plan}, nil)
			r.CreateMachine("m1")
			m := r.Drive("m1", &hypervisortest.Wire{}, "runs", hypervisortest.IsRunning)
			before := r.Site.Starts(m)
			if err := plan.Set(faults.Rule{Operation: "task/resize", Error: message}); err != nil {
				t.Fatal(err)
			}
			r.Edit("m1", func(m *v1alpha1.Machine) { m.Spec.Disks = []v1alpha1.MachineDisk{{Name: "root", Size: "30Gi"}} })
			r.Drive("m1", &hypervisortest.Wire{}, "reports that its disk cannot grow", hypervisortest.HasReason(reason))
			for _, state := range []v1alpha1.PowerState{v1alpha1.PowerStopped, v1alpha1.PowerRunning} {
				r.Edit("m1", func(m *v1alpha1.Machine) { m.Spec.PowerState = state })
				m = r.Drive("m1", &hypervisortest.Wire{}, "is "+string(state), func(m *v1alpha1.Machine) bool {
					return m.Status.Phase == v1alpha1.MachinePhase(state) && hypervisortest.HasReason(reason)(m) && m.Status.ObservedGeneration == m.Generation
				})
				if condition(m, "Ready") == "" || !strings.Contains(condition(m, "Ready"), message) {
					t.Errorf("%s: Ready is %s", state, condition(m, "Ready"))
				}
			}
			if now := r.Site.Starts(m); now != before+1 {
				t.Errorf("it was started %d times", now-before)
			}
			if err := plan.Set(); err != nil {
				t.Fatal(err)
			}
			m = r.Drive("m1", &hypervisortest.Wire{}, "runs with its larger disk", hypervisortest.IsRunning)
			if _, root := r.Site.Sizes(m); root != "30Gi" {
				t.Errorf("the disk has %s", root)
			}
			r.DeleteMachine(m, &hypervisortest.Wire{})
		})
	}
}

// TestProxmoxHighAvailability restarts, stops and deletes a machine that high availability manages: the tasks end long before the machine is off.
func TestProxmoxHighAvailability(t *testing.T) {
	t.Parallel()
	r, sim := newPVE(t, proxmoxsim.Options{Times: proxmoxsim.Times{HA: time.Second}}, nil)
	r.CreateMachine("m1")
	m := r.Drive("m1", &hypervisortest.Wire{}, "runs", hypervisortest.IsRunning)
	before := r.Site.Starts(m)
	if err := sim.ManageHA(vmidOf(m)); err != nil {
		t.Fatal(err)
	}
	w := &hypervisortest.Wire{}
	r.Edit("m1", func(m *v1alpha1.Machine) { m.Spec.RestartToken = "once" })
	m = r.Drive("m1", w, "runs after its restart", func(m *v1alpha1.Machine) bool {
		return hypervisortest.IsRunning(m) && m.Status.RestartToken == "once" && m.Status.Task == nil
	})
	if now := r.Site.Starts(m); now != before+1 || w.Requests("POST", "/status/shutdown") != 1 {
		t.Errorf("it was started %d times for one token, with the requests %v", now-before, w.Count)
	}
	for _, state := range []v1alpha1.PowerState{v1alpha1.PowerStopped, v1alpha1.PowerRunning} {
		w = &hypervisortest.Wire{}
		r.Edit("m1", func(m *v1alpha1.Machine) { m.Spec.PowerState = state })
		m = r.Drive("m1", w, "is "+string(state), func(m *v1alpha1.Machine) bool {
			return meta.IsStatusConditionTrue(m.Status.Conditions, v1alpha1.ConditionReady) && m.Status.Phase == v1alpha1.MachinePhase(state)
		})
		if n := w.Requests("POST", "/qemu/*/status/"); n != 1 {
			t.Errorf("%s: one request is enough: %v", state, w.Count)
		}
	}
	w = &hypervisortest.Wire{}
	r.DeleteMachine(m, w)
	if n := w.Requests("POST", "/status/stop"); n != 1 {
		t.Errorf("the deletion has stopped it %d times", n)
	}
}

// proxmoxHost starts a machine whose disk is on a storage. It returns the host of the machine, and another one.
func proxmoxHost(t *testing.T, plan *faults.Plan, storage string) (r *env, sim *proxmoxsim.Server, m *v1alpha1.Machine, other string) {
	t.Helper()
	r, sim = newPVE(t, proxmoxsim.Options{Plan: plan}, func(p *v1alpha1.MachineProvider) { p.Spec.Endpoint.TimeoutSeconds = 2 })
	r.Create(&v1alpha1.Machine{ObjectMeta: metav1.ObjectMeta{Name: "m1"}, Spec: v1alpha1.MachineSpec{
		Template: "small", ProviderRef: &v1alpha1.ProviderReference{Name: r.Site.Provider}, Disks: []v1alpha1.MachineDisk{{Name: "root", StorageClass: storage}},
	}})
	m = r.Drive("m1", &hypervisortest.Wire{}, "runs", hypervisortest.IsRunning)
	if other = "pve1"; m.Status.NodeName == other {
		other = "pve2"
	}
	return r, sim, m, other
}

// requireHostUnavailable waits until a machine reports that its host does not answer.
func requireHostUnavailable(r *env, m *v1alpha1.Machine) {
	r.Helper()
	host := m.Status.NodeName
	m = r.Drive(m.Name, &hypervisortest.Wire{}, "reports that its host does not answer", hypervisortest.HasReason("HostUnavailable"))
	if message := meta.FindStatusCondition(m.Status.Conditions, v1alpha1.ConditionReady).Message; !strings.Contains(message, "pvecm delnode "+host) {
		r.Errorf("the message does not say what to do: %s", message)
	}
}

// TestProxmoxHostFails has high availability start a machine on another host.
func TestProxmoxHostFails(t *testing.T) {
	t.Parallel()
	for name, tc := range map[string]struct {
		reason, task, latency string
	}{
		"Idle":   {reason: "no request is under way"},
		"Task":   {reason: "the result of a task on the host is not known", task: "UPID:%s:000003E9:00000001:00000001:qmstart:100:" + pveToken + ":"},
		"Silent": {reason: "the host causes no error, but a timeout", latency: "3s"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			plan := &faults.Plan{}
			r, sim, m, other := proxmoxHost(t, plan, "fast-ssd")
			sim.SetOffline(m.Status.NodeName, true)
			if tc.task != "" {
				before := m.DeepCopy()
				m.Status.Task = &v1alpha1.ProviderTask{ID: fmt.Sprintf(tc.task, m.Status.NodeName), Action: "start"}
				if _, err := r.Kube.PatchStatus(t.Context(), before, m); err != nil {
					t.Fatal(err)
				}
			}
			if err := plan.Set(faults.Rule{Operation: "GET /nodes/" + m.Status.NodeName + "/qemu/*/pending", Latency: tc.latency}); err != nil {
				t.Fatal(err)
			}
			requireHostUnavailable(r, m)
			if err := sim.Recover(vmidOf(m), other); err != nil {
				t.Fatal(err)
			}
			m = r.Drive("m1", &hypervisortest.Wire{}, "runs on the other host: "+tc.reason, hypervisortest.IsRunning)
			if m.Status.NodeName != other {
				t.Errorf("%s: it is on %s, and its status says %s", tc.reason, other, m.Status.NodeName)
			}
			r.RequireOneVM(m, &hypervisortest.Wire{})
			r.DeleteMachine(m, &hypervisortest.Wire{})
		})
	}
}

// TestProxmoxHostIsLost follows the message about a host that is lost with its disks.
func TestProxmoxHostIsLost(t *testing.T) {
	t.Parallel()
	for name, deleted := range map[string]bool{"Created": false, "Deleted": true} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			r, sim, m, _ := proxmoxHost(t, &faults.Plan{}, "local-lvm")
			host := m.Status.NodeName
			sim.SetOffline(host, true)
			requireHostUnavailable(r, m)
			sim.RemoveNode(host)
			if deleted {
				if err := r.Kube.Delete(t.Context(), m); err != nil {
					t.Fatal(err)
				}
				r.Drive("m1", &hypervisortest.Wire{}, "reports why it is not deleted", func(m *v1alpha1.Machine) bool {
					return m.Status.Phase == v1alpha1.MachineDeleting && hypervisortest.HasReason("HostUnavailable")(m)
				})
			}
			sim.RemoveConfig(vmidOf(m))
			if deleted {
				r.Drive("m1", &hypervisortest.Wire{}, "is gone", hypervisortest.IsGone)
				if left := r.Site.Left(m); len(left) > 0 {
					t.Errorf("left behind: %v", left)
				}
				return
			}
			m = r.Drive("m1", &hypervisortest.Wire{}, "runs on another host", hypervisortest.IsRunning)
			if m.Status.NodeName == host {
				t.Errorf("its status still says %s", host)
			}
			r.RequireOneVM(m, &hypervisortest.Wire{})
			r.DeleteMachine(m, &hypervisortest.Wire{})
		})
	}
}

// TestProxmoxMoveKeepsNoKeys has the first host of a node run out of memory, when it has the CD with the machine configuration
// already. The removal does not wait for another host, which does not answer.
func TestProxmoxMoveKeepsNoKeys(t *testing.T) {
	t.Parallel()
	plan := &faults.Plan{}
	r, sim := newPVE(t, proxmoxsim.Options{Plan: plan}, nil)
	if err := plan.Set(faults.Rule{Operation: "task/qmstart", Error: "start failed: QEMU exited with code 1: Cannot allocate memory", Times: 1}); err != nil {
		t.Fatal(err)
	}
	m := hypervisortest.NewNode("m1")
	m.Spec.ProviderRef = &v1alpha1.ProviderReference{Name: r.Site.Provider}
	r.Create(m)
	m = r.Drive("m1", &hypervisortest.Wire{}, "waiting for its configuration", hypervisortest.HasReason(reasonWaitingForMachineConfig))
	r.ProvideMachineConfig(m, "version: v1alpha1\n")
	full := r.Drive("m1", &hypervisortest.Wire{}, "starts", func(m *v1alpha1.Machine) bool { return m.Status.NodeName != "" }).Status.NodeName
	m = r.Drive("m1", &hypervisortest.Wire{}, "runs with its configuration", func(m *v1alpha1.Machine) bool { return hypervisortest.IsRunning(m) && m.HoldsMachineConfig() })
	if m.Status.NodeName == full {
		t.Errorf("it is on %s again, which has too little memory", full)
	}
	for _, other := range []string{"pve1", "pve2", "pve3"} {
		sim.SetOffline(other, other != full && other != m.Status.NodeName)
	}
	r.MarkInstalled(m)
	m = r.Drive("m1", &hypervisortest.Wire{}, "has its configuration removed", func(m *v1alpha1.Machine) bool {
		return meta.IsStatusConditionTrue(m.Status.Conditions, v1alpha1.ConditionMachineConfigRemoved)
	})
	if volumes := sim.Volumes(); slices.ContainsFunc(volumes, func(v string) bool { return strings.Contains(v, cdFile(m)) }) {
		t.Errorf("a host still has the keys: %v", volumes)
	}
	r.DeleteMachine(m, &hypervisortest.Wire{})
}
