package main

import (
	"context"
	"fmt"

	"github.com/vitistack/stack/apis/cluster/plan"
	"github.com/vitistack/stack/apis/v1alpha1"
	"github.com/vitistack/stack/functions/bootstrap-talos/talos"
	"github.com/vitistack/stack/functions/internal/reconcile"
)

// checkQuorumLost returns a UserError if the workload API does not answer because etcd has lost
// its quorum, and otherwise waiting. Before a cluster has run, the chosen machine may still be
// bootstrapping.
func checkQuorumLost(ctx context.Context, c *cluster, waiting error) error {
	if !c.report.bootstrapped || (c.Status.Version == "" && !c.bootstrapState().Lost) {
		return waiting
	}
	if err := readQuorum(ctx, c).Check(); err != nil {
		return err
	}
	return waiting
}

// readQuorum asks every configured control plane about etcd.
func readQuorum(ctx context.Context, c *cluster) plan.QuorumState {
	addresses := map[string]string{}
	for name, m := range c.observed.machines {
		if plan.PoolOf(m) == v1alpha1.ControlPlanePool && plan.IsInstalled(m) {
			addresses[name] = ""
			if m.Status.Phase == v1alpha1.MachineRunning {
				addresses[name] = plan.Address(m)
			}
		}
	}
	state := talos.ReadQuorum(ctx, addresses, c.connections.credentials)
	state.Wanted = c.plan.CountRole(v1alpha1.RoleControlPlane)
	return state
}

// etcdChecker checks the members of etcd, and removes members without a Machine.
type etcdChecker struct {
	machines *machineStore
}

// checkHealthy is checkMembers, except while a node is being upgraded or a control plane resized.
func (e *etcdChecker) checkHealthy(ctx context.Context, c *cluster) error {
	if plan.IsUpgrading(c.KubernetesCluster) || c.isControlPlaneResizing() {
		return nil
	}
	return e.checkMembers(ctx, c)
}

// checkMembers returns an error unless exactly the control planes are members of etcd, vote and
// answer. It removes a member whose Machine does not exist.
func (e *etcdChecker) checkMembers(ctx context.Context, c *cluster) error {
	c.report.etcd = ""
	view, err := talos.ReadEtcd(ctx, c.observed.controlPlanes(), c.connections.credentials)
	if err != nil {
		return reconcile.WaitError{Reason: "WaitingForEtcd", Message: "waiting for a member of etcd to answer", Requeue: true}
	}
	if left := plan.OrphanedMembers(view.Members, c.observed.hasMachine); len(left) > 0 {
		return e.removeOrphanedMember(ctx, c, view, left[0])
	}
	var wanted []string
	for _, m := range c.plan.ControlPlanes() {
		wanted = append(wanted, m.Name)
	}
	if name := plan.UnhealthyMember(view, wanted); name != "" {
		return reconcile.WaitError{Reason: "WaitingForEtcd", Message: fmt.Sprintf("waiting for control plane %s to be a member of etcd that votes and answers", name), Requeue: true}
	}
	c.report.etcd = plan.Plural(len(wanted), "member")
	return nil
}

// removeOrphanedMember removes a member of etcd whose Machine does not exist.
func (e *etcdChecker) removeOrphanedMember(ctx context.Context, c *cluster, view plan.EtcdView, m plan.EtcdMember) error {
	message := fmt.Sprintf("removing member %s, whose Machine does not exist, from etcd", m.Name)
	gone, err := e.machines.isGone(ctx, c, m.Name)
	switch {
	case err != nil:
		return err
	case !gone:
		message = fmt.Sprintf("waiting for %s, which has just joined etcd", m.Name)
	default:
		if why := plan.RemovalObjection(view, m); why != "" {
			return reconcile.UserError{Reason: plan.ReasonQuorumAtRisk, Message: fmt.Sprintf("member %s of etcd, whose Machine does not exist, cannot be removed: %s", m.Name, why)}
		}
		if talos.RemoveEtcdMember(ctx, c.observed.controlPlanes(), c.connections.credentials, view, m) != nil {
			message = fmt.Sprintf("waiting for a member of etcd to remove %s, whose Machine does not exist", m.Name)
		}
	}
	return reconcile.WaitError{Reason: "WaitingForEtcd", Message: message, Requeue: true}
}
