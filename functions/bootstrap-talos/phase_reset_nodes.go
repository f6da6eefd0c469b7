package main

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"sync"
	"time"

	"golang.org/x/sync/errgroup"

	"github.com/vitistack/stack/apis/v1alpha1"
	"github.com/vitistack/stack/functions/bootstrap-talos/plan"
	"github.com/vitistack/stack/functions/bootstrap-talos/talos"
	"github.com/vitistack/stack/functions/internal/kube"
	"github.com/vitistack/stack/functions/internal/reconcile"
)

// reconfigureResetNodes finds nodes that have lost their configuration, since their disk is new or
// somebody has reset them, and takes back what their Machines remember of it: they get
// it again as new nodes do. Nobody is asked by a delivery that waits for no node, since
// each Machine of a new cluster brings one of those. It returns waits when it has found
// one, and a fault where somebody has to decide.
func (f *function) reconfigureResetNodes(ctx context.Context, c *cluster) error {
	if !c.polls {
		return nil
	}
	var problems []error
	found := c.nodesInMaintenance(ctx)
	for _, name := range slices.Sorted(maps.Keys(found)) {
		if err := f.reconfigureNode(ctx, c, c.observed.machines[name], found[name]); err != nil {
			problems = append(problems, err)
		}
	}
	return reconcile.MostUrgent(problems...)
}

// possiblyResetNodes are the nodes that may have lost their configuration: those that have
// taken it, and are not Ready. Where the workload API does not answer, only control
// planes are, as they may be the reason; a cluster whose etcd may not have begun has
// none of those.
func (c *cluster) possiblyResetNodes() []*v1alpha1.Machine {
	var found []*v1alpha1.Machine
	begun := isTrue(c.before, v1alpha1.ConditionBootstrapped)
	for _, m := range c.plan.Members {
		machine := c.observed.machines[m.Name]
		n, _ := c.node(m.Name)
		if plan.IsRunning(machine) && plan.IsInstalled(machine) && !plan.IsLeaving(machine) && !n.Ready && plan.Pick(m.Role == v1alpha1.RoleControlPlane, begun, c.observed.apiAnswers) {
			found = append(found, machine)
		}
	}
	return found
}

// nodesInMaintenance asks suspects what they are. It returns the certificates of those that
// wait for a configuration, by their names. Who is not asked in time is so by the next
// delivery: others that do not answer may take long.
func (c *cluster) nodesInMaintenance(ctx context.Context) map[string]talos.Fingerprint {
	var mu sync.Mutex
	var group errgroup.Group
	group.SetLimit(plan.MaxConcurrentNodes)
	found, end := map[string]talos.Fingerprint{}, time.Now().Add(nodePollTime)
	for _, m := range c.possiblyResetNodes() {
		if time.Now().After(end) {
			break
		}
		group.Go(func() error {
			if state, shown := talos.Probe(ctx, plan.Address(m), c.connections.credentials); state == talos.Maintenance {
				mu.Lock()
				defer mu.Unlock()
				found[m.Name] = shown
			}
			return nil
		})
	}
	_ = group.Wait()
	return found
}

// reconfigureNode takes back that a node has its configuration, if it is the machine that
// it should be. A control plane has to have others to join.
func (f *function) reconfigureNode(ctx context.Context, c *cluster, m *v1alpha1.Machine, shown talos.Fingerprint) error {
	nc := &v1alpha1.NetworkConfiguration{}
	if err := f.kube.Get(ctx, m.Namespace, m.Name, nc); err != nil && !kube.NotFound(err) {
		return err
	}
	if err := checkIdentity(ctx, m, talos.MACsOf(nc), shown); err != nil {
		if errors.As(err, new(reconcile.UserError)) {
			return err
		}
		return nil // it may be restarting; the next look tells
	}
	c.observed.nodeStates[m.Name] = talos.Maintenance
	if plan.PoolOf(m) == plan.ControlPlanePool {
		why := c.rejoinObjection(ctx, m)
		if why != "" && c.Status.Version == "" {
			return nil // etcd is still being built up
		}
		if why != "" {
			return reconcile.UserError{Reason: "NodeReset", Message: fmt.Sprintf(
				"control plane %s has lost its configuration, by a new disk or a reset, and gets it again only while etcd has a majority without it: %s; where all control planes have lost it, first take the annotation %s from their Machines",
				m.Name, why, v1alpha1.AnnotationInstalled)}
		}
	}
	before := m.DeepCopy()
	delete(m.Annotations, v1alpha1.AnnotationInstalled)
	if _, err := f.kube.Patch(ctx, before, m); err != nil && !kube.NotFound(err) && !kube.Conflict(err) {
		return err
	}
	return reconcile.WaitError{Reason: "WaitingForNode", Message: fmt.Sprintf("node %s has lost its configuration, by a new disk or a reset, and gets it again", m.Name), Requeue: true}
}

// rejoinObjection says why a control plane that has lost its configuration may not have it
// now, or nothing. It never begins another etcd, whatever it has lost: where its data
// is still there it is the member that it was, and otherwise Talos replaces that,
// which takes the majority of the others.
func (c *cluster) rejoinObjection(ctx context.Context, m *v1alpha1.Machine) string {
	view, err := talos.ReadEtcd(ctx, c.controlPlanes(), c.connections.credentials)
	if err != nil {
		return "no member of etcd answers: bring one back, or restore a backup"
	}
	member, listed := view.Member(m.Name, plan.Address(m))
	member.Learner = member.Learner || !listed
	return plan.RemovalObjection(view, member)
}
