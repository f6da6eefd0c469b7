package nodeprobe

import (
	"context"
	"log/slog"
	"net"
	"net/url"
	"strconv"
	"time"

	"github.com/vitistack/stack/apis/v1alpha1"
	"github.com/vitistack/stack/events"
	"github.com/vitistack/stack/events/outbound"
	"github.com/vitistack/stack/gateway/internal/inventory"
)

const (
	// source is the source of the events that request a reconcile of a cluster.
	source = "/gateway/nodeprobe"
	// talosPort is the port of the Talos API on each node.
	talosPort = "50000"
)

// Watcher probes the nodes of all clusters and requests a reconcile of those whose nodes change.
type Watcher struct {
	Store    *inventory.Store
	Broker   *events.Sender
	Interval time.Duration
	// Timeout bounds each request to the Broker.
	Timeout time.Duration
	Log     *slog.Logger
}

// Run dials the nodes and endpoints of Running clusters at each interval, and requests a reconcile of a cluster when one of its
// addresses stops or begins to answer, until ctx ends. A dead node sends no event; without this it is noticed only in the
// next full round of resync.
func (w *Watcher) Run(ctx context.Context) {
	prober := New(outbound.FromEnvironment().DialContext)
	pending := map[string]bool{}
	ticker := time.NewTicker(w.Interval)
	defer ticker.Stop()
	for {
		clusters := runningClusters(w.Store.Objects(inventory.KindCluster))
		now := time.Now()
		dialled := targets(clusters, stoppedAddresses(w.Store.Objects(inventory.KindMachine)))
		for uid := range prober.Round(ctx, now, dialled) {
			pending[uid] = true
		}
		if ctx.Err() == nil {
			w.Store.SetNodeReachability(prober.Reachability(dialled), now)
		}
		for uid := range pending {
			if w.requestReconcile(ctx, now, clusters[uid]) {
				delete(pending, uid)
			}
		}
		select {
		case <-ctx.Done():
			return
		case <-ticker.C:
		}
	}
}

// requestReconcile sends the event that requests a reconcile of a cluster, and reports whether the Broker has it. A
// deleted cluster, which is nil, needs no event. Replicas that notice the same change in one interval send the same id.
func (w *Watcher) requestReconcile(ctx context.Context, now time.Time, o *inventory.Object) bool {
	if o == nil {
		return true
	}
	ref := events.Ref{APIVersion: o.APIVersion, Kind: string(o.Kind), Namespace: o.Namespace, Name: o.Name}
	cause := o.ResourceVersion + "." + strconv.FormatInt(now.UnixMilli()/w.Interval.Milliseconds(), 10)
	ctx, cancel := context.WithTimeout(ctx, w.Timeout)
	defer cancel()
	if err := w.Broker.Request(ctx, events.NewReconcileRequest(source, ref, o.UID, cause)); err != nil {
		if ctx.Err() == nil {
			w.Log.Warn("Cannot request a reconcile of the cluster", "namespace", o.Namespace, "name", o.Name, "error", err.Error())
		}
		return false
	}
	return true
}

// runningClusters returns the clusters that are Running or Updating, by UID.
func runningClusters(objects []*inventory.Object) map[string]*inventory.Object {
	all := map[string]*inventory.Object{}
	for _, o := range objects {
		switch v1alpha1.ClusterPhase(o.Facts.(*inventory.Cluster).Phase) {
		case v1alpha1.ClusterRunning, v1alpha1.ClusterUpdating:
			if !o.Deleting {
				all[o.UID] = o
			}
		}
	}
	return all
}

// stoppedAddresses returns the addresses of the Machines that do not run.
func stoppedAddresses(machines []*inventory.Object) map[string]bool {
	stopped := map[string]bool{}
	for _, o := range machines {
		if m := o.Facts.(*inventory.Machine); v1alpha1.MachinePhase(m.Phase) != v1alpha1.MachineRunning {
			for _, address := range m.Addresses {
				stopped[net.JoinHostPort(address, talosPort)] = true
			}
		}
	}
	return stopped
}

// targets returns the addresses of each cluster: its nodes' Talos APIs and its endpoint. stopped are addresses whose Machine does
// not run.
func targets(clusters map[string]*inventory.Object, stopped map[string]bool) []Cluster {
	all := make([]Cluster, 0, len(clusters))
	for uid, o := range clusters {
		facts := o.Facts.(*inventory.Cluster)
		c := Cluster{UID: uid, Ready: o.Readiness.Ready, Stopped: stopped}
		for _, address := range facts.NodeAddresses {
			c.Addresses = append(c.Addresses, net.JoinHostPort(address, talosPort))
		}
		if u, err := url.Parse(facts.Endpoint); err == nil && u.Port() != "" {
			c.Addresses = append(c.Addresses, u.Host)
		}
		all = append(all, c)
	}
	return all
}
