package main

import (
	"strings"
	"testing"

	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/vitistack/stack/apis/v1alpha1"
	"github.com/vitistack/stack/functions/create-vm/hypervisor/hypervisortest"
)

// TestProxmoxRemedies follows the message of each condition literally.
func TestProxmoxRemedies(t *testing.T) {
	t.Parallel()
	r := newEnv(t, proxmoxSite)
	memory := func(size v1alpha1.Size) func(*v1alpha1.MachineSpec) {
		return func(s *v1alpha1.MachineSpec) {
			s.Resources = &v1alpha1.MachineResources{Memory: &v1alpha1.MachineMemory{Size: size}}
		}
	}
	root := func(d v1alpha1.MachineDisk) func(*v1alpha1.MachineSpec) {
		return func(s *v1alpha1.MachineSpec) {
			d.Name = "root"
			s.Disks = []v1alpha1.MachineDisk{d}
		}
	}
	cases := map[string]struct {
		wrong        func(*v1alpha1.MachineSpec)
		reason, says string
		remedy       func(*v1alpha1.MachineSpec)
	}{
		"elsewhere": {func(s *v1alpha1.MachineSpec) { s.NodeName = "pve9" }, "NodeNotFound", "write one of pve1, pve2, pve3 into spec.nodeName",
			func(s *v1alpha1.MachineSpec) { s.NodeName = "pve2" }},
		"anywhere": {func(s *v1alpha1.MachineSpec) { s.NodeName = "pve9" }, "NodeNotFound", "or leave it out", func(s *v1alpha1.MachineSpec) { s.NodeName = "" }},
		"less":     {memory("500Gi"), "InsufficientResources", "or ask for less", memory("4Gi")},
		"classy":   {root(v1alpha1.MachineDisk{StorageClass: "slow"}), "StorageClassNotFound", "name one of fast-ssd, local-lvm", root(v1alpha1.MachineDisk{StorageClass: "local-lvm"})},
		"shared":   {root(v1alpha1.MachineDisk{AccessMode: "ReadWriteMany"}), "NotSupported", "leave out accessMode", root(v1alpha1.MachineDisk{})},
		"packed": {func(s *v1alpha1.MachineSpec) { s.OS = &v1alpha1.MachineOS{ImageID: "https://x/debian.raw.xz"} }, "ImageNotSupported", "images that end with .qcow2",
			func(s *v1alpha1.MachineSpec) { s.OS = &v1alpha1.MachineOS{ImageID: "https://x/debian.qcow2"} }},
	}
	for name, tc := range cases {
		m := &v1alpha1.Machine{ObjectMeta: metav1.ObjectMeta{Name: name}, Spec: v1alpha1.MachineSpec{Template: "small", ProviderRef: &v1alpha1.ProviderReference{Name: r.Site.Provider}}}
		tc.wrong(&m.Spec)
		r.Create(m)
		m = r.Drive(name, &hypervisortest.Wire{}, "reports the error", hypervisortest.HasReason(tc.reason))
		if message := meta.FindStatusCondition(m.Status.Conditions, v1alpha1.ConditionReady).Message; !strings.Contains(message, tc.says) {
			t.Errorf("%s: want %q in %s", name, tc.says, message)
		}
		r.Edit(name, func(m *v1alpha1.Machine) { tc.remedy(&m.Spec) })
		r.DeleteMachine(r.Drive(name, &hypervisortest.Wire{}, "runs after the remedy", hypervisortest.IsRunning), &hypervisortest.Wire{})
	}
}

// TestProxmoxDiskRemedies adds disks to a running machine that Proxmox VE cannot create, and follows the message of each condition literally.
func TestProxmoxDiskRemedies(t *testing.T) {
	t.Parallel()
	r := newEnv(t, proxmoxSite)
	disk := func(class string, size v1alpha1.Size) []v1alpha1.MachineDisk {
		return []v1alpha1.MachineDisk{{Name: "data", StorageClass: class, Size: size}}
	}
	for name, tc := range map[string]struct {
		wrong, remedy []v1alpha1.MachineDisk
		reason, says  string
	}{
		"classy":  {disk("slow", "1Gi"), disk("local-lvm", "1Gi"), "StorageClassNotFound", "name one of fast-ssd, local-lvm"},
		"large":   {disk("local-lvm", "9Ti"), disk("local-lvm", "1Gi"), "InsufficientResources", "or a smaller size"},
		"without": {disk("local-lvm", "9Ti"), nil, "InsufficientResources", "or remove the disk from spec.disks"},
	} {
		r.CreateMachine(name)
		r.Drive(name, &hypervisortest.Wire{}, "runs", hypervisortest.IsRunning)
		r.Edit(name, func(m *v1alpha1.Machine) { m.Spec.Disks = tc.wrong })
		m := r.Drive(name, &hypervisortest.Wire{}, "reports the error", hypervisortest.HasReason(tc.reason))
		if message := meta.FindStatusCondition(m.Status.Conditions, v1alpha1.ConditionReady).Message; !strings.Contains(message, tc.says) {
			t.Errorf("%s: want %q in %s", name, tc.says, message)
		}
		r.Edit(name, func(m *v1alpha1.Machine) { m.Spec.Disks = tc.remedy })
		r.DeleteMachine(r.Drive(name, &hypervisortest.Wire{}, "is Ready after the remedy", hypervisortest.IsRunning), &hypervisortest.Wire{})
	}
}
