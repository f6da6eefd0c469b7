package main

import (
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	kubevirtv1 "kubevirt.io/api/core/v1"
	cdiv1 "kubevirt.io/containerized-data-importer-api/pkg/apis/core/v1beta1"

	"github.com/vitistack/stack/apis/v1alpha1"
	"github.com/vitistack/stack/functions/create-vm/hypervisor/hypervisortest"
	"github.com/vitistack/stack/functions/internal/kube"
)

// TestForeignImageDisk has claims of another user with the names of the disks that CDI fills. CDI would adopt them, and the machine
// start from what they contain.
func TestForeignImageDisk(t *testing.T) {
	t.Parallel()
	s := setUp(t)
	for name, tc := range map[string]struct {
		reason, claim string
		os            v1alpha1.MachineOS
	}{
		"image":     {"its first disk would be the disk of another user", "image-root", v1alpha1.MachineOS{ImageID: "https://images.example.com/linux.qcow2"}},
		"installer": {"its installer would be the disk of another user", "installer-cdrom", v1alpha1.MachineOS{ISOURI: "https://images.example.com/linux.iso"}},
	} {
		class := "standard"
		foreign := &corev1.PersistentVolumeClaim{ObjectMeta: metav1.ObjectMeta{Name: tc.claim}, Spec: corev1.PersistentVolumeClaimSpec{
			StorageClassName: &class, AccessModes: []corev1.PersistentVolumeAccessMode{corev1.ReadWriteOnce},
			Resources: corev1.VolumeResourceRequirements{Requests: corev1.ResourceList{corev1.ResourceStorage: resource.MustParse("20Gi")}},
		}}
		s.Create(foreign)
		s.awaitClaim(tc.claim, "is bound", func(c *corev1.PersistentVolumeClaim) bool { return c.Status.Phase == corev1.ClaimBound })
		s.Create(machineWith(name, func(m *v1alpha1.MachineSpec) { m.OS = &tc.os }))
		m := s.awaitMachine(name, "reports that the name is taken: "+tc.reason, hypervisortest.HasReason("NameTaken"))
		if message := condition(m, "Ready"); !strings.Contains(message, "PersistentVolumeClaim "+tc.claim+" was not created for this machine") {
			t.Errorf("%s: Ready is %s", tc.reason, message)
		}
		if err := s.Kube.Get(t.Context(), s.Namespace, name, &kubevirtv1.VirtualMachine{}); !kube.NotFound(err) {
			t.Errorf("%s: a virtual machine exists: %v", tc.reason, err)
		}
		now := &corev1.PersistentVolumeClaim{}
		if err := s.Kube.Get(t.Context(), s.Namespace, tc.claim, now); err != nil || now.UID != foreign.UID || len(now.OwnerReferences)+len(now.Labels) > 0 {
			t.Errorf("%s: the claim has changed: %+v, %v", tc.reason, now.ObjectMeta, err)
		}
		if err := s.Kube.Delete(t.Context(), foreign); err != nil {
			t.Fatal(err)
		}
		s.Edit(name, func(m *v1alpha1.Machine) {
			metav1.SetMetaDataAnnotation(&m.ObjectMeta, v1alpha1.AnnotationReconcile, "now")
		})
		s.awaitMachine(name, "runs once the name is free", hypervisortest.IsRunning)
	}
}

// TestForeignDataVolume has a DataVolume of another user with the name of a disk, whose claim CDI has not created, because its source does
// not exist. KubeVirt would take the DataVolume for that of the machine.
func TestForeignDataVolume(t *testing.T) {
	t.Parallel()
	s := setUp(t)
	class := "standard"
	foreign := &cdiv1.DataVolume{ObjectMeta: metav1.ObjectMeta{Name: "image-root"}, Spec: cdiv1.DataVolumeSpec{
		SourceRef: &cdiv1.DataVolumeSourceRef{Kind: "DataSource", Name: "missing"},
		PVC: &corev1.PersistentVolumeClaimSpec{StorageClassName: &class, AccessModes: []corev1.PersistentVolumeAccessMode{corev1.ReadWriteOnce},
			Resources: corev1.VolumeResourceRequirements{Requests: corev1.ResourceList{corev1.ResourceStorage: resource.MustParse("20Gi")}}},
	}}
	s.Create(foreign)
	s.Create(machineWith("image", func(m *v1alpha1.MachineSpec) {
		m.OS = &v1alpha1.MachineOS{ImageID: "https://images.example.com/linux.qcow2"}
	}))
	m := s.awaitMachine("image", "reports that the name is taken", hypervisortest.HasReason("NameTaken"))
	if message := condition(m, "Ready"); !strings.Contains(message, "DataVolume image-root was not created for this machine: delete it") {
		t.Errorf("Ready is %s", message)
	}
	if err := s.Kube.Get(t.Context(), s.Namespace, "image", &kubevirtv1.VirtualMachine{}); !kube.NotFound(err) {
		t.Errorf("a virtual machine exists: %v", err)
	}
	if err := s.Kube.Delete(t.Context(), foreign); err != nil {
		t.Fatal(err)
	}
	s.Edit("image", func(m *v1alpha1.Machine) {
		metav1.SetMetaDataAnnotation(&m.ObjectMeta, v1alpha1.AnnotationReconcile, "now")
	})
	s.awaitMachine("image", "runs once the name is free", hypervisortest.IsRunning)
}
