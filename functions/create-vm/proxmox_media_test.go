package main

import (
	"fmt"
	"slices"
	"strings"
	"testing"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/vitistack/stack/apis/v1alpha1"
	"github.com/vitistack/stack/functions/create-vm/hypervisor/hypervisortest"
	proxmoxsim "github.com/vitistack/stack/tests/sim/proxmox"
)

// cdStorages are the storages of a cluster whose machines high availability can move. Their CDs can be on a storage of all hosts if isShared.
func cdStorages(isShared bool) []proxmoxsim.Storage {
	storages := []proxmoxsim.Storage{
		{Name: "local", Type: "dir", Content: []string{"iso", "import"}, Capacity: 1 << 40},
		{Name: "fast-ssd", Type: "rbd", Content: []string{"images"}, Shared: true, Capacity: 1 << 43},
	}
	if isShared {
		storages = append(storages, proxmoxsim.Storage{Name: "isos", Type: "nfs", Content: []string{"iso"}, Shared: true, Capacity: 1 << 33})
	}
	return storages
}

// TestProxmoxCDFollows has high availability start machines with CDs on other hosts.
func TestProxmoxCDFollows(t *testing.T) {
	t.Parallel()
	grants := append(slices.Clone(pveGrants), proxmoxsim.Grant{Path: "/storage/isos", Privileges: pveGrants[2].Privileges})
	for name, isShared := range map[string]bool{"local": false, "shared": true} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			log := &guestLog{guests: map[string]proxmoxsim.Guest{}}
			r, sim := newPVE(t, proxmoxsim.Options{Guests: log, Storages: cdStorages(isShared), Users: []proxmoxsim.User{{Name: pveUser, Grants: grants}}}, nil)
			r.CreateMachine("m1")
			m := r.Drive("m1", &hypervisortest.Wire{}, "runs", hypervisortest.IsRunning)
			host, other := m.Status.NodeName, "pve1"
			if host == other {
				other = "pve2"
			}
			sim.SetOffline(host, true)
			if err := sim.Recover(vmidOf(m), other); err != nil {
				t.Fatal(err)
			}
			if !isShared {
				m = r.Drive("m1", &hypervisortest.Wire{}, "reports that high availability has given it up", hypervisortest.HasReason("ProxmoxApiError"))
				if want := fmt.Sprintf("run ha-manager set vm:%d --state disabled on a node", vmidOf(m)); !strings.Contains(condition(m, "Ready"), want) {
					t.Errorf("Ready is %s, want %q in it", condition(m, "Ready"), want)
				}
				if err := sim.DisableHA(vmidOf(m)); err != nil {
					t.Fatal(err)
				}
			}
			m = r.Drive("m1", &hypervisortest.Wire{}, "runs on the other host", func(m *v1alpha1.Machine) bool { return hypervisortest.IsRunning(m) && m.Status.NodeName == other })
			log.mu.Lock()
			guest := log.guests["m1"]
			log.mu.Unlock()
			if guest.Node != other || guest.UserData != m.Spec.CloudInit.UserData {
				t.Errorf("the guest on %s found the user data %.40q", guest.Node, guest.UserData)
			}
			sim.SetOffline(host, false)
			r.DeleteMachine(m, &hypervisortest.Wire{})
		})
	}
}

// TestProxmoxCDStorageIsRemoved removes the storage of a CD from Proxmox VE, and then stops, starts and deletes the machine.
func TestProxmoxCDStorageIsRemoved(t *testing.T) {
	t.Parallel()
	grants := append(slices.Clone(pveGrants), proxmoxsim.Grant{Path: "/storage/isos", Privileges: pveGrants[2].Privileges})
	for name, restarted := range map[string]bool{"Restarted": true, "Deleted": false} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			log := &guestLog{guests: map[string]proxmoxsim.Guest{}}
			r, sim := newPVE(t, proxmoxsim.Options{Guests: log, Storages: cdStorages(true), Users: []proxmoxsim.User{{Name: pveUser, Grants: grants}}}, nil)
			r.CreateMachine("m1")
			m := r.Drive("m1", &hypervisortest.Wire{}, "runs", hypervisortest.IsRunning)
			sim.RemoveStorage("isos")
			if restarted {
				r.Edit("m1", func(m *v1alpha1.Machine) { m.Spec.RestartToken = "once" })
				m = r.Drive("m1", &hypervisortest.Wire{}, "runs with its CD on another storage", func(m *v1alpha1.Machine) bool {
					return hypervisortest.IsRunning(m) && m.Status.RestartToken == "once"
				})
				log.mu.Lock()
				guest := log.guests["m1"]
				log.mu.Unlock()
				if guest.UserData != m.Spec.CloudInit.UserData {
					t.Errorf("the guest found the user data %.40q", guest.UserData)
				}
			}
			if err := r.Kube.Delete(t.Context(), m); err != nil {
				t.Fatal(err)
			}
			r.Drive("m1", &hypervisortest.Wire{}, "is gone", hypervisortest.IsGone)
			for _, vm := range sim.Machines() {
				t.Errorf("left behind: %v", vm)
			}
		})
	}
}

// TestProxmoxNodeCDFollows moves a node that has not read its machine configuration yet. On the other host it gets the configuration again.
func TestProxmoxNodeCDFollows(t *testing.T) {
	t.Parallel()
	log := &guestLog{guests: map[string]proxmoxsim.Guest{}}
	r, sim := newPVE(t, proxmoxsim.Options{Guests: log, Storages: cdStorages(false)}, nil)
	m := hypervisortest.NewNode("m1")
	m.Spec.ProviderRef = &v1alpha1.ProviderReference{Name: r.Site.Provider}
	r.Create(m)
	m = r.Drive("m1", &hypervisortest.Wire{}, "waits for its configuration", hypervisortest.HasReason(reasonWaitingForMachineConfig))
	const config = "version: v1alpha1\n"
	r.ProvideMachineConfig(m, config)
	holds := func(m *v1alpha1.Machine) bool { return hypervisortest.IsRunning(m) && m.HoldsMachineConfig() }
	m = r.Drive("m1", &hypervisortest.Wire{}, "runs with its configuration", holds)
	host, other := m.Status.NodeName, "pve1"
	if host == other {
		other = "pve2"
	}
	sim.SetOffline(host, true)
	if err := sim.Recover(vmidOf(m), other); err != nil {
		t.Fatal(err)
	}
	if err := sim.DisableHA(vmidOf(m)); err != nil {
		t.Fatal(err)
	}
	m = r.Drive("m1", &hypervisortest.Wire{}, "runs on the other host", func(m *v1alpha1.Machine) bool { return holds(m) && m.Status.NodeName == other })
	log.mu.Lock()
	guest := log.guests["m1"]
	log.mu.Unlock()
	if guest.Node != other || guest.UserData != config {
		t.Errorf("the guest on %s found %q, want %q", guest.Node, guest.UserData, config)
	}
	sim.SetOffline(host, false)
	r.DeleteMachine(m, &hypervisortest.Wire{})
}

// TestProxmoxInstaller creates a machine whose installer is on no host, and then on one, and moves the machine to a host without the installer.
func TestProxmoxInstaller(t *testing.T) {
	t.Parallel()
	r, sim := newPVE(t, proxmoxsim.Options{Storages: cdStorages(false)}, nil)
	const volume = "local:iso/talos.iso"
	r.Create(&v1alpha1.Machine{ObjectMeta: metav1.ObjectMeta{Name: "m1"}, Spec: v1alpha1.MachineSpec{
		Template: "small", ProviderRef: &v1alpha1.ProviderReference{Name: r.Site.Provider}, OS: &v1alpha1.MachineOS{ISOURI: volume},
	}})
	m := r.Drive("m1", &hypervisortest.Wire{}, "reports that no host has the installer", hypervisortest.HasReason("ImageNotFound"))
	if message := condition(m, "Ready"); !strings.Contains(message, "no node that can take the machine has "+volume+": upload it") {
		t.Errorf("Ready is %s", message)
	}
	if left := r.Site.Left(m); len(left) > 0 {
		t.Errorf("nothing may be created: %v", left)
	}
	if err := sim.AddVolumeOn("pve3", "local", "iso/talos.iso", "https://x/talos.iso", 1<<28); err != nil {
		t.Fatal(err)
	}
	r.Edit("m1", func(m *v1alpha1.Machine) {
		metav1.SetMetaDataAnnotation(&m.ObjectMeta, v1alpha1.AnnotationReconcile, "now")
	})
	m = r.Drive("m1", &hypervisortest.Wire{}, "runs", hypervisortest.IsRunning)
	if m.Status.NodeName != "pve3" {
		t.Errorf("it is on %s, and pve3 has the installer", m.Status.NodeName)
	}
	sim.SetOffline("pve3", true)
	if err := sim.Recover(vmidOf(m), "pve1"); err != nil {
		t.Fatal(err)
	}
	if err := sim.DisableHA(vmidOf(m)); err != nil {
		t.Fatal(err)
	}
	m = r.Drive("m1", &hypervisortest.Wire{}, "reports that its host lacks the installer", hypervisortest.HasReason("ImageNotFound"))
	if want := fmt.Sprintf("node pve1 does not have %s, which VM %d needs to start", volume, vmidOf(m)); !strings.Contains(condition(m, "Ready"), want) {
		t.Errorf("Ready is %s, want %q in it", condition(m, "Ready"), want)
	}
	if err := sim.Set(vmidOf(m), "ide0", "none,media=cdrom"); err != nil {
		t.Fatal(err)
	}
	m = r.Drive("m1", &hypervisortest.Wire{}, "runs without its installer", hypervisortest.IsRunning)
	r.DeleteMachine(m, &hypervisortest.Wire{})
}
