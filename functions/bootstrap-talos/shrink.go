package main

import (
	"context"
	"maps"
	"slices"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/vitistack/stack/apis/v1alpha1"
)

// workersAtOnce is how many workers may leave a pool at the same time.
const workersAtOnce = 10

// shrink brings every machine that is too many, or that somebody named, one step
// closer to its end, and takes away what those before have left behind. It
// returns waits for as long as a machine leaves.
func (f *function) shrink(ctx context.Context, c *cluster) error {
	if err := f.choose(ctx, c); err != nil {
		return err
	}
	var problems []error
	for _, name := range slices.Sorted(maps.Keys(c.machines)) {
		if m := c.machines[name]; leaving(m) {
			problems = append(problems, f.depart(ctx, c, m))
		}
	}
	if err := worst(slices.DeleteFunc(problems, func(err error) bool { return err == nil })); err != nil {
		return err
	}
	return f.tidy(ctx, c)
}

// choose decides who leaves, and writes it down: a delivery that comes after a
// crash goes on with the same machine, whatever has become of the others. For the
// control plane it is written into the cluster's status first, where of two that
// choose at once one gets a conflict.
func (f *function) choose(ctx context.Context, c *cluster) error {
	for _, g := range c.allGroups() {
		present := seatsOf(c.machines, g.pool, prefixOf(c.Name, g.pool), c.works)
		settled := 0
		for _, s := range present {
			if !s.leaving && !s.named && !s.unhealthy {
				settled++
			}
		}
		at := pick(g.pool == controlPlanePool, 1, workersAtOnce)
		for _, name := range surplus(g.replicas, at, settled, present) {
			if err := f.dismiss(ctx, c, c.machines[name]); err != nil {
				return err
			}
		}
	}
	if name := c.Status.Removing; name != "" && c.machines[name] == nil {
		c.Status.Removing = ""
	}
	return nil
}

// allGroups are the groups of the plan, and those that are no more in the spec.
func (c *cluster) allGroups() []group {
	groups := slices.Clone(c.plan.groups)
	for _, m := range c.machines {
		pool := poolOf(m)
		if !slices.ContainsFunc(groups, func(g group) bool { return g.pool == pool }) {
			groups = append(groups, group{pool: pool, role: v1alpha1.RoleWorker})
		}
	}
	return groups
}

// works tells whether a machine is a working node, as far as is known.
func (c *cluster) works(name string) bool {
	if !running(c.machines[name]) {
		return false
	}
	if !c.reachable {
		return installed(c.machines[name])
	}
	n, ok := c.node(name)
	return ok && n.ready
}

func (c *cluster) node(name string) (workloadNode, bool) {
	i := slices.IndexFunc(c.nodes, func(n workloadNode) bool { return n.name == name })
	if i < 0 {
		return workloadNode{}, false
	}
	return c.nodes[i], true
}

// mayHaveJoined tells whether a control plane may be a member of etcd: its node has its
// configuration, or its virtual machine was made with it.
func mayHaveJoined(m *v1alpha1.Machine) bool {
	return installed(m) || (poolOf(m) == controlPlanePool && provided(m) && m.Status.VMName != "")
}

// dismiss writes down that a machine leaves. One that never was a node goes at
// once, unless it becomes one meanwhile.
func (f *function) dismiss(ctx context.Context, c *cluster, m *v1alpha1.Machine) error {
	if !mayHaveJoined(m) {
		return f.kube.DeleteExactly(ctx, m)
	}
	if poolOf(m) == controlPlanePool && c.Status.Removing != m.Name {
		if c.Status.Removing != "" && c.machines[c.Status.Removing] != nil {
			m = c.machines[c.Status.Removing]
		}
		c.Status.Removing = m.Name
		if err := f.patchStatus(ctx, c); err != nil {
			return err
		}
	}
	before := m.DeepCopy()
	metav1.SetMetaDataAnnotation(&m.ObjectMeta, v1alpha1.AnnotationRemoving, f.now().UTC().Format(time.RFC3339))
	_, err := f.kube.Patch(ctx, before, m)
	return err
}
