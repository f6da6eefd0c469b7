package main

import (
	"fmt"
	"strings"
	"testing"
	"time"

	coordinationv1 "k8s.io/api/coordination/v1"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/vitistack/stack/apis/v1alpha1"
	"github.com/vitistack/stack/events"
	"github.com/vitistack/stack/functions/create-vm/hypervisor/hypervisortest"
	proxmoxsim "github.com/vitistack/stack/tests/sim/proxmox"
)

// TestProxmoxMachines creates a machine of each kind, or reports what to change.
func TestProxmoxMachines(t *testing.T) {
	t.Parallel()
	r, sim := newPVE(t, proxmoxsim.Options{Pools: []string{"tenants"}}, func(p *v1alpha1.MachineProvider) {
		p.Spec.Proxmox = &v1alpha1.ProxmoxOptions{VMIDStart: 500, VMIDEnd: 520, Pool: "tenants", CPUType: "host"}
		p.Spec.Defaults = &v1alpha1.ProviderDefaults{StorageClass: "local-lvm"}
	})
	if err := sim.AddMachine(proxmoxsim.Machine{ID: 9000, Node: "pve2", Config: map[string]string{
		"name": "debian-13", "template": "1", "scsi0": "local-lvm:4", "boot": "order=scsi0", "net0": "virtio,bridge=vmbr0", "net1": "virtio,bridge=vmbr0",
	}}, "https://x/debian.qcow2"); err != nil {
		t.Fatal(err)
	}
	if err := sim.AddVolume("local", "iso/talos.iso", "https://x/talos.iso", 1<<28); err != nil {
		t.Fatal(err)
	}
	cases := map[string]struct {
		reason string
		change func(*v1alpha1.MachineSpec)
		ready  string
		config map[string]string
	}{
		"clone": {"a template is cloned where it is stored, and gets the requested size", func(s *v1alpha1.MachineSpec) { s.OS = &v1alpha1.MachineOS{ImageID: "debian-13"} }, "MachineRunning",
			map[string]string{"scsi0": "vm-%-disk-0,size=20G", "ide2": "cloudinit", "net1": "", "cores": "1", "memory": "2048", "cpu": "host"}},
		"image": {"an image is downloaded, imported and resized", func(s *v1alpha1.MachineSpec) { s.OS = &v1alpha1.MachineOS{ImageID: "https://x/debian.qcow2"} }, "MachineRunning", map[string]string{"scsi0": "size=20G"}},
		"iso":   {"the drive contains an installer", func(s *v1alpha1.MachineSpec) { s.OS = &v1alpha1.MachineOS{ISOURI: "local:iso/talos.iso"} }, "MachineRunning", map[string]string{"ide0": "local:iso/talos.iso,media=cdrom", "boot": "order=scsi0;ide0"}},
		"secure": {"secure boot has enrolled keys", func(s *v1alpha1.MachineSpec) {
			s.Domain = &v1alpha1.MachineDomain{Firmware: &v1alpha1.DomainFirmware{Bootloader: v1alpha1.Bootloader{EFI: true, SecureBoot: true}}}
		}, "MachineRunning", map[string]string{"bios": "ovmf", "efidisk0": "pre-enrolled-keys=1", "machine": "q35"}},
		"absent":  {"the template does not exist", func(s *v1alpha1.MachineSpec) { s.OS = &v1alpha1.MachineOS{ImageID: "debian-12"} }, "ImageNotFound", nil},
		"packed":  {"the image format cannot be imported", func(s *v1alpha1.MachineSpec) { s.OS = &v1alpha1.MachineOS{ImageID: "https://x/debian.raw.xz"} }, "ImageNotSupported", nil},
		"nowhere": {"the host does not exist", func(s *v1alpha1.MachineSpec) { s.NodeName = "pve9" }, "NodeNotFound", nil},
		"classy":  {"the storage does not exist", func(s *v1alpha1.MachineSpec) { s.Disks = []v1alpha1.MachineDisk{{Name: "root", StorageClass: "slow"}} }, "StorageClassNotFound", nil},
		"shared": {"a disk cannot be shared by machines", func(s *v1alpha1.MachineSpec) {
			s.Disks = []v1alpha1.MachineDisk{{Name: "root", AccessMode: "ReadWriteMany"}}
		}, "NotSupported", nil},
		"enormous": {"no host has that much memory", func(s *v1alpha1.MachineSpec) {
			s.Resources = &v1alpha1.MachineResources{Memory: &v1alpha1.MachineMemory{Size: "500Gi"}}
		}, "InsufficientResources", nil},
	}
	for name, tc := range cases {
		m := &v1alpha1.Machine{ObjectMeta: metav1.ObjectMeta{Name: name}, Spec: v1alpha1.MachineSpec{Template: "small", ProviderRef: &v1alpha1.ProviderReference{Name: r.Site.Provider}}}
		tc.change(&m.Spec)
		r.Create(m)
	}
	for name, tc := range cases {
		m := r.Drive(name, &hypervisortest.Wire{}, tc.reason, hypervisortest.HasReason(tc.ready))
		for _, vm := range sim.Machines() {
			if !strings.Contains(vm.Config["description"], string(m.UID)) {
				continue
			}
			if vm.ID < 500 || vm.ID > 520 || vm.Pool != "tenants" {
				t.Errorf("%s: VMID %d, pool %q", name, vm.ID, vm.Pool)
			}
			for key, want := range tc.config {
				want = strings.ReplaceAll(want, "%", strings.TrimPrefix(m.Status.ProviderID, "proxmox://"+vm.Node+"/"))
				if got := vm.Config[key]; !strings.Contains(got, want) || (want == "" && got != "") {
					t.Errorf("%s: %s: %s is %q, want %q in it", name, tc.reason, key, got, want)
				}
			}
		}
		r.DeleteMachine(m, &hypervisortest.Wire{})
	}
}

// TestProxmoxCredentials reports what to correct. A correction takes effect at once.
func TestProxmoxCredentials(t *testing.T) {
	t.Parallel()
	r, sim := newPVE(t, proxmoxsim.Options{Users: []proxmoxsim.User{{Name: "ops@pam", Password: "old", Grants: pveGrants}}}, nil)
	r.CreateMachine("m1")
	r.Drive("m1", &hypervisortest.Wire{}, "runs", hypervisortest.IsRunning)
	secret := &corev1.Secret{}
	if err := r.Kube.Get(t.Context(), r.Namespace, "proxmox", secret); err != nil {
		t.Fatal(err)
	}
	ca := secret.Data["ca.crt"]
	set := func(data map[string]string) {
		before := secret.DeepCopy()
		secret.Data = map[string][]byte{}
		for key, value := range data {
			secret.Data[key] = []byte(value)
		}
		if _, err := r.Kube.Patch(t.Context(), before, secret); err != nil {
			t.Fatal(err)
		}
	}
	for _, step := range []struct {
		data  map[string]string
		ready string
	}{
		{map[string]string{"tokenID": pveToken, "tokenSecret": "wrong", "ca.crt": string(ca)}, "CredentialsInvalid"},
		{map[string]string{"tokenID": pveToken, "tokenSecret": pveSecret}, "EndpointUntrusted"},
		{map[string]string{"ca.crt": string(ca)}, "CredentialsInvalid"},
		{map[string]string{"username": "ops", "password": "old", "ca.crt": string(ca)}, "MachineRunning"},
		{map[string]string{"tokenID": "low@pve!t", "tokenSecret": "s", "ca.crt": string(ca)}, "PermissionDenied"},
		{map[string]string{"tokenID": pveToken, "tokenSecret": pveSecret, "ca.crt": string(ca)}, "MachineRunning"},
	} {
		sim.SetUser(proxmoxsim.User{Name: "low@pve"})
		sim.SetToken(proxmoxsim.Token{ID: "low@pve!t", Secret: "s"})
		set(step.data)
		m := r.Drive("m1", &hypervisortest.Wire{}, "says "+step.ready, hypervisortest.HasReason(step.ready))
		if m.Status.Phase != v1alpha1.MachineRunning {
			t.Errorf("%s: the machine keeps running: got phase %s", step.ready, m.Status.Phase)
		}
	}
	r.DeleteMachine(r.Drive("m1", &hypervisortest.Wire{}, "runs", hypervisortest.IsRunning), &hypervisortest.Wire{})
}

// TestProxmoxProviderStatus checks the usage and the free capacity of hosts in the status.
func TestProxmoxProviderStatus(t *testing.T) {
	t.Parallel()
	r := newEnv(t, proxmoxSite)
	r.CreateMachine("m1")
	m := r.Drive("m1", &hypervisortest.Wire{}, "runs", hypervisortest.IsRunning)
	w := &hypervisortest.Wire{}
	for range 2 {
		if err := deliver(t.Context(), r.process(w), lookAtProvider(r.Site.Provider, events.TypeResync)); err != nil {
			t.Fatal(err)
		}
	}
	s := r.providerNow().Status
	left := s.Capacity.Memory.DeepCopy()
	for _, n := range s.Nodes {
		if n.CPUUsed == nil || n.MemoryUsed == nil || n.CPUUsed.Cmp(n.CPU) > 0 {
			t.Fatalf("%+v lacks the usage", n)
		}
		if busy := n.CPUUsed.MilliValue() > n.CPU.MilliValue()/100; busy != (n.Name == m.Status.NodeName) {
			t.Errorf("%s uses %s of %s CPUs, and the machine is on %s", n.Name, n.CPUUsed, &n.CPU, m.Status.NodeName)
		}
		left.Sub(*n.MemoryUsed)
	}
	if s.Capacity.MemoryAvailable.Cmp(left) != 0 {
		t.Errorf("%s is available, want the unused memory of the hosts, %s", &s.Capacity.MemoryAvailable, &left)
	}
	if writes := w.Count["PATCH /apis/vitistack.io/v1alpha1/machineproviders/proxmox-*/status"]; writes != 1 {
		t.Errorf("%d writes for an unchanged status: %v", writes, w.Count)
	}
	r.DeleteMachine(m, &hypervisortest.Wire{})
}

// TestProxmoxNoOvercommit creates machines until the memory of the only host belongs to machines. Their guests use a quarter of it.
func TestProxmoxNoOvercommit(t *testing.T) {
	t.Parallel()
	r, sim := newPVE(t, proxmoxsim.Options{Nodes: []proxmoxsim.Node{{Name: "pve1", CPUs: 32, Memory: 10 << 30, Bridges: []string{"vmbr0"}}}}, nil)
	create := func(name string) {
		r.Create(&v1alpha1.Machine{ObjectMeta: metav1.ObjectMeta{Name: name}, Spec: v1alpha1.MachineSpec{
			Template: "small", ProviderRef: &v1alpha1.ProviderReference{Name: r.Site.Provider}, Resources: &v1alpha1.MachineResources{Memory: &v1alpha1.MachineMemory{Size: "3Gi"}},
		}})
	}
	for _, name := range []string{"m1", "m2", "m3"} {
		create(name)
		r.Drive(name, &hypervisortest.Wire{}, "runs", hypervisortest.IsRunning)
	}
	create("m4")
	m := r.Drive("m4", &hypervisortest.Wire{}, "fits on no host", hypervisortest.HasReason("InsufficientResources"))
	if message := meta.FindStatusCondition(m.Status.Conditions, v1alpha1.ConditionReady).Message; !strings.Contains(message, "pve1: it has 1Gi of memory left") {
		t.Errorf("the message does not say what the host has left: %s", message)
	}
	if n := len(sim.Machines()); n != 3 {
		t.Errorf("%d virtual machines exist", n)
	}
}

// TestProxmoxConcurrentPlacement chooses the hosts of machines whose creation Proxmox VE has not begun. Each host has room for one.
func TestProxmoxConcurrentPlacement(t *testing.T) {
	t.Parallel()
	nodes := []proxmoxsim.Node{{Name: "pve1", CPUs: 32, Memory: 8 << 30, Bridges: []string{"vmbr0"}}, {Name: "pve2", CPUs: 32, Memory: 7 << 30, Bridges: []string{"vmbr0"}}}
	r, sim := newPVE(t, proxmoxsim.Options{Nodes: nodes, Times: proxmoxsim.Times{Stats: time.Minute}}, nil)
	names := []string{"m1", "m2", "m3"}
	for _, name := range names {
		r.Create(&v1alpha1.Machine{ObjectMeta: metav1.ObjectMeta{Name: name}, Spec: v1alpha1.MachineSpec{
			Template: "small", ProviderRef: &v1alpha1.ProviderReference{Name: r.Site.Provider}, Resources: &v1alpha1.MachineResources{Memory: &v1alpha1.MachineMemory{Size: "4Gi"}},
		}})
	}
	r.Drive("m1", &hypervisortest.Wire{}, "claims a host", func(m *v1alpha1.Machine) bool { return m.Status.ProviderID != "" })
	m := r.Drive("m2", &hypervisortest.Wire{}, "claims the other host", func(m *v1alpha1.Machine) bool { return m.Status.ProviderID != "" })
	if !strings.HasPrefix(m.Status.ProviderID, "proxmox://pve2/") {
		t.Errorf("m2 claims %s, and m1 has claimed the memory of pve1", m.Status.ProviderID)
	}
	r.Drive("m3", &hypervisortest.Wire{}, "fits on no host", hypervisortest.HasReason("InsufficientResources"))
	if n := len(sim.Machines()); n != 0 {
		t.Errorf("%d virtual machines exist already", n)
	}
	for _, name := range names[:2] {
		r.Drive(name, &hypervisortest.Wire{}, "runs", hypervisortest.IsRunning)
	}
	r.Drive("m3", &hypervisortest.Wire{}, "still fits on no host", hypervisortest.HasReason("InsufficientResources"))
	if n := len(sim.Machines()); n != 2 {
		t.Errorf("%d virtual machines exist, want 2", n)
	}
}

// TestProxmoxSimultaneousClaims has two machines claim the memory of one host before either has seen the claim of the other one: the
// later one yields.
func TestProxmoxSimultaneousClaims(t *testing.T) {
	t.Parallel()
	nodes := []proxmoxsim.Node{{Name: "pve1", CPUs: 32, Memory: 8 << 30, Bridges: []string{"vmbr0"}}}
	r, sim := newPVE(t, proxmoxsim.Options{Nodes: nodes}, nil)
	create := func(name string) {
		r.Create(&v1alpha1.Machine{ObjectMeta: metav1.ObjectMeta{Name: name}, Spec: v1alpha1.MachineSpec{
			Template: "small", ProviderRef: &v1alpha1.ProviderReference{Name: r.Site.Provider}, Resources: &v1alpha1.MachineResources{Memory: &v1alpha1.MachineMemory{Size: "4Gi"}},
		}})
	}
	claimed := func(m *v1alpha1.Machine) bool { return m.Status.ProviderID != "" }
	create("m1")
	first := r.Drive("m1", &hypervisortest.Wire{}, "claims the host", claimed)
	lease := &coordinationv1.Lease{}
	if err := r.Kube.Get(t.Context(), defaultNamespace, fmt.Sprintf("vmid-%s-%d", r.Site.Provider, vmidOf(first)), lease); err != nil {
		t.Fatal(err)
	}
	if err := r.Kube.Delete(t.Context(), lease); err != nil { // m2 does not see it
		t.Fatal(err)
	}
	create("m2")
	r.Drive("m2", &hypervisortest.Wire{}, "claims the host too", claimed)
	lease.ResourceVersion, lease.UID = "", ""
	if err := r.Kube.Create(t.Context(), lease); err != nil {
		t.Fatal(err)
	}
	r.Drive("m1", &hypervisortest.Wire{}, "yields to m2, whose claim was first", hypervisortest.HasReason("InsufficientResources"))
	r.Drive("m2", &hypervisortest.Wire{}, "runs", hypervisortest.IsRunning)
	r.Create(&v1alpha1.Machine{ObjectMeta: metav1.ObjectMeta{Name: "m3"}, Spec: v1alpha1.MachineSpec{
		Template: "small", ProviderRef: &v1alpha1.ProviderReference{Name: r.Site.Provider}, Resources: &v1alpha1.MachineResources{Memory: &v1alpha1.MachineMemory{Size: "1Gi"}},
	}})
	m3 := r.Drive("m3", &hypervisortest.Wire{}, "runs, because m1 claims no memory while it waits", hypervisortest.IsRunning)
	if n := len(sim.Machines()); n != 2 {
		t.Errorf("%d virtual machines exist, want 2", n)
	}
	r.DeleteMachine(m3, &hypervisortest.Wire{})
	if err := r.Kube.Delete(t.Context(), r.Drive("m2", &hypervisortest.Wire{}, "runs", hypervisortest.IsRunning)); err != nil {
		t.Fatal(err)
	}
	r.Drive("m2", &hypervisortest.Wire{}, "is gone", hypervisortest.IsGone)
	r.Drive("m1", &hypervisortest.Wire{}, "runs once there is room", hypervisortest.IsRunning)
}

// TestProxmoxLongDiskNames starts a machine of Proxmox VE 8.4 whose disks have names of all lengths.
func TestProxmoxLongDiskNames(t *testing.T) {
	t.Parallel()
	grants := without("VM.GuestAgent.Audit")
	grants[0].Privileges = append(grants[0].Privileges, "VM.Monitor")
	r, sim := newPVE(t, proxmoxsim.Options{Version: "8.4.14", Users: []proxmoxsim.User{{Name: pveUser, Grants: grants}}}, nil)
	names := []string{"root", "database-of-customer", "database-of-customers", "database-of-customers-in-the-north-west1", "database-of-customers-in-the-north-west2"}
	m := &v1alpha1.Machine{ObjectMeta: metav1.ObjectMeta{Name: "m1"}, Spec: v1alpha1.MachineSpec{Template: "small", ProviderRef: &v1alpha1.ProviderReference{Name: r.Site.Provider}}}
	for _, name := range names {
		m.Spec.Disks = append(m.Spec.Disks, v1alpha1.MachineDisk{Name: name, Size: "1Gi"})
	}
	r.Create(m)
	m = r.Drive("m1", &hypervisortest.Wire{}, "runs", hypervisortest.IsRunning)
	r.Edit("m1", func(m *v1alpha1.Machine) { m.Spec.Disks[4].Size = "2Gi" })
	m = r.Drive("m1", &hypervisortest.Wire{}, "has a larger disk", func(now *v1alpha1.Machine) bool {
		return hypervisortest.IsRunning(now) && now.Status.ObservedGeneration > m.Generation
	})
	for _, vm := range sim.Machines() {
		if vm.Config["scsi5"] != "" || !strings.Contains(vm.Config["scsi1"], "serial=database-of-customer,") || !strings.Contains(vm.Config["scsi4"], "size=2G") {
			t.Errorf("its disks are %v", vm.Config)
		}
	}
	r.DeleteMachine(m, &hypervisortest.Wire{})
}

// TestProxmoxOnBoot expects that a host which boots starts the machines that are to run, and no others.
func TestProxmoxOnBoot(t *testing.T) {
	t.Parallel()
	r, sim := newPVE(t, proxmoxsim.Options{}, nil)
	m := r.CreateMachine("m1")
	for _, tc := range []struct {
		state v1alpha1.PowerState
		phase v1alpha1.MachinePhase
		want  string
	}{{v1alpha1.PowerRunning, v1alpha1.MachineRunning, "1"}, {v1alpha1.PowerStopped, v1alpha1.MachineStopped, "0"}, {v1alpha1.PowerRunning, v1alpha1.MachineRunning, "1"}} {
		r.Edit("m1", func(m *v1alpha1.Machine) { m.Spec.PowerState = tc.state })
		m = r.Drive("m1", &hypervisortest.Wire{}, "is "+string(tc.phase), func(m *v1alpha1.Machine) bool {
			return m.Status.Phase == tc.phase && m.Status.ObservedGeneration == m.Generation
		})
		for _, vm := range sim.Machines() {
			if vm.Config["onboot"] != tc.want {
				t.Errorf("%s: onboot is %q, want %q", tc.state, vm.Config["onboot"], tc.want)
			}
		}
	}
	r.DeleteMachine(m, &hypervisortest.Wire{})
}
