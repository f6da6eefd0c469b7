package main

import (
	"net/netip"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/vitistack/stack/apis/v1alpha1"
	"github.com/vitistack/stack/events"
	proxmoxsim "github.com/vitistack/stack/tests/sim/proxmox"
)

func TestChoose(t *testing.T) {
	t.Parallel()
	const gib = 1 << 30
	node := func(name string, used int64) item {
		return item{Type: "node", Node: name, Status: "online", MaxCPU: 8, MaxMem: 16 * gib, Mem: used * gib}
	}
	disks := func(node string, used int64) item {
		return item{Type: "storage", Node: node, Storage: "lvm", Status: "available", Content: "images,rootdir", MaxDisk: 100 * gib, Disk: used * gib}
	}
	vm := func(node, status string, tags ...string) item {
		return item{Type: "qemu", Node: node, Status: status, VMID: 1, MaxMem: 12 * gib, TagList: strings.Join(append(tags, tagManaged), ";")}
	}
	base := cluster{node("a", 4), node("b", 2), node("c", 6), disks("a", 0), disks("b", 0), disks("c", 0)}
	need := demand{memory: 4 * gib, cpus: 2, disks: []disk{{name: "root", size: resource.MustParse("20Gi")}}}
	group := []string{"cluster-x", "role-worker"}
	cases := map[string]struct {
		reason string
		more   cluster
		change func(*demand)
		want   []string
		why    map[string]string
	}{
		"memory":  {reason: "the most free memory comes first", want: []string{"b", "a", "c"}},
		"named":   {reason: "only the named host counts", change: func(d *demand) { d.node = "c" }, want: []string{"c"}},
		"reserve": {reason: "a machine of ours that is off will be on", more: cluster{vm("b", "stopped")}, want: []string{"a", "c"}, why: map[string]string{"b": "it has 2Gi of memory left"}},
		"spread": {reason: "hosts with fewer of the group come first", more: cluster{vm("b", "running", group...), vm("a", "running", group...)},
			change: func(d *demand) { d.group = group }, want: []string{"c", "a", "b"}},
		"turns": {reason: "machines of a group that are made at once take turns", change: func(d *demand) { d.group, d.ordinal = group, 1 }, want: []string{"b", "c", "a"}},
		"full": {reason: "a full storage is left out", more: cluster{}, change: func(d *demand) { d.disks = []disk{{name: "root", size: resource.MustParse("200Gi")}} },
			why: map[string]string{"a": "its storage lvm is full", "b": "its storage lvm is full", "c": "its storage lvm is full"}},
		"cpus": {reason: "a host has as many processors as the machine", change: func(d *demand) { d.cpus = 16 }, why: map[string]string{"a": "it has 8 CPUs", "b": "it has 8 CPUs", "c": "it has 8 CPUs"}},
		"off":  {reason: "a host that does not answer is left out", more: cluster{{Type: "node", Node: "d", Status: "offline"}}, want: []string{"b", "a", "c"}, why: map[string]string{"d": "it does not answer"}},
	}
	for name, tc := range cases {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			d := need
			if tc.change != nil {
				tc.change(&d)
			}
			fit, why := append(slices.Clone(base), tc.more...).rankHosts(d)
			var got []string
			for _, p := range fit {
				got = append(got, p.node)
			}
			if diff := cmp.Diff(tc.want, got); diff != "" {
				t.Errorf("%s (-want +got):\n%s", tc.reason, diff)
			}
			for node, what := range tc.why {
				if why[node] != what {
					t.Errorf("%s: %s: got %q, want %q", tc.reason, node, why[node], what)
				}
			}
		})
	}
}

func TestFirstBoot(t *testing.T) {
	t.Parallel()
	nics := []nic{{
		static: true, dns: []string{"192.0.2.1"}, addresses: []netip.Prefix{netip.MustParsePrefix("192.0.2.10/24"), netip.MustParsePrefix("2001:db8::10/64")},
		gateways: []netip.Addr{netip.MustParseAddr("192.0.2.1"), netip.MustParseAddr("2001:db8::1")},
	}, {}}
	addresses := map[string]string{"ciupgrade": "0", "citype": "nocloud", "ipconfig0": "ip=192.0.2.10/24,ip6=2001:db8::10/64,gw=192.0.2.1,gw6=2001:db8::1", "ipconfig1": "ip=dhcp", "nameserver": "192.0.2.1"}
	with := func(more map[string]string) map[string]string {
		for key, value := range addresses {
			more[key] = value
		}
		return more
	}
	const admin = "#cloud-config\nusers:\n  - name: admin\n    sudo: ALL=(ALL) NOPASSWD:ALL\n    ssh_authorized_keys: [ssh-rsa AAAA+]\n"
	cases := map[string]struct {
		reason, userData, networkData string
		options                       map[string]string
		cd                            bool
	}{
		"none":    {reason: "addresses alone fit into the drive", options: with(map[string]string{})},
		"admin":   {reason: "so does one administrator", userData: admin, options: with(map[string]string{"ciuser": "admin", "sshkeys": "ssh-rsa%20AAAA%2B"})},
		"more":    {reason: "packages do not", userData: admin + "packages: [curl]\n", cd: true},
		"snippet": {reason: "a snippet is named", userData: "local:snippets/base.yaml\n", options: with(map[string]string{"cicustom": "user=local:snippets/base.yaml"})},
		"script":  {reason: "a script does not fit", userData: "#!/bin/sh\n", cd: true},
		"network": {reason: "a network configuration of one's own does not fit", networkData: "version: 2", cd: true},
	}
	for name, tc := range cases {
		m := &v1alpha1.Machine{Spec: v1alpha1.MachineSpec{CloudInit: &v1alpha1.CloudInit{UserData: tc.userData, NetworkData: tc.networkData}}}
		got := firstBoot(m, wanted{nics: nics, userData: tc.userData, networkData: tc.networkData})
		if diff := cmp.Diff(tc.options, got.options); diff != "" || got.iso() != tc.cd {
			t.Errorf("%s: %s: CD %t, options (-want +got):\n%s", name, tc.reason, got.iso(), diff)
		}
	}
}

func TestImageURL(t *testing.T) {
	t.Parallel()
	talos := "https://factory.talos.dev/image/" + strings.Repeat("0a", 32) + "/v1.13.9/nocloud-amd64"
	for id, want := range map[string]string{
		"9000": "", "debian-13": "", "https://x/debian.qcow2": "https://x/debian.qcow2", talos + ".raw.xz": talos + ".qcow2", talos + ".raw.zst": talos + ".qcow2",
	} {
		m := &v1alpha1.Machine{Spec: v1alpha1.MachineSpec{OS: &v1alpha1.MachineOS{ImageID: id}}}
		if got := imageURL(m); got != want {
			t.Errorf("%s: got %q, want %q", id, got, want)
		}
	}
}

// TestProxmoxMachines makes a machine of each kind, or shows what to change.
func TestProxmoxMachines(t *testing.T) {
	t.Parallel()
	var sim *proxmoxsim.Server
	r := newRig(t, func(r *rig) *site {
		server, p := r.pve(proxmoxsim.Options{Pools: []string{"tenants"}}, func(p *v1alpha1.MachineProvider) {
			p.Spec.Proxmox = &v1alpha1.ProxmoxOptions{VMIDStart: 500, VMIDEnd: 520, Pool: "tenants", CPUType: "host"}
			p.Spec.Defaults = &v1alpha1.ProviderDefaults{StorageClass: "local-lvm"}
		})
		sim = server
		return pveSite(r, server, p.Name)
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
		"clone": {"a template is cloned where it is, and gets what the machine asks for", func(s *v1alpha1.MachineSpec) { s.OS = &v1alpha1.MachineOS{ImageID: "debian-13"} }, "MachineRunning",
			map[string]string{"scsi0": "vm-%-disk-0,size=20G", "ide2": "cloudinit", "net1": "", "cores": "1", "memory": "2048", "cpu": "host"}},
		"image": {"an image is fetched, imported and grown", func(s *v1alpha1.MachineSpec) { s.OS = &v1alpha1.MachineOS{ImageID: "https://x/debian.qcow2"} }, "MachineRunning", map[string]string{"scsi0": "size=20G"}},
		"iso":   {"an installer is in the drive", func(s *v1alpha1.MachineSpec) { s.OS = &v1alpha1.MachineOS{ISOURI: "local:iso/talos.iso"} }, "MachineRunning", map[string]string{"ide0": "local:iso/talos.iso,media=cdrom", "boot": "order=scsi0;ide0"}},
		"secure": {"secure boot has its keys", func(s *v1alpha1.MachineSpec) {
			s.Domain = &v1alpha1.MachineDomain{Firmware: &v1alpha1.DomainFirmware{Bootloader: v1alpha1.Bootloader{EFI: true, SecureBoot: true}}}
		}, "MachineRunning", map[string]string{"bios": "ovmf", "efidisk0": "pre-enrolled-keys=1", "machine": "q35"}},
		"absent":  {"a template that is not there", func(s *v1alpha1.MachineSpec) { s.OS = &v1alpha1.MachineOS{ImageID: "debian-12"} }, "ImageNotFound", nil},
		"packed":  {"an image that cannot be imported", func(s *v1alpha1.MachineSpec) { s.OS = &v1alpha1.MachineOS{ImageID: "https://x/debian.raw.xz"} }, "ImageNotSupported", nil},
		"nowhere": {"a host that is not there", func(s *v1alpha1.MachineSpec) { s.NodeName = "pve9" }, "NodeNotFound", nil},
		"classy":  {"a storage that is not there", func(s *v1alpha1.MachineSpec) { s.Disks = []v1alpha1.MachineDisk{{Name: "root", StorageClass: "slow"}} }, "StorageClassNotFound", nil},
		"shared": {"a disk of many machines", func(s *v1alpha1.MachineSpec) {
			s.Disks = []v1alpha1.MachineDisk{{Name: "root", AccessMode: "ReadWriteMany"}}
		}, "NotSupported", nil},
		"enormous": {"more memory than any host has", func(s *v1alpha1.MachineSpec) {
			s.Resources = &v1alpha1.MachineResources{Memory: &v1alpha1.MachineMemory{Size: "500Gi"}}
		}, insufficient, nil},
	}
	for name, tc := range cases {
		m := &v1alpha1.Machine{ObjectMeta: metav1.ObjectMeta{Name: name}, Spec: v1alpha1.MachineSpec{Template: "small", ProviderRef: &v1alpha1.ProviderReference{Name: r.site.provider}}}
		tc.change(&m.Spec)
		r.create(m)
	}
	for name, tc := range cases {
		m := r.drive(name, &wire{}, tc.reason, ready(tc.ready))
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
		r.clean(m, &wire{})
	}
}

// TestProxmoxCredentials shows what to correct, and that a correction counts at once.
func TestProxmoxCredentials(t *testing.T) {
	t.Parallel()
	var sim *proxmoxsim.Server
	r := newRig(t, func(r *rig) *site {
		server, p := r.pve(proxmoxsim.Options{Users: []proxmoxsim.User{{Name: "ops@pam", Password: "old", Grants: pveGrants}}}, nil)
		sim = server
		return pveSite(r, server, p.Name)
	})
	r.machine("m1")
	r.drive("m1", &wire{}, "runs", running)
	secret := &corev1.Secret{}
	if err := r.kube.Get(t.Context(), r.namespace, "proxmox", secret); err != nil {
		t.Fatal(err)
	}
	ca := secret.Data["ca.crt"]
	set := func(data map[string]string) {
		before := secret.DeepCopy()
		secret.Data = map[string][]byte{}
		for key, value := range data {
			secret.Data[key] = []byte(value)
		}
		if _, err := r.kube.Patch(t.Context(), before, secret); err != nil {
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
		m := r.drive("m1", &wire{}, "says "+step.ready, ready(step.ready))
		if m.Status.Phase != v1alpha1.MachineRunning {
			t.Errorf("%s: the machine runs on: got phase %s", step.ready, m.Status.Phase)
		}
	}
	r.clean(r.drive("m1", &wire{}, "runs", running), &wire{})
}

// TestProxmoxProviderStatus reads of hosts what they use, and what is left on them.
func TestProxmoxProviderStatus(t *testing.T) {
	t.Parallel()
	r := newRig(t, proxmoxSite)
	r.machine("m1")
	m := r.drive("m1", &wire{}, "runs", running)
	w := &wire{}
	for range 2 {
		if err := deliver(t.Context(), r.process(w), lookAtProvider(r.site.provider, events.TypeResync)); err != nil {
			t.Fatal(err)
		}
	}
	s := r.providerNow().Status
	left := s.Capacity.Memory.DeepCopy()
	for _, n := range s.Nodes {
		if n.CPUUsed == nil || n.MemoryUsed == nil || n.CPUUsed.Cmp(n.CPU) > 0 {
			t.Fatalf("%+v lacks what is measured", n)
		}
		if busy := n.CPUUsed.MilliValue() > n.CPU.MilliValue()/100; busy != (n.Name == m.Status.NodeName) {
			t.Errorf("%s uses %s of %s CPUs, and the machine is on %s", n.Name, n.CPUUsed, &n.CPU, m.Status.NodeName)
		}
		left.Sub(*n.MemoryUsed)
	}
	if s.Capacity.MemoryAvailable.Cmp(left) != 0 {
		t.Errorf("%s is available, want what hosts do not use, %s", &s.Capacity.MemoryAvailable, &left)
	}
	if writes := w.count["PATCH /apis/vitistack.io/v1alpha1/machineproviders/proxmox-*/status"]; writes != 1 {
		t.Errorf("%d writes for one state: %v", writes, w.count)
	}
	r.clean(m, &wire{})
}
