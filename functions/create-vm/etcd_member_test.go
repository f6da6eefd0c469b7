package main

import (
	"fmt"
	"testing"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	kubevirtv1 "kubevirt.io/api/core/v1"

	"github.com/vitistack/stack/apis/v1alpha1"
	"github.com/vitistack/stack/functions/create-vm/hypervisor/hypervisortest"
	"github.com/vitistack/stack/functions/internal/kube"
	"github.com/vitistack/stack/tests/stand/feed"
)

// TestEtcdMemberStays deletes the Machine of a control plane. Its virtual machine and its phase stay
// until the cluster has removed its etcd member.
func TestEtcdMemberStays(t *testing.T) {
	t.Parallel()
	s := setUp(t)
	s.Create(&v1alpha1.Machine{
		ObjectMeta: metav1.ObjectMeta{Name: "plane", Finalizers: []string{v1alpha1.FinalizerEtcd}, Labels: map[string]string{v1alpha1.LabelClusterName: "shop"}},
		Spec:       v1alpha1.MachineSpec{Template: "small"},
	})
	m := s.awaitMachine("plane", "runs", hypervisortest.IsRunning)
	if err := s.Kube.Delete(t.Context(), m); err != nil {
		t.Fatal(err)
	}
	m = s.awaitMachine("plane", "reports what it waits for", hypervisortest.HasReason("WaitingForEtcd"))
	if err := s.Kube.Get(t.Context(), s.Namespace, "plane", &kubevirtv1.VirtualMachine{}); err != nil || m.Status.Phase != v1alpha1.MachineRunning {
		t.Errorf("the machine is %s, its virtual machine: %v", m.Status.Phase, err)
	}
	s.Edit("plane", func(m *v1alpha1.Machine) { kube.RemoveFinalizer(m, v1alpha1.FinalizerEtcd) })
	feed.Until(t, "the Machine is deleted", func() (bool, string) {
		err := s.Kube.Get(t.Context(), s.Namespace, "plane", &v1alpha1.Machine{})
		return kube.NotFound(err), fmt.Sprint(err)
	})
}
