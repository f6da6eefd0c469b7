package main

import (
	"strings"
	"sync"
	"testing"

	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/vitistack/stack/apis/v1alpha1"
	"github.com/vitistack/stack/functions/create-vm/hypervisor/hypervisortest"
	"github.com/vitistack/stack/tests/sim/faults"
	proxmoxsim "github.com/vitistack/stack/tests/sim/proxmox"
)

// guestLog records the guests that were started.
type guestLog struct {
	mu     sync.Mutex
	guests map[string]proxmoxsim.Guest
}

// PowerOn implements proxmoxsim.Guests.
func (l *guestLog) PowerOn(g proxmoxsim.Guest) error {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.guests[g.Name] = g
	return nil
}

// PowerOff implements proxmoxsim.Guests.
func (l *guestLog) PowerOff(string) error { return nil }

// Destroy implements proxmoxsim.Guests.
func (l *guestLog) Destroy(string) error { return nil }

// TestProxmoxGuest checks what a guest reads from Proxmox VE's own cloud-init drive.
func TestProxmoxGuest(t *testing.T) {
	t.Parallel()
	log := &guestLog{guests: map[string]proxmoxsim.Guest{}}
	r, sim := newPVE(t, proxmoxsim.Options{Guests: log}, nil)
	on := true
	m := &v1alpha1.Machine{ObjectMeta: metav1.ObjectMeta{Name: "web.example"}, Spec: v1alpha1.MachineSpec{
		Template: "small", ProviderRef: &v1alpha1.ProviderReference{Name: r.Site.Provider},
		Domain: &v1alpha1.MachineDomain{Features: &v1alpha1.DomainFeatures{HyperV: &on}},
	}}
	r.Create(m)
	m = r.Drive(m.Name, &hypervisortest.Wire{}, "runs", hypervisortest.IsRunning)
	log.mu.Lock()
	guest := log.guests["web-example"]
	log.mu.Unlock()
	if len(guest.NICs) != 1 || len(guest.NICs[0].Addresses) != 1 || guest.NICs[0].Addresses[0].Addr().String() != m.Status.IPAddresses[0] {
		t.Errorf("a guest with hyperv must read its address from NoCloud: %+v", log.guests)
	}
	for _, vm := range sim.Machines() {
		if vm.Config["ciupgrade"] != "0" || vm.Config["ostype"] != "win11" {
			t.Errorf("a first boot must not upgrade packages: %v", vm.Config)
		}
	}
	r.DeleteMachine(m, &hypervisortest.Wire{})
}

// TestProxmoxChangedUserData changes user data after the upload of its CD, before the virtual machine exists.
func TestProxmoxChangedUserData(t *testing.T) {
	t.Parallel()
	log, plan := &guestLog{guests: map[string]proxmoxsim.Guest{}}, &faults.Plan{}
	r, _ := newPVE(t, proxmoxsim.Options{Guests: log, Plan: plan}, nil)
	if err := plan.Set(faults.Rule{Operation: "task/qmcreate", Error: "unable to create VM: the storage is asleep"}); err != nil {
		t.Fatal(err)
	}
	r.CreateMachine("m1")
	r.Drive("m1", &hypervisortest.Wire{}, "reports why a task failed", hypervisortest.HasReason("ProxmoxApiError"))
	const corrected = "#cloud-config\npackages: [curl]\n"
	r.Edit("m1", func(m *v1alpha1.Machine) { m.Spec.CloudInit.UserData = corrected })
	if err := plan.Set(); err != nil {
		t.Fatal(err)
	}
	m := r.Drive("m1", &hypervisortest.Wire{}, "runs", hypervisortest.IsRunning)
	log.mu.Lock()
	got := log.guests["m1"].UserData
	log.mu.Unlock()
	if got != corrected {
		t.Errorf("the guest found %q, want %q", got, corrected)
	}
	r.DeleteMachine(m, &hypervisortest.Wire{})
}

// TestProxmoxFrozenGuest has QEMU stop the guest of a running machine.
func TestProxmoxFrozenGuest(t *testing.T) {
	t.Parallel()
	r, sim := newPVE(t, proxmoxsim.Options{}, nil)
	r.CreateMachine("m1")
	m := r.Drive("m1", &hypervisortest.Wire{}, "runs", hypervisortest.IsRunning)
	for state, tc := range map[string]struct {
		reason, remedy string
		failed         bool
	}{
		"io-error":       {"the storage is full", "free space on storage fast-ssd, then run qm resume", true},
		"internal-error": {"QEMU cannot continue", "spec.restartToken", true},
		"paused":         {"a user has paused it", "qm resume", false},
	} {
		if err := sim.Freeze(vmidOf(m), state); err != nil {
			t.Fatal(err)
		}
		m = r.Drive("m1", &hypervisortest.Wire{}, "is not Ready: "+tc.reason, hypervisortest.HasReason("Paused"))
		if message := condition(m, "Ready"); m.Status.Phase != v1alpha1.MachineRunning || !strings.Contains(message, tc.remedy) || !strings.Contains(message, state) {
			t.Errorf("%s: phase %s, Ready is %s", state, m.Status.Phase, message)
		}
		if failed := meta.IsStatusConditionFalse(m.Status.Conditions, v1alpha1.ConditionVirtualMachineReady); failed != tc.failed {
			t.Errorf("%s: VirtualMachineReady is %s", state, condition(m, v1alpha1.ConditionVirtualMachineReady))
		}
		if err := sim.Freeze(vmidOf(m), ""); err != nil {
			t.Fatal(err)
		}
		r.Drive("m1", &hypervisortest.Wire{}, "runs again", hypervisortest.IsRunning)
	}
	if err := sim.Freeze(vmidOf(m), "internal-error"); err != nil {
		t.Fatal(err)
	}
	r.Edit("m1", func(m *v1alpha1.Machine) { m.Spec.RestartToken = "again" })
	m = r.Drive("m1", &hypervisortest.Wire{}, "runs after its restart", hypervisortest.IsRunning)
	r.DeleteMachine(m, &hypervisortest.Wire{})
}
