package main

import (
	"context"

	"k8s.io/apimachinery/pkg/api/equality"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/vitistack/stack/apis/v1alpha1"
	"github.com/vitistack/stack/functions/bootstrap-talos/plan"
)

// acceptSpec works out the plan of the spec, and records a valid spec in the status. A
// cluster whose present spec is invalid is kept by the last valid one, and the fault is
// noted. It returns the fault where there never was a valid spec.
func (f *function) acceptSpec(c *cluster) error {
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

func (f *function) readMachines(ctx context.Context, c *cluster) error {
	list := &v1alpha1.MachineList{}
	if err := f.kube.List(ctx, c.Namespace, v1alpha1.LabelClusterName+"="+c.Name, list); err != nil {
		return err
	}
	c.observed.machines = map[string]*v1alpha1.Machine{}
	for i := range list.Items {
		m := &list.Items[i]
		if metav1.IsControlledBy(m, c.KubernetesCluster) {
			c.observed.machines[m.Name] = m
		}
	}
	return nil
}
