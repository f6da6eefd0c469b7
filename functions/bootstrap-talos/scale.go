package main

import (
	"context"
	"fmt"

	"github.com/vitistack/stack/apis/v1alpha1"
)

// effective is a topology as autoscaling leaves it: with the replicas that each
// pool has, and nothing left to scale. Pools that are scaled are within their
// bounds, and share scaledWorkers in their order.
func effective(t v1alpha1.ClusterTopology) v1alpha1.ClusterTopology {
	t = *t.DeepCopy()
	left := int32(0)
	if t.ScaledWorkers != nil {
		left = *t.ScaledWorkers
		for _, p := range t.Workers {
			if scales(p) {
				left -= p.Autoscaling.MinReplicas
			}
		}
	}
	for i := range t.Workers {
		p := &t.Workers[i]
		if !scales(*p) {
			continue
		}
		low, high := p.Autoscaling.MinReplicas, p.Autoscaling.MaxReplicas
		if t.ScaledWorkers != nil {
			more := max(0, min(left, high-low))
			p.Replicas, left = low+more, left-more
		}
		p.Replicas, p.Autoscaling = max(low, min(p.Replicas, high)), nil
	}
	t.ScaledWorkers = nil
	return t
}

func scales(p v1alpha1.WorkerPool) bool { return p.Autoscaling != nil && p.Autoscaling.Enabled }

// scaled counts the workers of pools with autoscaling, and tells whether there are
// such pools.
func scaled(t v1alpha1.ClusterTopology) (n int32, any bool) {
	for i, p := range effective(t).Workers {
		if scales(t.Workers[i]) {
			n, any = n+p.Replicas, true
		}
	}
	return n, any
}

// fillScale writes into the spec how many workers autoscalers begin from, where
// nobody has: the subresource scale has no answer before.
func (f *function) fillScale(ctx context.Context, c *cluster) error {
	n, any := scaled(c.Spec.Topology)
	if !any || c.Spec.Topology.ScaledWorkers != nil {
		return nil
	}
	c.Spec.Topology.ScaledWorkers = &n
	if _, err := f.kube.Patch(ctx, c.before, c.KubernetesCluster); err != nil {
		return err
	}
	c.before = c.KubernetesCluster.DeepCopy()
	return nil
}

// describeScale writes into the status what autoscalers read.
func describeScale(c *cluster) {
	c.Status.ScaledWorkers, c.Status.Selector = 0, ""
	for _, p := range c.Spec.Topology.Workers {
		if !scales(p) {
			continue
		}
		c.Status.Selector = fmt.Sprintf("%s=%s,%s=%s", v1alpha1.LabelClusterName, c.Name, v1alpha1.LabelClusterRole, v1alpha1.RoleWorker)
		for _, m := range c.plan.members {
			if m.pool == p.Name && c.machines[m.name] != nil {
				c.Status.ScaledWorkers++
			}
		}
	}
}
