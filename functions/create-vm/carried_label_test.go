package main

import (
	"slices"
	"testing"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	kubevirtv1 "kubevirt.io/api/core/v1"

	"github.com/vitistack/stack/apis/v1alpha1"
	"github.com/vitistack/stack/functions/create-vm/hypervisor/hypervisortest"
)

// TestCarriedLabel has a user write a first configuration into a VirtualMachine that had none. The next reconcile removes the label by
// which events carry the VirtualMachine. One without such a change keeps the label.
func TestCarriedLabel(t *testing.T) {
	t.Parallel()
	s := newEnv(t, kubevirtSite)
	carried := func(name string) (vm *kubevirtv1.VirtualMachine, labels int) {
		vm = &kubevirtv1.VirtualMachine{}
		if err := s.Kube.Get(t.Context(), s.Namespace, name, vm); err != nil {
			t.Fatal(err)
		}
		for _, l := range []map[string]string{vm.Labels, vm.Spec.Template.ObjectMeta.Labels} {
			if l[v1alpha1.LabelCarriedByEvents] != "" {
				labels++
			}
		}
		return vm, labels
	}
	for name, tc := range map[string]struct {
		reason string
		write  func(*kubevirtv1.CloudInitNoCloudSource)
		want   int
	}{
		"unchanged": {"it has only what create-vm renders", nil, 2},
		"text":      {"user data may have a password", func(c *kubevirtv1.CloudInitNoCloudSource) { c.UserData = "#cloud-config\npassword: secret\n" }, 0},
		"encoded":   {"encoded user data may as well", func(c *kubevirtv1.CloudInitNoCloudSource) { c.UserData, c.UserDataBase64 = "", "c2VjcmV0" }, 0},
	} {
		s.Create(&v1alpha1.Machine{ObjectMeta: metav1.ObjectMeta{Name: name}, Spec: v1alpha1.MachineSpec{
			Template: "small", ProviderRef: &v1alpha1.ProviderReference{Name: s.Site.Provider},
		}})
		s.Drive(name, &hypervisortest.Wire{}, "runs", hypervisortest.IsRunning)
		vm, labels := carried(name)
		if labels != 2 {
			t.Fatalf("%s: a new virtual machine has %d labels, want 2", name, labels)
		}
		if tc.write != nil {
			hypervisortest.Change(s.Env, vm, func(vm *kubevirtv1.VirtualMachine) {
				spec := &vm.Spec.Template.Spec
				at := slices.IndexFunc(spec.Volumes, func(v kubevirtv1.Volume) bool { return v.CloudInitNoCloud != nil })
				if at < 0 {
					at = len(spec.Volumes)
					spec.Volumes = append(spec.Volumes, kubevirtv1.Volume{Name: "foreign", VolumeSource: kubevirtv1.VolumeSource{CloudInitNoCloud: &kubevirtv1.CloudInitNoCloudSource{}}})
					spec.Domain.Devices.Disks = append(spec.Domain.Devices.Disks, kubevirtv1.Disk{Name: "foreign", DiskDevice: kubevirtv1.DiskDevice{Disk: &kubevirtv1.DiskTarget{Bus: "virtio"}}})
				}
				tc.write(spec.Volumes[at].CloudInitNoCloud)
			})
		}
		s.Drive(name, &hypervisortest.Wire{}, "is reconciled", hypervisortest.IsRunning)
		if _, labels := carried(name); labels != tc.want {
			t.Errorf("%s: %d labels, want %d: %s", name, labels, tc.want, tc.reason)
		}
	}
}
