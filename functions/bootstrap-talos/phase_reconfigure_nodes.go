package main

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"

	"github.com/vitistack/stack/apis/cluster/plan"
	"github.com/vitistack/stack/apis/v1alpha1"
	"github.com/vitistack/stack/functions/bootstrap-talos/talos"
	"github.com/vitistack/stack/functions/internal/kube"
	"github.com/vitistack/stack/functions/internal/reconcile"
)

// reconfigureResetNodes finds nodes that have lost their configuration by a new disk or a reset,
// and marks their Machines so that they get it again. Only a delivery that polls probes nodes.
// It returns a WaitError for a node that it has found, and a UserError if a user has to decide.
func (n *nodeConfigurator) reconfigureResetNodes(ctx context.Context, c *cluster) error {
	if !c.hasPolled(ctx) {
		return nil
	}
	var problems []error
	addresses := map[string]string{}
	for _, m := range c.possiblyResetNodes() {
		addresses[m.Name] = plan.Address(m)
	}
	found := talos.FindInMaintenance(ctx, addresses, c.connections.credentials, nodePollTime)
	for _, name := range slices.Sorted(maps.Keys(found)) {
		if err := n.reconfigureNode(ctx, c, c.observed.machines[name], found[name]); err != nil {
			problems = append(problems, err)
		}
	}
	return reconcile.MostUrgent(problems...)
}

// possiblyResetNodes returns the configured nodes that are not Ready. If the workload API does
// not answer, these are only the control planes, and none before etcd is bootstrapped.
func (c *cluster) possiblyResetNodes() []*v1alpha1.Machine {
	var found []*v1alpha1.Machine
	begun := isTrue(c.before, v1alpha1.ConditionBootstrapped)
	for _, m := range c.plan.Members {
		machine := c.observed.machines[m.Name]
		n, _ := c.observed.node(m.Name)
		hasJoined := c.observed.apiAnswers
		if m.Role == v1alpha1.RoleControlPlane {
			hasJoined = begun
		}
		if hasJoined && plan.IsRunning(machine) && plan.IsInstalled(machine) && !plan.IsLeaving(machine) && !n.Ready {
			found = append(found, machine)
		}
	}
	return found
}

// reconfigureNode marks the Machine of a reset node so that it gets its configuration again, if
// the node is that machine. A control plane needs other members of etcd to join.
func (n *nodeConfigurator) reconfigureNode(ctx context.Context, c *cluster, m *v1alpha1.Machine, shown talos.Fingerprint) error {
	nc := &v1alpha1.NetworkConfiguration{}
	if err := n.kube.Get(ctx, m.Namespace, m.Name, nc); err != nil && !kube.NotFound(err) {
		return err
	}
	if err := checkIdentity(ctx, m, talos.MACsOf(nc), shown); err != nil {
		if errors.As(err, new(reconcile.UserError)) {
			return err
		}
		return nil // it may be restarting: the next delivery probes it
	}
	c.observed.nodeStates[m.Name] = talos.Maintenance
	if plan.PoolOf(m) == v1alpha1.ControlPlanePool {
		why := findRejoinObjection(ctx, c, m)
		if why != "" && c.Status.Version == "" {
			return nil // etcd is still being built up
		}
		if why != "" {
			return reconcile.UserError{Reason: "NodeReset", Message: fmt.Sprintf(
				"control plane %s lost its configuration (new disk or reset), and gets it again only while etcd has a majority without it: %s. If all control planes lost it, remove the annotation %s from their Machines",
				m.Name, why, v1alpha1.AnnotationInstalled)}
		}
	}
	before := m.DeepCopy()
	delete(m.Annotations, v1alpha1.AnnotationInstalled)
	if _, err := n.kube.Patch(ctx, before, m); err != nil && !kube.NotFound(err) && !kube.Conflict(err) {
		return err
	}
	return reconcile.WaitError{Reason: "WaitingForNode", Message: fmt.Sprintf("node %s lost its configuration (new disk or reset), and gets it again", m.Name), Requeue: true}
}

// findRejoinObjection returns why a reset control plane cannot get its configuration now, or an
// empty string. It never bootstraps: with its data it is the member that it was, and otherwise
// Talos replaces the member, which needs the majority of the others.
func findRejoinObjection(ctx context.Context, c *cluster, m *v1alpha1.Machine) string {
	view, err := talos.ReadEtcd(ctx, c.observed.controlPlanes(), c.connections.credentials)
	if err != nil {
		return "no member of etcd answers: bring one back, or restore a backup"
	}
	member, listed := view.Member(m.Name, plan.Address(m))
	member.Learner = member.Learner || !listed
	return plan.RemovalObjection(view, member)
}
