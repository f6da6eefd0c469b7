package main

import (
	"context"
	"errors"
	"sync"
	"time"

	"github.com/vitistack/stack/apis/cluster/plan"
	"github.com/vitistack/stack/apis/v1alpha1"
	"github.com/vitistack/stack/functions/bootstrap-talos/talos"
	"github.com/vitistack/stack/functions/internal/reconcile"
)

// reportValidity is how long an event of a node shows that the nodes of its cluster reach the event sink.
const reportValidity = 10 * time.Minute

// nodeReports has when the last event of a node of each cluster arrived in this process. It only saves requests: the nodes of a cluster without an
// entry are polled, because they may not reach the event sink, or run a configuration without it.
type nodeReports struct {
	mu   sync.Mutex
	last map[string]time.Time
}

// record notes that a node of a cluster has sent an event.
func (r *nodeReports) record(cluster string, now time.Time) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.last == nil {
		r.last = map[string]time.Time{}
	}
	for name, at := range r.last {
		if now.Sub(at) >= reportValidity {
			delete(r.last, name)
		}
	}
	r.last[cluster] = now
}

// isRecent reports whether a node of a cluster has sent an event within reportValidity.
func (r *nodeReports) isRecent(cluster string, now time.Time) bool {
	r.mu.Lock()
	defer r.mu.Unlock()
	at, known := r.last[cluster]
	return known && now.Sub(at) < reportValidity
}

// awaitNodeEvent ends a wait for nodes that send an event when they are further, so that the delivery neither polls them nor is repeated. If the
// event does not arrive, a round of resync continues. Any other error is returned as it is, and so are all errors while no node of the cluster has
// reported:
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
	if !f.reports.isRecent(c.Namespace+"/"+c.Name, f.now()) || !errors.As(waiting, &w) || !w.Requeue {
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
