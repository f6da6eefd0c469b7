package main

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"

	"github.com/vitistack/stack/apis/cluster/plan"
	"github.com/vitistack/stack/apis/versions"
	"github.com/vitistack/stack/events/outbound"
	"github.com/vitistack/stack/functions/bootstrap-talos/talos"
	"github.com/vitistack/stack/functions/bootstrap-talos/workload"
	"github.com/vitistack/stack/functions/internal/reconcile"
)

// nodeLister lists the Nodes of clusters.
type nodeLister struct {
	secrets *secretStore
}

// read reads the nodes from the workload API, through the kubeconfig that it makes first.
func (l *nodeLister) read(ctx context.Context, c *cluster) error {
	err := l.list(ctx, c)
	c.report.apiUnanswered = errors.As(err, new(reconcile.WaitError)) || errors.As(err, new(reconcile.UserError))
	return err
}

// otherPort names the value of the chart that has to list a port of the workload API other than the usual one.
func otherPort(c *cluster) string {
	if c.plan.Port == plan.DefaultPort {
		return ""
	}
	return fmt.Sprintf(" (the value networkPolicy.clusters.ports of the chart has to list %d)", c.plan.Port)
}

// list connects to the workload API and lists its Nodes.
func (l *nodeLister) list(ctx context.Context, c *cluster) error {
	if c.observed.kubeconfig == nil {
		if err := l.secrets.ensureClientConfigs(ctx, c); err != nil {
			return err
		}
	}
	if c.connections.workload == nil {
		w, err := workload.Connect(c.observed.kubeconfig, c.plan.LocalPort(), slices.Sorted(maps.Values(c.observed.controlPlanes()))...)
		if err != nil {
			return err
		}
		c.connections.workload = w
	}
	nodes, err := c.connections.workload.Nodes(ctx)
	if err != nil {
		c.observed.apiAnswers = false
		var denied *outbound.Denied
		if errors.As(err, &denied) {
			return reconcile.UserError{Reason: "EndpointNotAllowed", Message: denied.Error()}
		}
		return reconcile.WaitError{Reason: reasonWaitingForAPI, Message: "waiting for the workload API at " + c.Status.Endpoint + otherPort(c), Requeue: true}
	}
	c.observed.apiAnswers = true
	c.observed.recordNodes(nodes)
	return nil
}

// labelNodes gives the Nodes the labels and taints of their pools.
func labelNodes(ctx context.Context, c *cluster) error {
	for _, m := range c.plan.Members {
		n, ok := c.observed.node(m.Name)
		if !ok {
			continue
		}
		patch := workload.LabelPatch(n, m.Properties)
		if patch == nil {
			continue
		}
		if err := c.connections.workload.PatchNode(ctx, m.Name, patch); err != nil {
			return reconcile.WaitError{Reason: reasonWaitingForAPI, Message: "waiting for the workload API, to label node " + m.Name, Requeue: true}
		}
	}
	return nil
}

// checkReleases returns a UserError if a node that is not Ready finds no image of its Kubernetes version, control
// planes first.
func checkReleases(ctx context.Context, c *cluster) error {
	if !c.hasPolled(ctx) || c.connections.credentials == nil {
		return nil
	}
	for _, m := range c.plan.Members {
		machine := c.observed.machines[m.Name]
		n, _ := c.observed.node(m.Name)
		if versions.IsReleased(m.Version) || !plan.IsRunning(machine) || !plan.IsInstalled(machine) || n.Ready {
			continue
		}
		err := talos.CheckKubelet(ctx, plan.Address(machine), c.connections.credentials, m.Version)
		if _, isUserError := reconcile.AsUserError(err); isUserError {
			return err
		}
		return nil // one node is enough
	}
	return nil
}

// withUnmetConditions adds to a WaitError what Talos waits for on the first node that is not
// Ready, control planes first. A node that does not answer adds nothing.
func withUnmetConditions(ctx context.Context, c *cluster, waiting error) error {
	var w reconcile.WaitError
	if !errors.As(waiting, &w) || !(w.Requeue || c.report.nodeEventFollows) || w.Reason == "RemovingNodes" || c.connections.credentials == nil {
		return waiting
	}
	for _, m := range c.plan.Members {
		machine := c.observed.machines[m.Name]
		n, _ := c.observed.node(m.Name)
		if !plan.IsRunning(machine) || !plan.IsInstalled(machine) || n.Ready {
			continue
		}
		if said := talos.UnmetConditions(ctx, plan.Address(machine), c.connections.credentials); said != "" {
			w.Message += fmt.Sprintf("; Talos on %s is %s", m.Name, said)
		}
		return w
	}
	return waiting
}
