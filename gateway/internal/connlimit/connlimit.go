// Package connlimit bounds the connections that a listener holds, in all and from
// one address. A new connection takes the place of the one that has waited longest,
// so that connections which ask for nothing keep nobody out.
package connlimit

import (
	"container/list"
	"io"
	"net"
	"net/netip"
	"sync"
	"time"
)

// Limits are how many connections a Listener holds. 0 means any number.
type Limits struct {
	All, PerAddress int
	// Exempt tells whose connections count only in all. nil exempts nobody.
	Exempt func(netip.Addr) bool
}

// Listener is a listener whose connections are bounded.
type Listener struct {
	net.Listener
	limits Limits

	mu  sync.Mutex
	all int
	// waiting are the connections that no handler serves, the longest waiting first.
	waiting  *list.List
	sources  map[netip.Prefix]*source
	displace func()
}

// source is the connections of one address.
type source struct {
	count   int
	waiting *list.List
}

// New bounds the connections of l. displaced is called for each connection that is
// closed for the sake of a bound.
func New(l net.Listener, limits Limits, displaced func()) *Listener {
	return &Listener{Listener: l, limits: limits, waiting: list.New(), sources: map[netip.Prefix]*source{}, displace: displaced}
}

// Accept returns the next connection for which there is a place.
func (l *Listener) Accept() (net.Conn, error) {
	for {
		c, err := l.Listener.Accept()
		if err != nil {
			return nil, err
		}
		if made := l.admit(c); made != nil {
			return made, nil
		}
		_ = c.Close()
		l.displace()
	}
}

// Held is how many connections count at present.
func (l *Listener) Held() int {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.all
}

// admit makes room for a connection, or returns nil where handlers serve all others.
func (l *Listener) admit(c net.Conn) *conn {
	made := &conn{Conn: c, listener: l}
	address := addressOf(c)
	if l.limits.Exempt == nil || !l.limits.Exempt(address) {
		made.source = sourceOf(address)
	}
	l.mu.Lock()
	victim, room := l.room(made.source)
	if !room {
		l.mu.Unlock()
		return nil
	}
	if victim != nil {
		l.forget(victim)
	}
	l.count(made)
	l.mu.Unlock()
	if victim != nil {
		_ = victim.Conn.Close()
		l.displace()
	}
	return made
}

// room reports whether there is a place for one more connection from an address, and
// whose place that is where all are taken. The caller holds the lock.
func (l *Listener) room(of netip.Prefix) (victim *conn, ok bool) {
	waiting := l.waiting
	from := l.sources[of]
	switch {
	case l.limits.PerAddress > 0 && from != nil && from.count >= l.limits.PerAddress:
		waiting = from.waiting
	case l.limits.All == 0 || l.all < l.limits.All:
		return nil, true
	}
	front := waiting.Front()
	if front == nil {
		return nil, false
	}
	return front.Value.(*conn), true
}

// count takes a connection in, which waits. The caller holds the lock.
func (l *Listener) count(c *conn) {
	l.all++
	if c.source.IsValid() {
		if l.sources[c.source] == nil {
			l.sources[c.source] = &source{waiting: list.New()}
		}
		l.sources[c.source].count++
	}
	c.counted = true
	l.wait(c)
}

// wait puts a connection behind all others that wait. The caller holds the lock.
func (l *Listener) wait(c *conn) {
	c.inAll = l.waiting.PushBack(c)
	if from := l.sources[c.source]; from != nil {
		c.inSource = from.waiting.PushBack(c)
	}
}

// serve takes a connection out of those that wait. The caller holds the lock.
func (l *Listener) serve(c *conn) {
	if c.inAll != nil {
		l.waiting.Remove(c.inAll)
	}
	if c.inSource != nil {
		l.sources[c.source].waiting.Remove(c.inSource)
	}
	c.inAll, c.inSource = nil, nil
}

// forget counts a connection no longer. The caller holds the lock.
func (l *Listener) forget(c *conn) {
	if !c.counted {
		return
	}
	l.serve(c)
	c.counted = false
	l.all--
	if from := l.sources[c.source]; from != nil {
		if from.count--; from.count == 0 {
			delete(l.sources, c.source)
		}
	}
}

// addressOf is where a connection comes from.
func addressOf(c net.Conn) netip.Addr {
	from, err := netip.ParseAddrPort(c.RemoteAddr().String())
	if err != nil {
		return netip.Addr{}
	}
	return from.Addr().Unmap().WithZone("")
}

// ipv6Site is the prefix that one customer of a network commonly has.
const ipv6Site = 64

// sourceOf is what counts as one address.
func sourceOf(a netip.Addr) netip.Prefix {
	bits := a.BitLen()
	if a.Is6() {
		bits = ipv6Site
	}
	prefix, err := a.Prefix(bits)
	if err != nil {
		return netip.Prefix{}
	}
	return prefix
}

// conn is a connection that counts.
type conn struct {
	net.Conn
	listener *Listener
	source   netip.Prefix

	// The listener's lock guards these.
	counted         bool
	inAll, inSource *list.Element
	unread          bool
}

// SetDeadline never fails, and neither do the two below: fasthttp panics where they
// do, and a connection that was displaced meanwhile says so when it is used.
func (c *conn) SetDeadline(t time.Time) error {
	_ = c.Conn.SetDeadline(t)
	return nil
}

func (c *conn) SetReadDeadline(t time.Time) error {
	_ = c.Conn.SetReadDeadline(t)
	return nil
}

func (c *conn) SetWriteDeadline(t time.Time) error {
	_ = c.Conn.SetWriteDeadline(t)
	return nil
}

// lingering is for a client to take the answer to a request that was not read
// whole. Closing at once would reset the connection, and the answer with it.
const lingering = 500 * time.Millisecond

// Close closes the connection, and counts it no longer.
func (c *conn) Close() error {
	if c.takeUnread() {
		if half, ok := c.Conn.(interface{ CloseWrite() error }); ok && half.CloseWrite() == nil {
			_ = c.Conn.SetReadDeadline(time.Now().Add(lingering))
			_, _ = io.Copy(io.Discard, c.Conn)
		}
	}
	c.change((*Listener).forget)
	return c.Conn.Close()
}

func (c *conn) takeUnread() bool {
	c.listener.mu.Lock()
	defer c.listener.mu.Unlock()
	unread := c.unread && c.counted
	c.unread = false
	return unread
}

func (c *conn) change(how func(*Listener, *conn)) {
	c.listener.mu.Lock()
	defer c.listener.mu.Unlock()
	how(c.listener, c)
}

// Serving says that a handler serves a connection, which is not displaced until the
// returned function is called.
func Serving(of net.Conn) (done func()) {
	c := find(of)
	if c == nil {
		return func() {}
	}
	c.change((*Listener).serve)
	return func() {
		c.change(func(l *Listener, c *conn) {
			if c.counted && c.inAll == nil {
				l.wait(c)
			}
		})
	}
}

// Release has a connection count no longer: what holds it has bounds of its own. It
// returns the connection as it was accepted, since net.Buffers are written at once
// to a TCP connection only.
func Release(of net.Conn) net.Conn {
	c := find(of)
	if c == nil {
		return of
	}
	c.change((*Listener).forget)
	if c == of {
		return c.Conn
	}
	return of
}

// Unread says that the rest of a request is not going to be read, so that the
// connection's end leaves time for the answer.
func Unread(of net.Conn) {
	if c := find(of); c != nil {
		c.change(func(_ *Listener, c *conn) { c.unread = true })
	}
}

// find returns the connection that TLS may be around.
func find(of net.Conn) *conn {
	for {
		switch c := of.(type) {
		case *conn:
			return c
		case interface{ NetConn() net.Conn }:
			of = c.NetConn()
		default:
			return nil
		}
	}
}
