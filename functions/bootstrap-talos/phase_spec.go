package main

import (
	"context"

	"k8s.io/apimachinery/pkg/api/equality"

	"github.com/vitistack/stack/apis/cluster/plan"
	"github.com/vitistack/stack/apis/v1alpha1"
	"github.com/vitistack/stack/functions/bootstrap-talos/talos"
	"github.com/vitistack/stack/functions/internal/kube"
)

// acceptSpec makes the plan of the spec, and records a valid spec in the status. A cluster with an
// invalid spec follows its last valid one, and the UserError is kept for the status. It is returned
// if there never was a valid spec.
func (f *function) acceptSpec(_ context.Context, c *cluster) error {
	var err error
	if c.plan, err = plan.Make(c.KubernetesCluster, nil, f.talosVersion); err == nil {
		accepted := &v1alpha1.AcceptedSpec{Topology: *c.Spec.Topology.DeepCopy()}
		if c.Spec.Talos != nil {
			accepted.TalosVersion = c.Spec.Talos.Version
		}
		if !equality.Semantic.DeepEqual(c.Status.Accepted, accepted) {
			c.Status.Accepted = accepted
		}
		return nil
	}
	last := plan.WithAcceptedSpec(c.KubernetesCluster)
	if last == nil {
		return err
	}
	kept, keptErr := plan.Make(last, nil, f.talosVersion)
	if keptErr != nil {
		return err
	}
	c.plan, c.accepted = kept, last
	c.noteUserError(v1alpha1.ConditionTopologyValid, err)
	return nil
}

// makePlan makes the plan of the spec that the cluster follows and of the Machines that exist.
func (f *function) makePlan(_ context.Context, c *cluster) error {
	var err error
	if c.plan, err = plan.Make(c.effectiveCluster(), c.observed.machines, f.talosVersion); err != nil {
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
