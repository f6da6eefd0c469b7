package main

import (
	"context"
	"maps"
	"slices"

	"golang.org/x/sync/errgroup"

	"github.com/vitistack/stack/apis/cluster/plan"
	"github.com/vitistack/stack/apis/v1alpha1"
	"github.com/vitistack/stack/functions/bootstrap-talos/talos"
)

// statusRecoverer recovers the status of clusters that were created again.
type statusRecoverer struct{ secrets *secretStore }

// recoverStatus asks the nodes of a cluster that has no status for what the plan depends on: a cluster that was deleted with
// --cascade=orphan, created again and adopted its Machines. Without it, nodes would be upgraded to the present default versions, and a first control
// plane without data would bootstrap a second etcd. It returns a WaitError until the control planes that may have etcd answer.
func (r *statusRecoverer) recoverStatus(ctx context.Context, c *cluster) error {
	if !c.hasLostStatus() {
		return nil
	}
	keys, err := r.secrets.readKeys(ctx, c.KubernetesCluster)
	if err != nil || keys == nil {
		return err // the phase that needs keys says that they are gone
	}
	credentials, err := talos.NewCredentials(keys.Present)
	if err != nil {
		return err
	}
	if silent := plan.RecoverStatus(&c.Status, readRecoveredNodes(ctx, c, credentials)); len(silent) > 0 {
		return waitForEtcdAnswers(silent, "because the cluster was created again and has no status")
	}
	if c.accepted != nil {
		c.accepted.Status = *c.Status.DeepCopy()
	}
	return nil
}

// hasLostStatus reports whether a cluster has configured control planes, and a status of before its Machines were created.
func (c *cluster) hasLostStatus() bool {
	if c.Status.Version != "" || c.Status.BootstrapMachine != "" || isTrue(c.before, v1alpha1.ConditionMachinesCreated) || isTrue(c.before, v1alpha1.ConditionBootstrapped) {
		return false
	}
	for _, m := range c.observed.machines {
		if plan.PoolOf(m) == v1alpha1.ControlPlanePool && plan.IsInstalled(m) && m.DeletionTimestamp == nil {
			return true
		}
	}
	return false
}

// readRecoveredNodes asks the control planes, and the workers of pools that have a version of their own.
func readRecoveredNodes(ctx context.Context, c *cluster, credentials *talos.Credentials) []plan.RecoveredNode {
	asked := map[string]bool{v1alpha1.ControlPlanePool: true}
	for _, pool := range c.effectiveCluster().Spec.Topology.Workers {
		asked[pool.Name] = pool.Version != ""
	}
	var nodes []plan.RecoveredNode
	for _, name := range slices.Sorted(maps.Keys(c.observed.machines)) {
		if m := c.observed.machines[name]; asked[plan.PoolOf(m)] && plan.IsInstalled(m) && m.DeletionTimestamp == nil {
			nodes = append(nodes, plan.RecoveredNode{Machine: m})
		}
	}
	var group errgroup.Group
	group.SetLimit(plan.MaxConcurrentNodes)
	for i := range nodes {
		if n := &nodes[i]; plan.IsRunning(n.Machine) {
			group.Go(func() error {
				readRecoveredNode(ctx, n, credentials)
				return nil
			})
		}
	}
	_ = group.Wait()
	return nodes
}

// readRecoveredNode asks a node. A control plane answers once it can tell whether it has data of etcd.
func readRecoveredNode(ctx context.Context, n *plan.RecoveredNode, credentials *talos.Credentials) {
	address := plan.Address(n.Machine)
	versions, err := talos.ReadRunningVersions(ctx, address, credentials)
	if err != nil {
		return
	}
	n.Talos, n.Kubelet = versions.Talos, versions.Kubelet
	if plan.PoolOf(n.Machine) != v1alpha1.ControlPlanePool {
		n.Answers = true
		return
	}
	service, err := talos.ReadEtcdService(ctx, address, credentials)
	if err != nil || (service.State != plan.EtcdPreparing && !service.HasData()) {
		return
	}
	n.Answers, n.HasEtcd, n.APIServer = true, service.HasData(), versions.APIServer
}
