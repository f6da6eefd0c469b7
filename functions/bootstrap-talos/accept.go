package main

import (
	"errors"
	"slices"

	"k8s.io/apimachinery/pkg/api/equality"

	"github.com/vitistack/stack/apis/v1alpha1"
)

// specFault is a user's mistake that does not keep a cluster with nodes from being
// observed and repaired. Only its condition and Ready carry it.
type specFault struct {
	condition string
	fault
}

// acceptSpec works out the plan of the spec, and records a valid spec in the status. A
// cluster whose present spec is invalid is kept by the last valid one, and the fault is
// noted. It returns the fault where there never was a valid spec.
func (f *function) acceptSpec(c *cluster) error {
	var err error
	if c.plan, err = makePlan(c.KubernetesCluster, nil, f.talos); err == nil {
		accepted := &v1alpha1.AcceptedSpec{Topology: *c.Spec.Topology.DeepCopy()}
		if c.Spec.Talos != nil {
			accepted.TalosVersion = c.Spec.Talos.Version
		}
		if !equality.Semantic.DeepEqual(c.Status.Accepted, accepted) {
			c.Status.Accepted = accepted
		}
		return nil
	}
	last := withAccepted(c.KubernetesCluster)
	if last == nil {
		return err
	}
	kept, keptErr := makePlan(last, nil, f.talos)
	if keptErr != nil {
		return err
	}
	c.plan, c.allowed = kept, last
	c.note(v1alpha1.ConditionTopologyValid, err)
	return nil
}

// withAccepted is a cluster with the last valid spec, nil where there never was one.
func withAccepted(kc *v1alpha1.KubernetesCluster) *v1alpha1.KubernetesCluster {
	accepted := kc.Status.Accepted
	if accepted == nil {
		return nil
	}
	kc = kc.DeepCopy()
	kc.Spec.Topology = *accepted.Topology.DeepCopy()
	if kc.Spec.Talos == nil && accepted.TalosVersion != "" {
		kc.Spec.Talos = &v1alpha1.TalosOptions{}
	}
	if kc.Spec.Talos != nil {
		kc.Spec.Talos.Version = accepted.TalosVersion
	}
	return kc
}

// note keeps a fault for its condition, so that the delivery can go on. It reports
// whether err is one.
func (c *cluster) note(condition string, err error) bool {
	var flt fault
	if !errors.As(err, &flt) {
		return false
	}
	if _, noted := c.faultOf(condition); !noted {
		c.faults = append(c.faults, specFault{condition, flt})
	}
	return true
}

// tolerate notes a fault of a cluster that has nodes to observe. Anything else is
// returned.
func (c *cluster) tolerate(condition string, err error) error {
	if err != nil && c.hasNodes() && c.note(condition, err) {
		return nil
	}
	return err
}

// hasNodes reports whether a node has its configuration.
func (c *cluster) hasNodes() bool {
	for _, m := range c.machines {
		if installed(m) {
			return true
		}
	}
	return false
}

// faultOf is the fault that a condition carries.
func (c *cluster) faultOf(condition string) (fault, bool) {
	i := slices.IndexFunc(c.faults, func(f specFault) bool { return f.condition == condition })
	if i < 0 {
		return fault{}, false
	}
	return c.faults[i].fault, true
}
