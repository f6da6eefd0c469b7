package main

import (
	"fmt"
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	kubevirtv1 "kubevirt.io/api/core/v1"

	"github.com/vitistack/stack/apis/v1alpha1"
	"github.com/vitistack/stack/functions/create-vm/hypervisor/hypervisortest"
	"github.com/vitistack/stack/functions/internal/kube"
	"github.com/vitistack/stack/tests/stand/feed"
)

// TestRestoredSnapshot restores a stopped machine, starts it and grows its restored disk.
func TestRestoredSnapshot(t *testing.T) {
	t.Parallel()
	s := setUp(t)
	for name, tc := range map[string]struct {
		reason string
		os     *v1alpha1.MachineOS
	}{
		"blank":     {"KubeVirt renames the claims", nil},
		"image":     {"KubeVirt renames the DataVolume of the first disk", &v1alpha1.MachineOS{ImageID: "https://images.example.com/linux.qcow2"}},
		"installer": {"KubeVirt renames the DataVolume of the CD", &v1alpha1.MachineOS{ISOURI: "https://images.example.com/linux.iso"}},
	} {
		disks := func(size v1alpha1.Size) []v1alpha1.MachineDisk {
			return []v1alpha1.MachineDisk{{Name: "root", Size: size}, {Name: "data", Size: "1Gi"}}
		}
		s.Create(machineWith(name, func(m *v1alpha1.MachineSpec) { m.OS, m.Disks = tc.os, disks("20Gi") }))
		s.awaitMachine(name, "runs", hypervisortest.IsRunning)
		s.Edit(name, func(m *v1alpha1.Machine) { m.Spec.PowerState = v1alpha1.PowerStopped })
		s.awaitMachine(name, "stops", func(m *v1alpha1.Machine) bool { return m.Status.Phase == v1alpha1.MachineStopped })
		s.restore(name)
		s.Edit(name, func(m *v1alpha1.Machine) { m.Spec.PowerState, m.Spec.Disks = v1alpha1.PowerRunning, disks("30Gi") })
		s.awaitMachine(name, "runs with its restored disks", func(m *v1alpha1.Machine) bool {
			return hypervisortest.IsRunning(m) && m.Status.ObservedGeneration == m.Generation && meta.IsStatusConditionTrue(m.Status.Conditions, "StorageReady")
		})
		claim := &corev1.PersistentVolumeClaim{}
		if err := s.Kube.Get(t.Context(), s.Namespace, "restore-"+name+"-root", claim); err != nil || claim.Status.Capacity.Storage().String() != "30Gi" {
			t.Errorf("%s: the restored disk has %s, want 30Gi: %v", tc.reason, claim.Status.Capacity.Storage(), err)
		}
		if err := s.Kube.Delete(t.Context(), &v1alpha1.Machine{ObjectMeta: metav1.ObjectMeta{Namespace: s.Namespace, Name: name}}); err != nil {
			t.Fatal(err)
		}
		s.awaitEmpty()
	}
}

// restore changes a virtual machine as KubeVirt's restore of a snapshot does by default: createRestorePVC, generateRestoredVMSpec and
// findDatavolumesForDeletion in its pkg/storage/snapshot/restore.go (1.8.4).
func (e *env) restore(name string) {
	e.Helper()
	vm := &kubevirtv1.VirtualMachine{}
	if err := e.Kube.Get(e.Context(), e.Namespace, name, vm); err != nil {
		e.Fatal(err)
	}
	restored := map[string]string{} // by the name of the claim before
	for _, v := range vm.Spec.Template.Spec.Volumes {
		claim := ""
		switch {
		case v.PersistentVolumeClaim != nil:
			claim = v.PersistentVolumeClaim.ClaimName
		case v.DataVolume != nil:
			claim = v.DataVolume.Name
		default:
			continue
		}
		restored[claim] = "restore-" + name + "-" + v.Name
		e.restoreClaim(claim, restored[claim])
	}
	hypervisortest.Change(e.Env, vm, func(vm *kubevirtv1.VirtualMachine) {
		for _, v := range vm.Spec.Template.Spec.Volumes {
			switch {
			case v.PersistentVolumeClaim != nil:
				v.PersistentVolumeClaim.ClaimName = restored[v.PersistentVolumeClaim.ClaimName]
			case v.DataVolume != nil:
				v.DataVolume.Name = restored[v.DataVolume.Name]
			}
		}
		for i := range vm.Spec.DataVolumeTemplates {
			if to := restored[vm.Spec.DataVolumeTemplates[i].Name]; to != "" {
				vm.Spec.DataVolumeTemplates[i].Name = to
			}
		}
	})
}

// restoreClaim creates a copy of a claim, and waits until it is bound.
func (e *env) restoreClaim(source, name string) {
	e.Helper()
	claim := &corev1.PersistentVolumeClaim{}
	if err := e.Kube.Get(e.Context(), e.Namespace, source, claim); err != nil {
		e.Fatal(err)
	}
	restored := &corev1.PersistentVolumeClaim{ObjectMeta: metav1.ObjectMeta{Name: name, Labels: claim.Labels, Annotations: map[string]string{}}, Spec: claim.Spec}
	restored.Spec.VolumeName = ""
	for key, value := range claim.Annotations {
		if strings.HasPrefix(key, "vitistack.io/") {
			restored.Annotations[key] = value
		}
	}
	e.Create(restored)
	e.awaitClaim(name, "is bound", func(c *corev1.PersistentVolumeClaim) bool { return c.Status.Phase == corev1.ClaimBound })
}

// TestEarlierVolumeStays changes a machine with an image of an earlier release, whose volume refers to the claim of the DataVolume.
func TestEarlierVolumeStays(t *testing.T) {
	t.Parallel()
	s := setUp(t)
	s.Create(machineWith("vm", func(m *v1alpha1.MachineSpec) {
		m.OS, m.PowerState = &v1alpha1.MachineOS{ImageID: "https://images.example.com/linux.qcow2"}, v1alpha1.PowerStopped
	}))
	s.awaitMachine("vm", "is off", hypervisortest.HasReason("Stopped"))
	earlier := kubevirtv1.VolumeSource{PersistentVolumeClaim: &kubevirtv1.PersistentVolumeClaimVolumeSource{
		PersistentVolumeClaimVolumeSource: corev1.PersistentVolumeClaimVolumeSource{ClaimName: "vm-root"}}}
	vm := &kubevirtv1.VirtualMachine{ObjectMeta: metav1.ObjectMeta{Namespace: s.Namespace, Name: "vm"}}
	hypervisortest.Change(s.Env, vm, func(vm *kubevirtv1.VirtualMachine) { vm.Spec.Template.Spec.Volumes[0].VolumeSource = earlier })
	s.Edit("vm", func(m *v1alpha1.Machine) {
		m.Spec.PowerState, m.Spec.Disks = v1alpha1.PowerRunning, []v1alpha1.MachineDisk{{Name: "root", Size: "30Gi"}}
	})
	s.awaitMachine("vm", "runs with its larger disk", func(m *v1alpha1.Machine) bool {
		claim := &corev1.PersistentVolumeClaim{}
		err := s.Kube.Get(t.Context(), s.Namespace, "vm-root", claim)
		return err == nil && hypervisortest.IsRunning(m) && claim.Status.Capacity.Storage().String() == "30Gi"
	})
	if err := s.Kube.Get(t.Context(), s.Namespace, "vm", vm); err != nil {
		t.Fatal(err)
	}
	if got := vm.Spec.Template.Spec.Volumes[0]; got.PersistentVolumeClaim == nil || got.PersistentVolumeClaim.ClaimName != "vm-root" {
		t.Errorf("the volume was changed to %+v", got)
	}
}

// TestCloneKeepsItsDisks clones the virtual machine of a machine as KubeVirt's VirtualMachineClone does: the clone and its disk have the labels and annotations of
// the first one (generatePatches in pkg/virt-controller/watch/clone/vm-target.go, and CreateRestorePVCDef, 1.8.4). The deletion of the Machine leaves the clone its disk.
func TestCloneKeepsItsDisks(t *testing.T) {
	t.Parallel()
	s := setUp(t)
	m := machineWith("web", func(m *v1alpha1.MachineSpec) { m.PowerState = v1alpha1.PowerStopped })
	s.Create(m)
	s.awaitMachine("web", "is off", hypervisortest.HasReason("Stopped"))
	const claimName = "restore-b0c5-root"
	s.restoreClaim("web-root", claimName)
	vm := &kubevirtv1.VirtualMachine{}
	if err := s.Kube.Get(t.Context(), s.Namespace, "web", vm); err != nil {
		t.Fatal(err)
	}
	clone := &kubevirtv1.VirtualMachine{ObjectMeta: metav1.ObjectMeta{Name: "copy", Labels: vm.Labels, Annotations: vm.Annotations}, Spec: *vm.Spec.DeepCopy()}
	spec := &clone.Spec.Template.Spec
	spec.Volumes = spec.Volumes[:1]
	spec.Volumes[0].PersistentVolumeClaim.ClaimName = claimName
	spec.Domain.Devices.Disks = spec.Domain.Devices.Disks[:1]
	spec.Domain.Devices.Interfaces[0].MacAddress = ""
	s.Create(clone)
	s.remove(m)
	feed.Until(t, "the Machine is gone", func() (bool, string) {
		return kube.NotFound(s.Kube.Get(t.Context(), s.Namespace, "web", m)), fmt.Sprint(m.Status.Conditions)
	})
	claim := &corev1.PersistentVolumeClaim{}
	if err := s.Kube.Get(t.Context(), s.Namespace, claimName, claim); err != nil || claim.DeletionTimestamp != nil {
		t.Errorf("the disk of the clone is deleted: %v", err)
	}
	if err := s.Kube.Get(t.Context(), s.Namespace, "web-root", claim); !kube.NotFound(err) {
		t.Errorf("the disk of the machine is left: %v", err)
	}
}
