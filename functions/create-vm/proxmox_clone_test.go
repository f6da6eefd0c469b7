package main

import (
	"fmt"
	"maps"
	"slices"
	"strings"
	"testing"
	"time"

	"k8s.io/apimachinery/pkg/api/meta"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/vitistack/stack/apis/v1alpha1"
	"github.com/vitistack/stack/functions/create-vm/hypervisor/hypervisortest"
	proxmoxsim "github.com/vitistack/stack/tests/sim/proxmox"
)

// addTemplate adds the template debian with some options to host pve2 of a Proxmox VE.
func addTemplate(t *testing.T, sim *proxmoxsim.Server, options map[string]string) {
	t.Helper()
	config := maps.Clone(options)
	config["name"], config["template"] = "debian", "1"
	if err := sim.AddMachine(proxmoxsim.Machine{ID: 9000, Node: "pve2", Config: config}, "https://x/debian.qcow2"); err != nil {
		t.Fatal(err)
	}
}

// newClone returns Machine m1, which is cloned from the template debian. Its user data may be empty.
func newClone(r *env, userData string) *v1alpha1.Machine {
	m := &v1alpha1.Machine{ObjectMeta: metav1.ObjectMeta{Name: "m1"}, Spec: v1alpha1.MachineSpec{
		Template: "small", ProviderRef: &v1alpha1.ProviderReference{Name: r.Site.Provider}, OS: &v1alpha1.MachineOS{ImageID: "debian"},
	}}
	if userData != "" {
		m.Spec.CloudInit = &v1alpha1.CloudInit{UserData: userData}
	}
	return m
}

// TestProxmoxClones creates machines from templates on shared storage and on storage of one host, as
// linked and full clones.
func TestProxmoxClones(t *testing.T) {
	t.Parallel()
	for name, tc := range map[string]struct {
		reason         string
		linked         bool
		image, storage string
		node           string
		ready, says    string
		on, root       string
	}{
		"linked-moved": {"a linked clone of a template on shared storage can be on another host", true, "shared", "", "pve3", "MachineRunning", "", "pve3", "fast-ssd:base-9001-disk-0/vm-"},
		"linked-stays": {"a linked clone of a template on local storage is on the same host", true, "local", "", "", "MachineRunning", "", "pve2", "local-lvm:vm-"},
		"linked-far":   {"local storage exists on one host", true, "local", "", "pve3", "InsufficientResources", "template local is on a storage of node pve2 alone", "", ""},
		"full-moved":   {"a full clone on shared storage can be on another host", false, "shared", "fast-ssd", "pve3", "MachineRunning", "", "pve3", "fast-ssd:vm-"},
		"full-stays":   {"a full clone to local storage is on the template's host", false, "shared", "local-lvm", "", "MachineRunning", "", "pve2", "local-lvm:vm-"},
		"full-far":     {"local storage cannot be copied to another host", false, "shared", "local-lvm", "pve1", "InsufficientResources", "can only be copied to a shared storage", "", ""},
		"full-own":     {"a full clone of a template on local storage is on the same host", false, "local", "", "", "MachineRunning", "", "pve2", ":vm-"},
		"full-own-far": {"local storage exists on one host", false, "local", "fast-ssd", "pve1", "InsufficientResources", "template local is on a storage of node pve2 alone", "", ""},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			r, sim := newPVE(t, proxmoxsim.Options{}, func(p *v1alpha1.MachineProvider) {
				p.Spec.Proxmox = &v1alpha1.ProxmoxOptions{LinkedClone: tc.linked}
				p.Spec.Defaults = &v1alpha1.ProviderDefaults{StorageClass: tc.storage}
			})
			for id, template := range map[int][2]string{9000: {"local", "local-lvm"}, 9001: {"shared", "fast-ssd"}} {
				err := sim.AddMachine(proxmoxsim.Machine{ID: id, Node: "pve2", Config: map[string]string{
					"name": template[0], "template": "1", "scsi0": template[1] + ":4", "boot": "order=scsi0",
				}}, "https://x/debian.qcow2")
				if err != nil {
					t.Fatal(err)
				}
			}
			before := len(sim.Volumes())
			r.Create(&v1alpha1.Machine{ObjectMeta: metav1.ObjectMeta{Name: "m1"}, Spec: v1alpha1.MachineSpec{
				Template: "small", ProviderRef: &v1alpha1.ProviderReference{Name: r.Site.Provider}, NodeName: tc.node, OS: &v1alpha1.MachineOS{ImageID: tc.image},
			}})
			m := r.Drive("m1", &hypervisortest.Wire{}, tc.reason, hypervisortest.HasReason(tc.ready))
			if ready := meta.FindStatusCondition(m.Status.Conditions, v1alpha1.ConditionReady); !strings.Contains(ready.Message, tc.says) {
				t.Errorf("%s: got %q, want %q in it", tc.reason, ready.Message, tc.says)
			}
			for _, vm := range sim.Machines() {
				if !strings.Contains(vm.Config["description"], string(m.UID)) {
					continue
				}
				if bases := sim.BasesOf(vm.ID); (len(bases) == 1) != tc.linked {
					t.Errorf("%s: its disk is a linked clone of %v", tc.reason, bases)
				}
				if root := vm.Config["scsi0"]; vm.Node != tc.on || !strings.Contains(root, tc.root) || !strings.Contains(root, "size=20G") {
					t.Errorf("%s: it is on %s with %s, want %s with %s of 20G", tc.reason, vm.Node, root, tc.on, tc.root)
				}
			}
			r.DeleteMachine(m, &hypervisortest.Wire{})
			if now := len(sim.Volumes()); now != before {
				t.Errorf("%d volumes existed before, and %d are left", before, now)
			}
		})
	}
}

// TestProxmoxMemoryWhileRunning changes the memory of running clones. The options of the template
// decide whether memory can be hot-plugged.
func TestProxmoxMemoryWhileRunning(t *testing.T) {
	t.Parallel()
	for name, tc := range map[string]struct {
		reason        string
		numa, hotplug string
		memory        string
		restart       bool
	}{
		"more":    {"memory is plugged in", "1", "network,disk,usb,memory", "4Gi", false},
		"less":    {"memory is never unplugged from a running guest", "1", "network,disk,usb,memory", "1Gi", true},
		"usual":   {"memory hotplug is off by default", "0", "", "4Gi", true},
		"no numa": {"memory hotplug requires NUMA", "0", "network,disk,usb,memory", "4Gi", true},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			r, sim := newPVE(t, proxmoxsim.Options{}, nil)
			config := map[string]string{"scsi0": "local-lvm:4", "boot": "order=scsi0", "numa": tc.numa}
			if tc.hotplug != "" {
				config["hotplug"] = tc.hotplug
			}
			addTemplate(t, sim, config)
			r.Create(newClone(r, ""))
			r.Drive("m1", &hypervisortest.Wire{}, "it runs", hypervisortest.IsRunning)
			memory := resource.MustParse(tc.memory)
			r.Edit("m1", func(m *v1alpha1.Machine) {
				m.Spec.Resources = &v1alpha1.MachineResources{Memory: &v1alpha1.MachineMemory{Size: v1alpha1.Size(tc.memory)}}
			})
			m := r.Drive("m1", &hypervisortest.Wire{}, tc.reason, func(m *v1alpha1.Machine) bool {
				return hypervisortest.IsRunning(m) && m.Status.ObservedGeneration == m.Generation
			})
			if got := condition(m, v1alpha1.ConditionRestartRequired) != ""; got != tc.restart {
				t.Errorf("%s: it waits for a restart: %t", tc.reason, got)
			}
			for _, vm := range sim.Machines() {
				if want := fmt.Sprint(memory.Value() >> 20); vm.ID != 9000 && (vm.Config["memory"] == want) == tc.restart {
					t.Errorf("%s: it has %s MiB, and %v is pending", tc.reason, vm.Config["memory"], vm.Pending)
				}
			}
			r.DeleteMachine(m, &hypervisortest.Wire{})
		})
	}
}

// TestProxmoxPendingDisk adds a disk to a running machine that takes no disk before its next start, and grows the disk meanwhile.
func TestProxmoxPendingDisk(t *testing.T) {
	t.Parallel()
	r, sim := newPVE(t, proxmoxsim.Options{}, nil)
	config := map[string]string{"scsi0": "local-lvm:4", "boot": "order=scsi0", "hotplug": "network,usb"}
	addTemplate(t, sim, config)
	r.Create(newClone(r, ""))
	r.Drive("m1", &hypervisortest.Wire{}, "it runs", hypervisortest.IsRunning)
	for _, size := range []v1alpha1.Size{"1Gi", "2Gi"} {
		r.Edit("m1", func(m *v1alpha1.Machine) {
			m.Spec.Disks = []v1alpha1.MachineDisk{{Name: "root", Size: "20Gi"}, {Name: "data", Size: size}}
		})
		m := r.Drive("m1", &hypervisortest.Wire{}, "waits for a restart with its disk of "+string(size), func(m *v1alpha1.Machine) bool {
			return hypervisortest.IsRunning(m) && m.Status.ObservedGeneration == m.Generation
		})
		const want = "disk data is attached at the next restart of the machine: set spec.restartToken"
		for kind, status := range map[string]string{v1alpha1.ConditionStorageReady: "False PVCPending: ", v1alpha1.ConditionRestartRequired: "True SpecChanged: "} {
			if got := condition(m, kind); !strings.HasPrefix(got, status+want) {
				t.Errorf("%s: %s is %q, want %q", size, kind, got, status+want)
			}
		}
	}
	r.Edit("m1", func(m *v1alpha1.Machine) { m.Spec.RestartToken = "once" })
	m := r.Drive("m1", &hypervisortest.Wire{}, "has its disk", func(m *v1alpha1.Machine) bool {
		return hypervisortest.IsRunning(m) && m.Status.RestartToken == "once" && condition(m, v1alpha1.ConditionRestartRequired) == "" &&
			meta.IsStatusConditionTrue(m.Status.Conditions, v1alpha1.ConditionStorageReady)
	})
	for _, vm := range sim.Machines() {
		if disk := vm.Config["scsi1"]; vm.ID != 9000 && !strings.Contains(disk, "size=2G") {
			t.Errorf("the disk is %s, want 2G", disk)
		}
	}
	r.DeleteMachine(m, &hypervisortest.Wire{})
}

// TestProxmoxTemplateDrives creates machines from templates with their drives where installers and tools leave them.
func TestProxmoxTemplateDrives(t *testing.T) {
	t.Parallel()
	for name, tc := range map[string]struct {
		reason   string
		config   map[string]string
		userData string
		// root is the disk that has to grow. drives are what the drives of CDs have to contain; an empty text is no drive.
		root   string
		drives map[string]string
	}{
		"CDFirst": {
			reason: "the disk that boots is the first disk of the boot order, and not its first device",
			config: map[string]string{"ide2": "local-lvm:cloudinit", "scsi0": "local-lvm:4", "boot": "order=ide2;scsi0"},
			root:   "scsi0", drives: map[string]string{"ide2": "cloudinit"},
		},
		"Bootdisk": {
			reason: "a template from before Proxmox VE 6.3 has no boot order",
			config: map[string]string{"virtio0": "local-lvm:4", "boot": "c", "bootdisk": "virtio0"},
			root:   "virtio0", drives: map[string]string{"ide2": "cloudinit"},
		},
		"NoBootOrder": {
			reason: "Proxmox VE boots the first disk of a template without a boot order",
			config: map[string]string{"virtio0": "local-lvm:4"},
			root:   "virtio0", drives: map[string]string{"ide2": "cloudinit"},
		},
		"OtherDrive": {
			reason: "Proxmox VE accepts one cloud-init drive",
			config: map[string]string{"ide0": "local-lvm:cloudinit", "scsi0": "local-lvm:4", "boot": "order=scsi0"},
			root:   "scsi0", drives: map[string]string{"ide0": "cloudinit", "ide2": ""},
		},
		"OtherDriveCD": {
			reason: "cloud-init may read the cloud-init drive in place of the CD",
			config: map[string]string{"ide0": "local-lvm:cloudinit", "scsi0": "local-lvm:4", "boot": "order=scsi0"}, userData: "#cloud-config\npackages: [curl]\n",
			root: "scsi0", drives: map[string]string{"ide0": "", "ide2": "local:iso/vitistack-"},
		},
		"Installer": {
			reason: "Proxmox VE clones no template to another host whose installer is on local storage",
			config: map[string]string{"ide2": "local:iso/debian.iso,media=cdrom", "scsi0": "fast-ssd:4", "boot": "order=scsi0;ide2"},
			root:   "scsi0", drives: map[string]string{"ide2": "cloudinit"},
		},
		"LocalDrive": {
			reason: "Proxmox VE clones no template to another host whose cloud-init drive is on local storage",
			config: map[string]string{"ide2": "local-lvm:cloudinit", "scsi0": "fast-ssd:4", "boot": "order=scsi0"},
			root:   "scsi0", drives: map[string]string{"ide2": "cloudinit"},
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			r, sim := newPVE(t, proxmoxsim.Options{}, nil)
			if err := sim.AddVolume("local", "iso/debian.iso", "https://x/debian.iso", 1<<28); err != nil {
				t.Fatal(err)
			}
			addTemplate(t, sim, tc.config)
			m := newClone(r, tc.userData)
			r.Create(m)
			m = r.Drive("m1", &hypervisortest.Wire{}, "runs: "+tc.reason, hypervisortest.IsRunning)
			if m.Status.NodeName != "pve2" {
				t.Errorf("%s: it is on %s", tc.reason, m.Status.NodeName)
			}
			for _, vm := range sim.Machines() {
				if vm.ID == 9000 {
					continue
				}
				if root := vm.Config[tc.root]; !strings.Contains(root, "size=20G") {
					t.Errorf("%s: the disk is %q, want 20G", tc.reason, root)
				}
				for drive, want := range tc.drives {
					if got := vm.Config[drive]; !strings.Contains(got, want) || (want == "") != (got == "") {
						t.Errorf("%s: drive %s has %q, want %q", tc.reason, drive, got, want)
					}
				}
			}
			r.DeleteMachine(m, &hypervisortest.Wire{})
		})
	}
}

// TestProxmoxTemplateOptions creates machines from templates with options that contradict the spec.
func TestProxmoxTemplateOptions(t *testing.T) {
	t.Parallel()
	const admin = "#cloud-config\nusers:\n  - name: ops\n    sudo: ALL=(ALL) NOPASSWD:ALL\n"
	files := map[string]string{
		"cicustom": "user=local:snippets/base.yaml,network=local:snippets/network.yaml,vendor=local:snippets/agent.yaml", "ciuser": "base", "cipassword": "secret", "sshkeys": "ssh-rsa%20AAAA",
	}
	for name, tc := range map[string]struct {
		reason        string
		cores         int32
		options, want map[string]string
		userData      string
	}{
		"FewCPUs":  {reason: "the template starts with fewer CPUs than the machine has", cores: 4, options: map[string]string{"cores": "4", "vcpus": "2"}, want: map[string]string{"vcpus": "", "cores": "4"}},
		"ManyCPUs": {reason: "the template starts with more CPUs than the machine has", cores: 1, options: map[string]string{"cores": "4", "vcpus": "2"}, want: map[string]string{"vcpus": "", "cores": "1"}},
		"User": {
			reason: "files of the template replace what the machine configures, and its user has no password and other keys", options: files, userData: admin,
			want: map[string]string{"cicustom": "vendor=local:snippets/agent.yaml", "ciuser": "ops", "cipassword": "", "sshkeys": ""},
		},
		"NoUser": {
			reason: "the user of the template stays, but not its network", options: files,
			want: map[string]string{"cicustom": "user=local:snippets/base.yaml,vendor=local:snippets/agent.yaml", "ciuser": "base", "cipassword": "secret", "sshkeys": "ssh-rsa%20AAAA"},
		},
		"Network": {reason: "the addresses of the machine are in effect", options: map[string]string{"cicustom": "network=local:snippets/network.yaml"}, want: map[string]string{"cicustom": ""}},
		"Snippet": {
			reason: "a listed snippet replaces the user data of the template alone", options: files, userData: "local:snippets/own.yaml",
			want: map[string]string{"cicustom": "vendor=local:snippets/agent.yaml,user=local:snippets/own.yaml"},
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			r, sim := newPVE(t, proxmoxsim.Options{}, func(p *v1alpha1.MachineProvider) {
				p.Spec.Proxmox = &v1alpha1.ProxmoxOptions{AllowedSnippets: []string{"local:snippets/own.yaml"}}
			})
			config := maps.Clone(tc.options)
			config["scsi0"], config["boot"] = "local-lvm:4", "order=scsi0"
			addTemplate(t, sim, config)
			m := newClone(r, tc.userData)
			if tc.cores > 0 {
				m.Spec.Resources = &v1alpha1.MachineResources{CPU: &v1alpha1.MachineCPU{Cores: tc.cores}}
			}
			r.Create(m)
			m = r.Drive("m1", &hypervisortest.Wire{}, "runs: "+tc.reason, hypervisortest.IsRunning)
			if restart := condition(m, v1alpha1.ConditionRestartRequired); restart != "" {
				t.Errorf("%s: RestartRequired is %s", tc.reason, restart)
			}
			for _, vm := range sim.Machines() {
				for option, want := range tc.want {
					if got := vm.Config[option]; vm.ID != 9000 && got != want {
						t.Errorf("%s: %s is %q, want %q", tc.reason, option, got, want)
					}
				}
			}
			r.DeleteMachine(m, &hypervisortest.Wire{})
		})
	}
}

// TestProxmoxProtectedTemplate creates a machine from a protected template, whose clones Proxmox VE protects too, and deletes it.
func TestProxmoxProtectedTemplate(t *testing.T) {
	t.Parallel()
	for name, tc := range map[string]struct {
		reason   string
		userData string
		early    bool
	}{
		"Drive": {reason: "the clone keeps the drive of the template"},
		"CD":    {reason: "a drive of a protected virtual machine cannot be removed", userData: "#cloud-config\npackages: [curl]\n"},
		"Early": {reason: "the clone has not been changed yet", early: true},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			r, sim := newPVE(t, proxmoxsim.Options{}, nil)
			template := map[string]string{"protection": "1", "ide0": "local-lvm:cloudinit", "scsi0": "local-lvm:4", "boot": "order=scsi0"}
			addTemplate(t, sim, template)
			m := newClone(r, tc.userData)
			r.Create(m)
			if tc.early {
				m = r.Drive("m1", &hypervisortest.Wire{}, "is being cloned", func(m *v1alpha1.Machine) bool { return m.Status.Task != nil && m.Status.Task.Action == "clone" })
			} else {
				m = r.Drive("m1", &hypervisortest.Wire{}, "runs: "+tc.reason, hypervisortest.IsRunning)
			}
			if err := r.Kube.Delete(t.Context(), m); err != nil {
				t.Fatal(err)
			}
			m = r.Drive("m1", &hypervisortest.Wire{}, "is gone", func(m *v1alpha1.Machine) bool { return m == nil || hypervisortest.HasReason("Protected")(m) })
			if m != nil {
				t.Errorf("%s: Ready is %s", tc.reason, condition(m, "Ready"))
			}
		})
	}
}

// TestProxmoxCloneDriveFails has no room for the cloud-init drive of a clone at first. The options that Proxmox VE has accepted before are pending then.
func TestProxmoxCloneDriveFails(t *testing.T) {
	t.Parallel()
	r, sim := newPVE(t, proxmoxsim.Options{Storages: []proxmoxsim.Storage{{Name: "thin", Type: "lvmthin", Content: []string{"images"}, Capacity: 40 << 30}}}, nil)
	template := map[string]string{"scsi0": "thin:4", "boot": "order=scsi0"}
	addTemplate(t, sim, template)
	r.Create(newClone(r, ""))
	m := r.Drive("m1", &hypervisortest.Wire{}, "is being cloned", func(m *v1alpha1.Machine) bool { return m.Status.Task != nil && m.Status.Task.Action == "clone" })
	clone := func() (config map[string]string) {
		for _, vm := range sim.Machines() {
			if vm.ID == vmidOf(m) {
				config = vm.Config
			}
		}
		return config
	}
	for began := time.Now(); clone()["scsi0"] == ""; time.Sleep(time.Millisecond) {
		if time.Since(began) > time.Minute {
			t.Fatal("the template is not cloned")
		}
	}
	if err := sim.AddMachine(proxmoxsim.Machine{ID: 200, Node: "pve2", Config: map[string]string{"name": "other", "scsi0": "thin:32"}}, ""); err != nil {
		t.Fatal(err)
	}
	r.Drive("m1", &hypervisortest.Wire{}, "reports that the storage is full", hypervisortest.HasReason("ProxmoxApiError"))
	if err := sim.Destroy(200); err != nil {
		t.Fatal(err)
	}
	m = r.Drive("m1", &hypervisortest.Wire{}, "runs", hypervisortest.IsRunning)
	if config := clone(); !strings.Contains(config["ide2"], "cloudinit") || !strings.Contains(config["tags"], string(m.UID)) {
		t.Errorf("the guest has no first configuration: %v", config)
	}
	r.DeleteMachine(m, &hypervisortest.Wire{})
}

// TestProxmoxCloneStorage clones a template to a shared storage that some hosts have. The host of the template copies it, and needs the storage too.
func TestProxmoxCloneStorage(t *testing.T) {
	t.Parallel()
	for name, tc := range map[string]struct {
		reason, ready, says string
		nodes               []string
	}{
		"Here":  {reason: "the host of the template has the storage", ready: "MachineRunning", nodes: []string{"pve2", "pve3"}},
		"There": {reason: "only other hosts have the storage", ready: "InsufficientResources", says: "node pve2 has template debian, but no storage zone to copy it to", nodes: []string{"pve1", "pve3"}},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			storages := append(cdStorages(false), proxmoxsim.Storage{Name: "zone", Type: "nfs", Content: []string{"images"}, Shared: true, Capacity: 1 << 43, Nodes: tc.nodes})
			r, sim := newPVE(t, proxmoxsim.Options{Storages: storages}, func(p *v1alpha1.MachineProvider) { p.Spec.Defaults = &v1alpha1.ProviderDefaults{StorageClass: "zone"} })
			template := map[string]string{"scsi0": "fast-ssd:4", "boot": "order=scsi0"}
			addTemplate(t, sim, template)
			r.Create(newClone(r, ""))
			m := r.Drive("m1", &hypervisortest.Wire{}, tc.reason, func(m *v1alpha1.Machine) bool {
				return hypervisortest.HasReason(tc.ready)(m) || hypervisortest.HasReason("ProxmoxApiError")(m)
			})
			if ready := condition(m, "Ready"); !strings.Contains(ready, tc.ready) || !strings.Contains(ready, tc.says) {
				t.Errorf("%s: Ready is %s, want %s with %q", tc.reason, ready, tc.ready, tc.says)
			}
			r.DeleteMachine(m, &hypervisortest.Wire{})
		})
	}
}

// TestProxmoxTemplateHostFails has the host of a template stop to answer, and the cluster forget what it knows of the host.
func TestProxmoxTemplateHostFails(t *testing.T) {
	t.Parallel()
	r, sim := newPVE(t, proxmoxsim.Options{}, nil)
	template := map[string]string{"scsi0": "fast-ssd:4", "boot": "order=scsi0"}
	addTemplate(t, sim, template)
	sim.SetOffline("pve2", true)
	var machines []*v1alpha1.Machine
	for i, image := range []string{"debian", "debian", "9000"} {
		name := fmt.Sprintf("m%d", i)
		r.Create(&v1alpha1.Machine{ObjectMeta: metav1.ObjectMeta{Name: name}, Spec: v1alpha1.MachineSpec{
			Template: "small", ProviderRef: &v1alpha1.ProviderReference{Name: r.Site.Provider}, OS: &v1alpha1.MachineOS{ImageID: image},
		}})
		m := r.Drive(name, &hypervisortest.Wire{}, "reports something", func(m *v1alpha1.Machine) bool {
			return slices.ContainsFunc([]string{"HostUnavailable", "ImageNotFound", "ProviderUnavailable"}, func(reason string) bool { return hypervisortest.HasReason(reason)(m) })
		})
		if ready := condition(m, "Ready"); !strings.Contains(ready, "HostUnavailable") || !strings.Contains(ready, "pve2") {
			t.Errorf("%s: Ready is %s, and host pve2 has the template", name, ready)
		}
		machines = append(machines, m)
		sim.ForgetStatistics("pve2")
	}
	sim.SetOffline("pve2", false)
	for _, m := range machines {
		m = r.Drive(m.Name, &hypervisortest.Wire{}, "runs", hypervisortest.IsRunning)
		r.DeleteMachine(m, &hypervisortest.Wire{})
	}
}
