package main

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"time"

	"github.com/vitistack/stack/apis/cluster/plan"
	"github.com/vitistack/stack/apis/v1alpha1"
	"github.com/vitistack/stack/functions/bootstrap-talos/manifests"
	"github.com/vitistack/stack/functions/internal/kube"
	"github.com/vitistack/stack/functions/internal/reconcile"
)

// remover removes nodes and their Machines, and what is left of removed nodes.
type remover struct {
	kube      *kube.Client
	manifests *manifests.Store
	machines  *machineStore
	etcd      *etcdChecker
	status    *statusWriter
	now       func() time.Time
}

// scaleDown does the next step for every machine in removal, and cleans up after deleted
// machines. It returns a WaitError while a machine is being removed. The removal
// of a protected machine does not begin, or stops where it is, and Ready reports that.
func (r *remover) scaleDown(ctx context.Context, c *cluster) error {
	if err := r.chooseNodes(ctx, c); err != nil {
		return err
	}
	var problems []error
	for _, name := range slices.Sorted(maps.Keys(c.observed.machines)) {
		m := c.observed.machines[name]
		if !plan.IsLeaving(m) {
			continue
		}
		err := r.machines.checkProtection(ctx, m)
		if err == nil {
			err = r.removeNode(ctx, c, m)
		}
		if !isProtectedError(err) || !c.report.noteUserError(v1alpha1.ConditionReady, err) {
			problems = append(problems, err)
		}
	}
	if err := reconcile.MostUrgent(problems...); err != nil {
		return err
	}
	return r.cleanUpRemovedNodes(ctx, c)
}

// chooseNodes decides which machines are removed, and records that: a delivery after a
// crash continues with the same machine. A control plane is recorded in the cluster's status
// first, where one of two concurrent deliveries gets a conflict.
func (r *remover) chooseNodes(ctx context.Context, c *cluster) error {
	for _, g := range c.plan.AllGroups(c.observed.machines) {
		present := plan.PoolMachines(c.observed.machines, g.Pool, plan.NamePrefix(c.Name, g.Pool), c.observed.isWorking)
		working := 0
		for _, s := range present {
			if !s.Leaving && !s.IsReplaced() && !s.Unhealthy {
				working++
			}
		}
		leaving, protected := plan.SelectMachinesToRemove(g.Replicas, plan.RemovalLimit(g.Pool), working, g.Rollout.MaxUnavailable, present)
		if chosen := c.observed.machines[c.Status.Removing]; g.Pool == v1alpha1.ControlPlanePool && len(leaving) == 0 && chosen != nil && !plan.IsLeaving(chosen) {
			c.Status.Removing = "" // the scale-down was taken back before it began
		}
		for _, name := range protected {
			c.report.noteUserError(v1alpha1.ConditionReady, protectedError(c.observed.machines[name]))
		}
		for _, name := range leaving {
			if err := r.beginRemoval(ctx, c, c.observed.machines[name]); err != nil {
				return err
			}
		}
	}
	return nil
}

// forgetRemoved clears the record of a control plane that has been removed, before a new machine gets
// its name: the record would be taken for one of the new machine.
func forgetRemoved(_ context.Context, c *cluster) error {
	if name := c.Status.Removing; name != "" && !c.observed.hasMachine(name) {
		c.Status.Removing = ""
	}
	return nil
}

// beginRemoval annotates a Machine that is to be removed. A Machine that never became a node is
// deleted at once. It returns a conflict if the spec of the cluster is not current: the number of nodes may have been raised again, or the
// cluster paused, and a removal that has begun is not taken back.
func (r *remover) beginRemoval(ctx context.Context, c *cluster, m *v1alpha1.Machine) error {
	if err := r.kube.CheckSpecCurrent(ctx, c.KubernetesCluster); err != nil {
		return err
	}
	if !plan.MayHaveJoinedEtcd(m) {
		return refusedDeletion(r.kube.DeleteExactly(ctx, m))
	}
	if plan.PoolOf(m) == v1alpha1.ControlPlanePool && c.Status.Removing != m.Name {
		if chosen := c.observed.machines[c.Status.Removing]; chosen != nil && !chosen.Spec.Protected {
			m = chosen
		}
		c.Status.Removing = m.Name
		if err := r.status.patch(ctx, c); err != nil {
			return err
		}
	}
	return r.startClock(ctx, m)
}

// cleanUpRemovedNodes deletes the Nodes and the saved manifests of Machines that do not exist,
// and removes their members from etcd.
func (r *remover) cleanUpRemovedNodes(ctx context.Context, c *cluster) error {
	if c.Status.Version != "" && !c.isControlPlaneWorking() {
		if err := r.etcd.checkMembers(ctx, c); errors.As(err, new(reconcile.UserError)) {
			return err
		}
	}
	for _, n := range plan.OrphanedNodes(c.KubernetesCluster, c.observed.nodes, c.observed.hasMachine) {
		if gone, err := r.machines.isGone(ctx, c, n.Name); err != nil || !gone {
			return err
		}
		if err := r.manifests.Forget(ctx, c.KubernetesCluster, n.Name); err != nil {
			return err
		}
		if gone, err := c.connections.workload.DeleteNode(ctx, n); err != nil || !gone {
			return reconcile.WaitError{Reason: "RemovingNodes", Message: fmt.Sprintf("removing node %s: waiting for the workload API", n.Name), Requeue: true}
		}
	}
	return nil
}

// cleanEarlierNodes deletes the Nodes of earlier Machines whose names other Machines have now, before the kubelets of
// these take them over. A Node that has been taken over is uncordoned.
func (r *remover) cleanEarlierNodes(ctx context.Context, c *cluster) error {
	for _, n := range c.observed.earlierNodes {
		m := &v1alpha1.Machine{}
		err := r.kube.Get(ctx, c.Namespace, n.Name, m)
		switch {
		case kube.NotFound(err), err == nil && !plan.IsLeftOfEarlier(n, m):
			continue
		case err != nil:
			return err
		}
		if _, err := c.connections.workload.DeleteNode(ctx, n); err != nil {
			return waitForNodeOf(n)
		}
	}
	c.observed.earlierNodes = nil
	for i, n := range c.observed.nodes {
		if m := c.observed.machines[n.Name]; m == nil || !plan.IsTakenOver(n, m) {
			continue
		}
		if err := c.connections.workload.UncordonTakenOver(ctx, n.Name); err != nil {
			return waitForNodeOf(n)
		}
		c.observed.nodes[i].Cordoned = false
	}
	return nil
}

// waitForNodeOf returns the WaitError for a request about the Node of an earlier machine that has failed.
func waitForNodeOf(n plan.Node) error {
	return reconcile.WaitError{Reason: "RemovingNodes", Message: fmt.Sprintf("cleaning up node %s of an earlier machine: waiting for the workload API", n.Name), Requeue: true}
}
