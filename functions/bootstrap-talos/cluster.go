package main

import (
	"context"
	"net/netip"
	"slices"
	"time"

	"k8s.io/apimachinery/pkg/api/meta"

	"github.com/vitistack/stack/apis/cluster/addons"
	"github.com/vitistack/stack/apis/cluster/plan"
	"github.com/vitistack/stack/apis/v1alpha1"
	"github.com/vitistack/stack/functions/bootstrap-talos/talos"
	"github.com/vitistack/stack/functions/bootstrap-talos/workload"
	"github.com/vitistack/stack/functions/internal/coalesce"
	"github.com/vitistack/stack/functions/internal/reconcile"
)

// cluster is a KubernetesCluster in one delivery. Phases read what is observed and planned, talk
// through the connections, and write what they find into the report.
type cluster struct {
	*v1alpha1.KubernetesCluster
	// before is the object as the API server has it.
	before *v1alpha1.KubernetesCluster
	// eventID is the ID of the event that is delivered.
	eventID string
	// deadline is the time until which the delivery polls nodes, which send no events, and polls
	// is whether it does so at all. It is of the clock of reconcile.Poll, not the function's.
	deadline time.Time
	polls    bool
	// full is whether the delivery looks for everything that may have changed without an event.
	full bool
	// accepted is the cluster with its last valid spec, as far as it is approved. It is nil if
	// the present spec is both.
	accepted *v1alpha1.KubernetesCluster
	// plan is computed from the accepted spec and the Machines that exist.
	plan        plan.Plan
	observed    observed
	connections connections
	report      report
}

// observed is what a delivery has read about a cluster.
type observed struct {
	// network is the name of the NetworkNamespace, and networkReady whether it allocates
	// addresses.
	network      string
	networkReady bool
	// withoutProvider has the members whose MachineProvider does not exist.
	withoutProvider map[string]bool
	// machines are the Machines of the cluster by name, including Machines in removal.
	machines map[string]*v1alpha1.Machine
	keys     *talos.Keys
	// kubeconfig is the administrator's. It is nil before a node has returned one.
	kubeconfig []byte
	// vip is the virtual address of the control planes, or the zero value.
	vip netip.Addr
	// wantedEndpoint is the URL at which the workload API should be reached. status.endpoint is
	// the one that nodes know.
	wantedEndpoint string
	// nodeStates has the states of the nodes that this delivery has probed.
	nodeStates map[string]talos.State
	// unconfigured are the members whose nodes have not been seen with their configurations, and
	// configs has their configurations that have not been provided.
	unconfigured []plan.Member
	configs      map[string][]byte
	// macs are the MAC addresses of the interfaces of machines whose configuration is rendered.
	macs map[string][]string
	// patches are the patches that have been read, by their ConfigMaps.
	patches map[v1alpha1.ObjectName][]talos.Patch
	// addons are the manifests that have been read, by the names of the add-ons.
	addons map[string]addons.Manifests
	// apiAnswers is whether the workload API has answered. nodes are the Nodes that it has listed, without
	// earlierNodes, which are left of earlier Machines.
	apiAnswers          bool
	nodes, earlierNodes []plan.Node
}

// connections is how a delivery reaches the nodes and the API of a cluster.
type connections struct {
	credentials *talos.Credentials
	// workload is nil before the cluster has a kubeconfig.
	workload *workload.Client
}

// report is what phases have found, for the status.
type report struct {
	// userErrors are the user errors that do not stop the delivery, in the order of their discovery.
	userErrors []conditionError
	// approval is the error that keeps the cluster at its approved topology, nil for none.
	approval error
	// machinesCreated, keysCreated and bootstrapped are how far the cluster has come.
	machinesCreated, keysCreated, bootstrapped bool
	// bootstrapSent is whether this delivery has sent a bootstrap request.
	bootstrapSent bool
	// apiUnanswered is whether the workload API has not answered, or cannot be asked.
	apiUnanswered bool
	// unreachable is whether the workload API of a cluster that has been running does not answer.
	unreachable bool
	// etcd counts the members of etcd once all of them vote and answer. It is empty before.
	etcd string
	// versions, config and authorities are the conditions VersionsCurrent, ConfigCurrent and
	// AuthoritiesRotated.
	versions, config, authorities conditionReport
	// health is the condition MachinesHealthy.
	health conditionReport
	// addons is the condition AddonsApplied, and addonsDone the add-ons that this delivery does not try
	// again, by name. addonsWaiting is what the others wait for.
	addons        conditionReport
	addonsDone    map[string]bool
	addonsWaiting error
	// upgradeBlocker is why no other node may be upgraded now.
	upgradeBlocker string
}

// conditionReport is what a condition says. It is empty if a delivery has found out nothing.
type conditionReport struct {
	current         bool
	reason, message string
}

// hasPolled reports whether the delivery has polled the nodes until its deadline, if they have made
// it wait: no change has ended that before.
func (c *cluster) hasPolled(ctx context.Context) bool {
	return c.polls && !coalesce.IsSuperseded(ctx)
}

// hasNodes reports whether a node has its configuration.
func (o *observed) hasNodes() bool {
	for _, m := range o.machines {
		if plan.IsInstalled(m) {
			return true
		}
	}
	return false
}

// effectiveCluster returns the cluster with the spec that it follows: the last valid one, as far
// as it is approved.
func (c *cluster) effectiveCluster() *v1alpha1.KubernetesCluster {
	if c.accepted != nil {
		return c.accepted
	}
	return c.KubernetesCluster
}

// controlPlanes returns the addresses by name of the control planes that run with their
// configuration, including control planes in removal.
func (o *observed) controlPlanes() map[string]string {
	addresses := map[string]string{}
	for name, m := range o.machines {
		if plan.PoolOf(m) == v1alpha1.ControlPlanePool && plan.IsInstalled(m) && m.Status.Phase == v1alpha1.MachineRunning && len(m.Status.IPAddresses) > 0 {
			addresses[name] = plan.Address(m)
		}
	}
	return addresses
}

// close closes the connections of a delivery.
func (c connections) close() {
	if c.workload != nil {
		c.workload.Close()
	}
}

// recordNodes records the Nodes that the workload API has listed. Nodes of Machines without a
// configuration are left of earlier Machines of the same names, and are Ready until Kubernetes misses
// their kubelets.
func (o *observed) recordNodes(nodes []plan.Node) {
	o.nodes, o.earlierNodes = nil, nil
	for _, n := range nodes {
		if m := o.machines[n.Name]; m != nil && !plan.IsInstalled(m) {
			o.earlierNodes = append(o.earlierNodes, n)
		} else {
			o.nodes = append(o.nodes, n)
		}
	}
}

// addressesOf returns the addresses of some nodes, by name.
func (o *observed) addressesOf(names []string) map[string]string {
	addresses := map[string]string{}
	for _, name := range names {
		addresses[name] = plan.Address(o.machines[name])
	}
	return addresses
}

// isWorking reports whether a machine is a working node, as far as that is known.
func (o *observed) isWorking(name string) bool {
	if !plan.IsRunning(o.machines[name]) {
		return false
	}
	if !o.apiAnswers {
		return plan.IsInstalled(o.machines[name])
	}
	n, ok := o.node(name)
	return ok && n.Ready
}

// node returns the Node of a machine, as listed last.
func (o *observed) node(name string) (plan.Node, bool) {
	i := slices.IndexFunc(o.nodes, func(n plan.Node) bool { return n.Name == name })
	if i < 0 {
		return plan.Node{}, false
	}
	return o.nodes[i], true
}

// isTrue reports whether a condition of the cluster is True.
func isTrue(kc *v1alpha1.KubernetesCluster, condition string) bool {
	return meta.IsStatusConditionTrue(kc.Status.Conditions, condition)
}

// conditionSince returns since when a condition has had a reason, and whether it has that.
func conditionSince(kc *v1alpha1.KubernetesCluster, condition, reason string) (time.Time, bool) {
	c := meta.FindStatusCondition(kc.Status.Conditions, condition)
	if c == nil || c.Reason != reason {
		return time.Time{}, false
	}
	return c.LastTransitionTime.Time, true
}

// hasMachine reports whether a Machine of a name exists.
func (o *observed) hasMachine(name string) bool { return o.machines[name] != nil }

// isControlPlaneWorking reports whether every control plane is a working node.
func (c *cluster) isControlPlaneWorking() bool {
	return !slices.ContainsFunc(c.plan.ControlPlanes(), func(m plan.Member) bool { return !c.observed.isWorking(m.Name) })
}

func (c *cluster) isUpgradePaused() bool { return c.Spec.Upgrade != nil && c.Spec.Upgrade.Paused }

// isUpgrading reports whether any node is being upgraded.
func (c *cluster) isUpgrading() bool {
	return c.Status.Upgrade != nil && len(c.Status.Upgrade.Nodes) > 0
}

// isUpgradeActive reports whether any node is being upgraded whose upgrade has not failed. After a failure the upgrade
// waits for a user, for any length of time.
func (c *cluster) isUpgradeActive() bool {
	return c.Status.Upgrade != nil && slices.ContainsFunc(c.Status.Upgrade.Nodes, func(u v1alpha1.NodeUpgrade) bool { return u.Step != v1alpha1.UpgradeFailed })
}

// isNodeUpgrading reports whether a node is being upgraded, and so may be unreachable.
func (c *cluster) isNodeUpgrading(name string) bool {
	return c.Status.Upgrade != nil && slices.ContainsFunc(c.Status.Upgrade.Nodes, func(u v1alpha1.NodeUpgrade) bool { return u.Name == name })
}

// conditionError is a UserError that does not keep a cluster with nodes from being observed and
// repaired. Only its condition and Ready report it.
type conditionError struct {
	condition string
	reconcile.UserError
}
