package main

import (
	"context"

	corev1 "k8s.io/api/core/v1"

	"github.com/vitistack/stack/apis/cluster/plan"
	"github.com/vitistack/stack/apis/v1alpha1"
	"github.com/vitistack/stack/functions/internal/kube"
)

// unlessNodePrefixesAreSet returns an error of the size of podCIDR, unless a patch of the control plane sets how podCIDR is divided among
// the nodes. It reads the patches only for an error.
func unlessNodePrefixesAreSet(ctx context.Context, client *kube.Client, kc *v1alpha1.KubernetesCluster, problem error) error {
	if problem == nil {
		return nil
	}
	for _, name := range plan.PatchesOf(kc, v1alpha1.RoleControlPlane, kc.Spec.Topology.ControlPlane.MachineProperties) {
		cm := &corev1.ConfigMap{}
		if err := client.Get(ctx, kc.Namespace, string(name), cm); err != nil && !kube.NotFound(err) {
			return err
		}
		if plan.SetsNodePrefixes(cm.Data) {
			return nil
		}
	}
	return problem
}
