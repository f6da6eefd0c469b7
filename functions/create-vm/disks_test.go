package main

import (
	"slices"
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/vitistack/stack/apis/v1alpha1"
	"github.com/vitistack/stack/functions/create-vm/hypervisor/hypervisortest"
	"github.com/vitistack/stack/tests/sim/faults"
	proxmoxsim "github.com/vitistack/stack/tests/sim/proxmox"
)

// dataDisk returns the spec of a disk data.
func dataDisk(size v1alpha1.Size) []v1alpha1.MachineDisk {
	return []v1alpha1.MachineDisk{{Name: "data", Size: size}}
}

// hasDisks returns whether a Machine has exactly the disks.
func hasDisks(names ...string) func(*v1alpha1.Machine) bool {
	return func(m *v1alpha1.Machine) bool {
		return hypervisortest.IsRunning(m) && slices.Equal(m.Status.Disks, names)
	}
}

// refusesRemoval checks that the API server refuses to remove the disks of the spec of a Machine.
func (e *env) refusesRemoval(name string) {
	e.Helper()
	m := &v1alpha1.Machine{}
	if err := e.Kube.Get(e.Context(), e.Namespace, name, m); err != nil {
		e.Fatal(err)
	}
	before := m.DeepCopy()
	m.Spec.Disks = nil
	if _, err := e.Kube.Patch(e.Context(), before, m); !apierrors.IsInvalid(err) {
		e.Errorf("the removal of disks %v ended with %v", before.Status.Disks, err)
	}
}

// TestDiskOverQuota adds a disk for which the namespace has no quota. The disk can be removed, and made smaller, because it does not exist.
func TestDiskOverQuota(t *testing.T) {
	t.Parallel()
	s := newEnv(t, kubevirtSite)
	s.CreateMachine("m1")
	s.Drive("m1", &hypervisortest.Wire{}, "runs and lists its disk", hasDisks("root"))
	hard, used := corev1.ResourceList{corev1.ResourceRequestsStorage: resource.MustParse("25Gi")}, corev1.ResourceList{corev1.ResourceRequestsStorage: resource.MustParse("20Gi")}
	quota := &corev1.ResourceQuota{ObjectMeta: metav1.ObjectMeta{Name: "storage"}, Spec: corev1.ResourceQuotaSpec{Hard: hard}}
	s.Create(quota)
	before := quota.DeepCopy()
	quota.Status = corev1.ResourceQuotaStatus{Hard: hard, Used: used} // the controller manager counts
	if _, err := s.Kube.PatchStatus(t.Context(), before, quota); err != nil {
		t.Fatal(err)
	}
	add := func(size v1alpha1.Size) {
		t.Helper()
		s.Edit("m1", func(m *v1alpha1.Machine) { m.Spec.Disks = dataDisk(size) })
	}
	add("9Gi")
	m := s.Drive("m1", &hypervisortest.Wire{}, "reports the quota", hypervisortest.HasReason("KubeVirtApiError"))
	if got := condition(m, "Ready"); !strings.Contains(got, "exceeded quota: storage") || !slices.Equal(m.Status.Disks, []string{"root"}) {
		t.Errorf("disks %v, condition %q", m.Status.Disks, got)
	}
	s.Edit("m1", func(m *v1alpha1.Machine) { m.Spec.Disks = nil })
	s.Drive("m1", &hypervisortest.Wire{}, "is Ready without the disk", hasDisks("root"))
	add("9Gi")
	s.Drive("m1", &hypervisortest.Wire{}, "reports the quota again", hypervisortest.HasReason("KubeVirtApiError"))
	add("1Gi")
	s.Drive("m1", &hypervisortest.Wire{}, "has a smaller disk", hasDisks("data", "root"))
	s.refusesRemoval("m1")
}

// TestProxmoxFailedDisk adds a disk whose task fails. The disk can be removed, because it does not exist.
func TestProxmoxFailedDisk(t *testing.T) {
	t.Parallel()
	plan := &faults.Plan{}
	r, _ := newPVE(t, proxmoxsim.Options{Plan: plan}, nil)
	r.CreateMachine("m1")
	r.Drive("m1", &hypervisortest.Wire{}, "runs and lists its disk", hasDisks("root"))
	if err := plan.Set(faults.Rule{Operation: "task/qmconfig", Error: "the storage is asleep"}); err != nil {
		t.Fatal(err)
	}
	r.Edit("m1", func(m *v1alpha1.Machine) { m.Spec.Disks = dataDisk("1Gi") })
	m := r.Drive("m1", &hypervisortest.Wire{}, "reports the failure", hypervisortest.HasReason("ProxmoxApiError"))
	if !slices.Equal(m.Status.Disks, []string{"root"}) {
		t.Errorf("the status lists %v", m.Status.Disks)
	}
	r.Edit("m1", func(m *v1alpha1.Machine) { m.Spec.Disks = nil })
	if err := plan.Set(); err != nil {
		t.Fatal(err)
	}
	r.Drive("m1", &hypervisortest.Wire{}, "is Ready without the disk", hasDisks("root"))
	r.Edit("m1", func(m *v1alpha1.Machine) { m.Spec.Disks = dataDisk("1Gi") })
	r.Drive("m1", &hypervisortest.Wire{}, "has the disk", hasDisks("data", "root"))
	r.refusesRemoval("m1")
}
