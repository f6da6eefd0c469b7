package main

import (
	"context"
	"errors"

	"github.com/vitistack/stack/apis/cluster/plan"
	"github.com/vitistack/stack/apis/v1alpha1"
	"github.com/vitistack/stack/functions/bootstrap-talos/talos"
	"github.com/vitistack/stack/functions/internal/reconcile"
)

// awaitNodeEvent ends a wait for nodes that send an event when they are further, so that the delivery neither polls them nor is repeated. If the
// event does not arrive, a round of resync continues. Any other error is returned as it is:
//
//	WaitingForNode    the event of a node that answers, or is ready for etcd; none if a node has not accepted a request
//	WaitingForEtcd    while etcd is bootstrapped, the event of etcd that runs
//	WaitingForNodes   the event of a machine that is ready, unless all machines are ready and the workload API lags behind
//	WaitingForAPI     in a cluster that has never been Running, the event of a control plane whose static pods are ready, unless one is ready
//	                  and the way to the endpoint is missing
//	others            none
func (f *function) awaitNodeEvent(ctx context.Context, c *cluster, waiting error) error {
	c.report.nodeEventFollows = false
	var w reconcile.WaitError
	if !f.eventSink || !errors.As(waiting, &w) || !w.Requeue {
		return waiting
	}
	switch {
	case w.Reason == "WaitingForNode" && !c.report.bootstrapSent, w.Reason == "WaitingForEtcd" && !c.report.bootstrapped:
	case w.Reason == "WaitingForNodes" && c.isMachineUnready(ctx):
	case w.Reason == reasonWaitingForAPI && c.Status.Version == "" && !c.isControlPlaneReady(ctx):
	default:
		return waiting
	}
	c.report.nodeEventFollows, w.Requeue = true, false
	return w
}

// isMachineUnready reports whether the machine of a member that is no Ready Node is not ready by its own status, or does not answer.
func (c *cluster) isMachineUnready(ctx context.Context) bool {
	for _, m := range c.plan.Members {
		machine := c.observed.machines[m.Name]
		if n, _ := c.observed.node(m.Name); !n.Ready && plan.IsRunning(machine) && !talos.IsMachineReady(ctx, plan.Address(machine), c.connections.credentials) {
			return true
		}
	}
	return false
}

// isControlPlaneReady reports whether the machine of a control plane is ready by its own status.
func (c *cluster) isControlPlaneReady(ctx context.Context) bool {
	for _, m := range c.plan.Members {
		machine := c.observed.machines[m.Name]
		if m.Role == v1alpha1.RoleControlPlane && plan.IsRunning(machine) && talos.IsMachineReady(ctx, plan.Address(machine), c.connections.credentials) {
			return true
		}
	}
	return false
}
