package main

import (
	"context"

	"github.com/vitistack/stack/apis/cluster/plan"
	"github.com/vitistack/stack/apis/v1alpha1"
	"github.com/vitistack/stack/functions/internal/reconcile"
)

// uncordonNodes uncordons the Nodes that were cordoned for a resize or an upgrade of Talos that has ended, also because a user has annotated
// the Machine with vitistack.io/remove meanwhile.
func uncordonNodes(ctx context.Context, c *cluster) error {
	if !c.observed.apiAnswers {
		return nil
	}
	w := c.connections.workload
	for i := range c.observed.nodes {
		n := &c.observed.nodes[i]
		if m := c.observed.machines[n.Name]; m == nil || plan.IsLeaving(m) {
			continue
		}
		var err error
		if n.Annotations[v1alpha1.AnnotationResizing] != "" && !plan.IsNodeResizing(c.KubernetesCluster, n.Name) {
			err = uncordonNode(ctx, n, v1alpha1.AnnotationResizing, w.UncordonResized)
		}
		if err == nil && n.Annotations[v1alpha1.AnnotationUpgrading] != "" && !plan.IsNodeUpgrading(c.KubernetesCluster, n.Name) {
			err = uncordonNode(ctx, n, v1alpha1.AnnotationUpgrading, w.UncordonUpgraded)
		}
		if err != nil {
			return reconcile.WaitError{Reason: reasonWaitingForAPI, Message: "waiting for the workload API, to uncordon node " + n.Name, Requeue: true}
		}
	}
	return nil
}

// uncordonNode calls uncordon for a Node with an annotation, and records the result in memory.
func uncordonNode(ctx context.Context, n *plan.Node, annotation string, uncordon func(ctx context.Context, node string) error) error {
	if err := uncordon(ctx, n.Name); err != nil {
		return err
	}
	n.Cordoned = false
	delete(n.Annotations, annotation)
	return nil
}
