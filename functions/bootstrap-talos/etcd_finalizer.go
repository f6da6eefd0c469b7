package main

import (
	"context"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/vitistack/stack/apis/cluster/plan"
	"github.com/vitistack/stack/apis/v1alpha1"
	"github.com/vitistack/stack/functions/internal/kube"
)

// addEtcdFinalizers adds the finalizer of etcd to the Machines of control planes, so that their
// deletion waits until they have left etcd.
func (s *machineStore) addEtcdFinalizers(ctx context.Context, c *cluster) error {
	for _, m := range c.observed.machines {
		if plan.PoolOf(m) != v1alpha1.ControlPlanePool || plan.IsLeaving(m) || plan.HasEtcdFinalizer(m) {
			continue
		}
		before := m.DeepCopy()
		kube.AddFinalizer(m, v1alpha1.FinalizerEtcd)
		if _, err := s.kube.Patch(ctx, before, m); err != nil && !kube.NotFound(err) {
			return err
		}
	}
	return nil
}

// removeEtcdFinalizer removes the finalizer of etcd from a Machine.
func (s *machineStore) removeEtcdFinalizer(ctx context.Context, m *v1alpha1.Machine) error {
	before := m.DeepCopy()
	if !kube.RemoveFinalizer(m, v1alpha1.FinalizerEtcd) {
		return nil
	}
	if _, err := s.kube.Patch(ctx, before, m); err != nil && !kube.NotFound(err) {
		return err
	}
	return nil
}

// releaseDeleted releases the Machines that are being deleted and never joined etcd, or whose
// member a user gives up.
func (s *machineStore) releaseDeleted(ctx context.Context, c *cluster) error {
	for _, m := range c.observed.machines {
		if m.DeletionTimestamp == nil || (plan.MayHaveJoinedEtcd(m) && m.Annotations[v1alpha1.AnnotationForce] != "true") {
			continue
		}
		if err := s.removeEtcdFinalizer(ctx, m); err != nil {
			return err
		}
	}
	return nil
}

// releaseOrphan releases a Machine that is being deleted and whose cluster does not exist or does not
// control it, and reports whether it is one.
func (s *machineStore) releaseOrphan(ctx context.Context, m *v1alpha1.Machine) (bool, error) {
	if !isHeld(m) {
		return false, nil
	}
	owner := clusterOf(m)
	if owner == nil {
		return true, s.removeEtcdFinalizer(ctx, m)
	}
	kc := &v1alpha1.KubernetesCluster{}
	err := s.kube.Get(ctx, m.Namespace, owner.Name, kc)
	switch {
	case err != nil && !kube.NotFound(err):
		return false, err
	case err == nil && kc.UID == owner.UID && m.Labels[v1alpha1.LabelClusterName] == kc.Name:
		return false, nil
	default:
		return true, s.removeEtcdFinalizer(ctx, m)
	}
}

// isHeld reports whether the finalizer of etcd keeps a Machine that is being deleted.
func isHeld(m *v1alpha1.Machine) bool {
	return m.DeletionTimestamp != nil && plan.HasEtcdFinalizer(m) && !v1alpha1.IsPaused(m)
}

// clusterOf returns the reference to the KubernetesCluster that controls a Machine, or nil.
func clusterOf(m *v1alpha1.Machine) *metav1.OwnerReference {
	if owner := metav1.GetControllerOf(m); owner != nil && owner.Kind == "KubernetesCluster" {
		return owner
	}
	return nil
}
