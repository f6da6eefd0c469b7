package main

import (
	"context"
	"maps"
	"slices"
	"time"

	"k8s.io/apimachinery/pkg/api/meta"

	"github.com/vitistack/stack/apis/cluster/plan"
	"github.com/vitistack/stack/apis/v1alpha1"
	"github.com/vitistack/stack/functions/bootstrap-talos/talos"
	"github.com/vitistack/stack/functions/bootstrap-talos/workload"
	"github.com/vitistack/stack/functions/internal/coalesce"
)

// cluster is a KubernetesCluster in one delivery. Phases read what is observed and planned, talk
// through the connections, and write what they find into the report. Its methods work on what is in memory: a function that
// speaks to nodes has it as an argument.
type cluster struct {
	*v1alpha1.KubernetesCluster
	// before is the object as the API server has it.
	before *v1alpha1.KubernetesCluster
	// eventID is the ID of the event that is delivered.
	eventID string
	// deadline is the time until which the delivery polls nodes, unless an event of theirs follows, and polls
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

// connections is how a delivery reaches the nodes and the API of a cluster.
type connections struct {
	credentials *talos.Credentials
	// workload is nil before the cluster has a kubeconfig.
	workload *workload.Client
}

// hasPolled reports whether the delivery has polled the nodes until its deadline, if they have made
// it wait: no change has ended that before.
func (c *cluster) hasPolled(ctx context.Context) bool {
	return c.polls && !coalesce.IsSuperseded(ctx)
}

// effectiveCluster returns the cluster with the spec that it follows: the last valid one, as far
// as it is approved.
func (c *cluster) effectiveCluster() *v1alpha1.KubernetesCluster {
	if c.accepted != nil {
		return c.accepted
	}
	return c.KubernetesCluster
}

// close closes the connections of a delivery.
func (c connections) close() {
	if c.workload != nil {
		c.workload.Close()
	}
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

// controlPlaneNames returns the names of the control planes that run with their configuration, first the one that has
// bootstrapped etcd, and then in alphabetical order.
func (c *cluster) controlPlaneNames() []string {
	names := slices.Sorted(maps.Keys(c.observed.controlPlanes()))
	slices.SortStableFunc(names, func(a, b string) int {
		return plan.CompareBool(b == c.Status.BootstrapMachine, a == c.Status.BootstrapMachine)
	})
	return names
}

// askControlPlanes asks one control plane after another until one answers, and reports whether one did.
func askControlPlanes[T any](c *cluster, ask func(address string) (T, error)) (answer T, ok bool) {
	addresses := c.observed.controlPlanes()
	for _, name := range c.controlPlaneNames() {
		if answer, err := ask(addresses[name]); err == nil {
			return answer, true
		}
	}
	return answer, false
}

// isControlPlaneWorking reports whether every control plane is a working node.
func (c *cluster) isControlPlaneWorking() bool {
	return !slices.ContainsFunc(c.plan.ControlPlanes(), func(m plan.Member) bool { return !c.observed.isWorking(m.Name) })
}

// isControlPlaneResizing reports whether a control plane is being resized.
func (c *cluster) isControlPlaneResizing() bool {
	return slices.ContainsFunc(c.Status.Resizes, func(r v1alpha1.MachineResize) bool {
		m := c.observed.machines[r.Name]
		return m != nil && plan.PoolOf(m) == v1alpha1.ControlPlanePool
	})
}

// outdated returns the machines that differ from their pools.
func (c *cluster) outdated() plan.Outdated {
	return c.plan.WithNodeConfigs(c.observed.nodeConfigs).OutdatedMachines(c.observed.machines, c.observed.classes)
}

// tolerateUserError keeps a UserError of a cluster that has nodes. Other errors are returned.
func (c *cluster) tolerateUserError(condition string, err error) error {
	if err != nil && c.observed.hasNodes() && c.report.noteUserError(condition, err) {
		return nil
	}
	return err
}
