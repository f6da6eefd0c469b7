package main

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/vitistack/stack/apis/v1alpha1"
	"github.com/vitistack/stack/functions/bootstrap-talos/plan"
	"github.com/vitistack/stack/functions/internal/reconcile"
)

// maxConcurrentRemovals is how many workers may leave a pool at the same time.
const maxConcurrentRemovals = 10

// scaleDown brings every machine that is too many, or that somebody named, one step
// closer to its end, and takes away what those before have left behind. It
// returns waits for as long as a machine leaves.
func (f *function) scaleDown(ctx context.Context, c *cluster) error {
	if err := f.chooseNodesToRemove(ctx, c); err != nil {
		return err
	}
	var problems []error
	for _, name := range slices.Sorted(maps.Keys(c.observed.machines)) {
		if m := c.observed.machines[name]; plan.IsLeaving(m) {
			problems = append(problems, f.removeNode(ctx, c, m))
		}
	}
	if err := reconcile.MostUrgent(problems...); err != nil {
		return err
	}
	return f.cleanUpRemovedNodes(ctx, c)
}

// chooseNodesToRemove decides who leaves, and writes it down: a delivery that comes after a
// crash goes on with the same machine, whatever has become of the others. For the
// control plane it is written into the cluster's status first, where of two that
// choose at once one gets a conflict.
func (f *function) chooseNodesToRemove(ctx context.Context, c *cluster) error {
	for _, g := range c.allGroups() {
		present := plan.PoolMachines(c.observed.machines, g.Pool, plan.NamePrefix(c.Name, g.Pool), c.isWorking)
		settled := 0
		for _, s := range present {
			if !s.Leaving && !s.Marked && !s.Unhealthy {
				settled++
			}
		}
		at := plan.Pick(g.Pool == plan.ControlPlanePool, 1, maxConcurrentRemovals)
		for _, name := range plan.NextToLeave(g.Replicas, at, settled, present) {
			if err := f.recordRemoval(ctx, c, c.observed.machines[name]); err != nil {
				return err
			}
		}
	}
	if name := c.Status.Removing; name != "" && c.observed.machines[name] == nil {
		c.Status.Removing = ""
	}
	return nil
}

// allGroups are the groups of the plan, and those that are no more in the spec.
func (c *cluster) allGroups() []plan.Group {
	groups := slices.Clone(c.plan.Groups)
	for _, m := range c.observed.machines {
		pool := plan.PoolOf(m)
		if !slices.ContainsFunc(groups, func(g plan.Group) bool { return g.Pool == pool }) {
			groups = append(groups, plan.Group{Pool: pool, Role: v1alpha1.RoleWorker})
		}
	}
	return groups
}

// recordRemoval writes down that a machine leaves. One that never was a node goes at
// once, unless it becomes one meanwhile.
func (f *function) recordRemoval(ctx context.Context, c *cluster, m *v1alpha1.Machine) error {
	if !plan.MayHaveJoinedEtcd(m) {
		return f.kube.DeleteExactly(ctx, m)
	}
	if plan.PoolOf(m) == plan.ControlPlanePool && c.Status.Removing != m.Name {
		if c.Status.Removing != "" && c.observed.machines[c.Status.Removing] != nil {
			m = c.observed.machines[c.Status.Removing]
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

// cleanUpRemovedNodes takes away what machines that are gone have left behind: their Nodes, what
// was saved of them for people, and, where they ended without leaving it, their
// members of etcd.
func (f *function) cleanUpRemovedNodes(ctx context.Context, c *cluster) error {
	if c.Status.Version != "" && !c.isControlPlaneWorking() {
		if err := f.checkEtcd(ctx, c); errors.As(err, new(reconcile.UserError)) {
			return err
		}
	}
	for _, name := range plan.OrphanedNodes(c.Name, c.observed.nodes, c.hasMachine) {
		if gone, err := f.isMachineGone(ctx, c, name); err != nil || !gone {
			return err
		}
		if err := f.manifests.Forget(ctx, c.KubernetesCluster, name); err != nil {
			return err
		}
		if err := c.connections.workload.DeleteNode(ctx, name); err != nil {
			return reconcile.WaitError{Reason: "RemovingNodes", Message: fmt.Sprintf("removes node %s: waits for the workload API", name), Requeue: true}
		}
	}
	return nil
}
