package nodeevents

import (
	"net"
	"net/netip"
	"sync"
	"time"

	"golang.org/x/time/rate"

	"github.com/vitistack/stack/gateway/internal/inventory"
)

const (
	// readInterval is the shortest time between two reads of the inventory, whatever connects.
	readInterval = time.Second
	// maxClusters is the largest number of clusters whose Machines share an address, as in networks that overlap. An address of more
	// clusters says nothing about a node, and one of its events would have all of them reconciled.
	maxClusters = 8
	// rateLimit is in events a second from one address. rateBurst has room for all events that machined stores, which it sends when it connects
	// for the first time.
	rateLimit = 20
	rateBurst = 1000
)

// node is the address of Machines of clusters. It is immutable, except for its limit.
type node struct {
	clusters []*inventory.Object
	limit    *rate.Limiter
}

// nodes finds clusters by the addresses of their Machines, in a copy of the inventory that is at most readInterval old.
type nodes struct {
	store *inventory.Store
	now   func() time.Time

	mu   sync.Mutex
	all  map[netip.Addr]*node
	read time.Time
}

func newNodes(store *inventory.Store) *nodes { return &nodes{store: store, now: time.Now} }

// find returns the node with an address, or nil if no Machine of a cluster has it, or those of too many clusters.
func (n *nodes) find(address netip.Addr) *node {
	n.mu.Lock()
	defer n.mu.Unlock()
	if now := n.now(); n.all == nil || now.Sub(n.read) >= readInterval {
		n.all = readNodes(n.store.Objects(inventory.KindMachine), n.store.Objects(inventory.KindCluster), n.all)
		n.read = now
	}
	return n.all[address]
}

// readNodes returns the addresses of the Machines of clusters that are not being deleted. An address keeps its limit of before.
func readNodes(machines, clusters []*inventory.Object, before map[netip.Addr]*node) map[netip.Addr]*node {
	byName := make(map[inventory.Key]*inventory.Object, len(clusters))
	for _, o := range clusters {
		if !o.Deleting {
			byName[o.Key] = o
		}
	}
	all := map[netip.Addr]*node{}
	for _, o := range machines {
		m := o.Facts.(*inventory.Machine)
		c := byName[inventory.Key{Namespace: o.Namespace, Name: m.Cluster}]
		if m.Cluster == "" || c == nil {
			continue
		}
		for _, text := range m.Addresses {
			if a, err := netip.ParseAddr(text); err == nil {
				addNode(all, a.Unmap(), c)
			}
		}
	}
	for a, n := range all {
		if len(n.clusters) > maxClusters {
			delete(all, a)
			continue
		}
		if b := before[a]; b != nil {
			n.limit = b.limit
		} else {
			n.limit = rate.NewLimiter(rateLimit, rateBurst)
		}
	}
	return all
}

// addNode adds a cluster to those of an address, once.
func addNode(all map[netip.Addr]*node, a netip.Addr, c *inventory.Object) {
	n := all[a]
	if n == nil {
		n = &node{}
		all[a] = n
	}
	for _, known := range n.clusters {
		if known == c {
			return
		}
	}
	if len(n.clusters) <= maxClusters {
		n.clusters = append(n.clusters, c)
	}
}

// addressOf returns the IP address of the other side of a connection, or the zero value.
func addressOf(a net.Addr) netip.Addr {
	from, err := netip.ParseAddrPort(a.String())
	if err != nil {
		return netip.Addr{}
	}
	return from.Addr().Unmap().WithZone("")
}
