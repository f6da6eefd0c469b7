package nodeevents

import (
	"net"
	"net/netip"
	"sync"
)

// Reasons for which a connection is closed at once.
const (
	refusedUnknown = "unknown_address"
	refusedLimit   = "limit"
)

// RefusalReasons are all reasons for which a connection is refused, for counters that exist from the start.
var RefusalReasons = []string{refusedUnknown, refusedLimit}

// listener accepts connections from nodes only, and a bounded number of them. Others are closed before a byte of theirs is read. A node whose
// address is not known yet connects again, and then sends what it has stored.
type listener struct {
	net.Listener
	nodes   *nodes
	metrics Metrics

	mu          sync.Mutex
	total       int
	byAddresses map[netip.Addr]int
}

func newListener(l net.Listener, n *nodes, m Metrics) *listener {
	return &listener{Listener: l, nodes: n, metrics: m, byAddresses: map[netip.Addr]int{}}
}

// Accept returns the next connection from a node.
func (l *listener) Accept() (net.Conn, error) {
	for {
		c, err := l.Listener.Accept()
		if err != nil {
			return nil, err
		}
		from := addressOf(c.RemoteAddr())
		reason := refusedUnknown
		if l.nodes.find(from) != nil {
			if l.admit(from) {
				return &conn{Conn: c, release: sync.OnceFunc(func() { l.release(from) })}, nil
			}
			reason = refusedLimit
		}
		_ = c.Close()
		l.metrics.NodeConnectionRefused(reason)
	}
}

// admit counts a connection, if the limits have room for it.
func (l *listener) admit(from netip.Addr) bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.total >= maxConnections || l.byAddresses[from] >= maxConnectionsPerAddress {
		return false
	}
	l.total++
	l.byAddresses[from]++
	return true
}

func (l *listener) release(from netip.Addr) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.total--
	if l.byAddresses[from]--; l.byAddresses[from] == 0 {
		delete(l.byAddresses, from)
	}
}

// conn is a counted connection.
type conn struct {
	net.Conn
	release func()
}

// Close closes the connection and removes it from the count.
func (c *conn) Close() error {
	c.release()
	return c.Conn.Close()
}
