package main

import (
	"context"
	"net"
	"net/url"
	"strconv"
	"time"

	"github.com/vitistack/stack/apis/v1alpha1"
	"github.com/vitistack/stack/events"
	"github.com/vitistack/stack/events/outbound"
	"github.com/vitistack/stack/gateway/internal/inventory"
	"github.com/vitistack/stack/gateway/internal/nodeprobe"
)

const (
	// probeSource is the source of the events that ask for a reconcile of a cluster.
	probeSource = "/gateway/nodeprobe"
	// talosPort is where Talos serves its API on each node.
	talosPort = "50000"
)

// probeClusters dials the nodes and endpoints of Running clusters at each interval, and has
// a cluster reconciled where one stops or begins to answer, until ctx ends. Nodes send no
// events, and without this a dead node is noticed only in the next full round of resync.
func (g *gateway) probeClusters(ctx context.Context) {
	select {
	case <-ctx.Done():
		return
	case <-g.published:
	}
	prober := nodeprobe.New(outbound.FromEnvironment().DialContext)
	pending := map[string]bool{}
	ticker := time.NewTicker(g.config.NodeProbeInterval)
	defer ticker.Stop()
	for {
		clusters := runningClusters(g.store.Objects(inventory.KindCluster))
		now := time.Now()
		for uid := range prober.Round(ctx, now, targets(clusters)) {
			pending[uid] = true
		}
		for uid := range pending {
			if g.requestReconcile(ctx, now, clusters[uid]) {
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

// requestReconcile sends the event that has a cluster reconciled, and reports whether the
// Broker has taken it. Replicas that notice the same in one interval send the same id. A
// cluster that is gone needs no event.
func (g *gateway) requestReconcile(ctx context.Context, now time.Time, o *inventory.Object) bool {
	if o == nil {
		return true
	}
	ref := events.Ref{APIVersion: o.APIVersion, Kind: string(o.Kind), Namespace: o.Namespace, Name: o.Name}
	cause := o.ResourceVersion + "." + strconv.FormatInt(now.UnixMilli()/g.config.NodeProbeInterval.Milliseconds(), 10)
	ctx, cancel := context.WithTimeout(ctx, g.config.APITimeout)
	defer cancel()
	if err := g.sendToBroker(ctx, events.LookAgain(probeSource, ref, o.UID, cause)); err != nil {
		if ctx.Err() == nil {
			g.log.Warn("Cannot request a reconcile of the cluster", "component", "nodeprobe", "namespace", o.Namespace, "name", o.Name, "error", err.Error())
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

// targets returns the addresses of each cluster: its nodes' Talos APIs and its endpoint.
func targets(clusters map[string]*inventory.Object) []nodeprobe.Cluster {
	all := make([]nodeprobe.Cluster, 0, len(clusters))
	for uid, o := range clusters {
		facts := o.Facts.(*inventory.Cluster)
		c := nodeprobe.Cluster{UID: uid, Ready: o.Story.Ready}
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
