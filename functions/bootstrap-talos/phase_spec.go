package main

import (
	"context"
	"errors"

	"k8s.io/apimachinery/pkg/api/equality"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/utils/ptr"

	"github.com/vitistack/stack/apis/cluster/plan"
	"github.com/vitistack/stack/apis/v1alpha1"
	"github.com/vitistack/stack/functions/bootstrap-talos/talos"
	"github.com/vitistack/stack/functions/internal/kube"
	"github.com/vitistack/stack/functions/internal/reconcile"
)

// planner makes the plans of clusters.
type planner struct {
	kube *kube.Client
	// talosVersion is the Talos version of clusters that name none.
	talosVersion string
}

// acceptSpec makes the plan of the spec, and records a valid spec in the status. A cluster with an
// invalid spec, or without the fields of its ClusterTemplate, follows its last valid one, and the UserError is kept for the status. It is returned
// if there never was a valid spec.
func (p *planner) acceptSpec(ctx context.Context, c *cluster) error {
	err := c.report.template
	if err == nil {
		c.plan, err = plan.Make(c.KubernetesCluster, nil, p.talosVersion)
	}
	if err == nil {
		err = p.checkTemplates(ctx, c.KubernetesCluster)
	}
	if err == nil {
		err = unlessNodePrefixesAreSet(ctx, p.kube, c.KubernetesCluster, plan.CheckMoreNodes(c.KubernetesCluster))
	}
	if err == nil {
		return p.recordAccepted(ctx, c)
	}
	c.plan = plan.Plan{}
	last := plan.WithAcceptedSpec(c.KubernetesCluster)
	if last == nil || !errors.As(err, new(reconcile.UserError)) {
		return err
	}
	kept, keptErr := plan.Make(last, nil, p.talosVersion)
	if keptErr != nil {
		return err
	}
	c.plan, c.accepted = kept, last
	c.report.noteUserError(v1alpha1.ConditionTopologyValid, err)
	return nil
}

// recordAccepted records a valid spec in the status. Before, it adapts scaledWorkers to the pools that the spec autoscales.
func (p *planner) recordAccepted(ctx context.Context, c *cluster) error {
	if err := p.writeScale(ctx, c, plan.NextScaledWorkers(c.KubernetesCluster)); err != nil {
		return err
	}
	accepted := &v1alpha1.AcceptedSpec{Topology: *c.Spec.Topology.DeepCopy()}
	if c.Spec.Talos != nil {
		accepted.TalosVersion = c.Spec.Talos.Version
	}
	if !equality.Semantic.DeepEqual(c.Status.Accepted, accepted) {
		c.Status.Accepted = accepted
	}
	return nil
}

// fillScale writes the number of autoscaled workers into the spec if it has none, because the
// subresource scale needs it.
func (p *planner) fillScale(ctx context.Context, c *cluster) error {
	n, any := plan.CountScaledWorkers(c.Spec.Topology)
	if !any || c.Spec.Topology.ScaledWorkers != nil {
		return nil
	}
	if err := p.writeScale(ctx, c, &n); err != nil {
		return err
	}
	if _, invalid := c.report.userErrorOf(v1alpha1.ConditionTopologyValid); !invalid && c.Status.Accepted != nil {
		c.Status.Accepted.Topology.ScaledWorkers = &n // the cluster is up to date after this delivery
	}
	return nil
}

// writeScale writes the number of autoscaled workers into the spec if it differs, and keeps the status of the delivery, which is not
// written yet.
func (p *planner) writeScale(ctx context.Context, c *cluster, n *int32) error {
	if ptr.Equal(n, c.Spec.Topology.ScaledWorkers) {
		return nil
	}
	status := c.Status.DeepCopy()
	c.Spec.Topology.ScaledWorkers = n
	if _, err := p.kube.Patch(ctx, c.before, c.KubernetesCluster); err != nil {
		return err
	}
	c.before, c.Status = c.KubernetesCluster.DeepCopy(), *status
	return nil
}

// checkTemplates returns a UserError if the template of a pool names no size that exists. It reads the
// MachineClasses only for a template that is neither built in nor accepted.
func (p *planner) checkTemplates(ctx context.Context, kc *v1alpha1.KubernetesCluster) error {
	if _, err := plan.FindUnknownTemplate(kc, nil); err == nil {
		return nil
	}
	list, err := kube.ListShared[v1alpha1.MachineClassList](ctx, p.kube, "", metav1.ListOptions{})
	if err != nil {
		return err
	}
	_, err = plan.FindUnknownTemplate(kc, list.Items)
	return err
}

// makePlan makes the plan of the spec that the cluster follows and of the Machines that exist.
func (p *planner) makePlan(_ context.Context, c *cluster) error {
	var err error
	if c.plan, err = plan.Make(c.effectiveCluster(), c.observed.machines, p.talosVersion); err != nil {
		return err
	}
	c.observed.nodeStates = map[string]talos.State{}
	if c.Status.TalosVersion == "" {
		c.Status.TalosVersion = c.plan.Talos
	}
	return nil
}

// addFinalizer adds the cluster's finalizer, if it is missing.
func (f *function) addFinalizer(ctx context.Context, c *cluster) error {
	if !kube.AddFinalizer(c.KubernetesCluster, v1alpha1.FinalizerCluster) {
		return nil
	}
	if _, err := f.kube.Patch(ctx, c.before, c.KubernetesCluster); err != nil {
		return err
	}
	c.before = c.KubernetesCluster.DeepCopy()
	return nil
}
