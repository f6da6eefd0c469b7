// Package connlimit bounds the connections of a listener, in total and from one address. A new connection displaces the one that has
// been idle longest, so that idle connections lock no client out.
package connlimit

import (
	"container/list"
	"io"
	"net"
	"net/netip"
	"sync"
	"time"
)

// Limits bound the connections of a Listener. 0 means no limit.
type Limits struct {
	Total, PerAddress int
	// Exempt reports whether an address has no limit of its own. Nil exempts no address.
	Exempt func(netip.Addr) bool
}

// Listener is a listener with a bounded number of connections.
type Listener struct {
	net.Listener
	limits Limits

	mu  sync.Mutex
	all int
	// waiting are the connections that no handler serves, the longest idle first.
	waiting  *list.List
	sources  map[netip.Prefix]*source
	displace func()
}

// source is the connections of one address.
type source struct {
	count   int
	waiting *list.List
}

// New bounds the connections of l. displaced is called for each connection that is closed because of a bound.
func New(l net.Listener, limits Limits, displaced func()) *Listener {
	return &Listener{Listener: l, limits: limits, waiting: list.New(), sources: map[netip.Prefix]*source{}, displace: displaced}
}

// Accept returns the next connection within the bounds.
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

// Held returns the number of counted connections.
func (l *Listener) Held() int {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.all
}

// admit counts a connection, and displaces another if necessary. It returns nil if handlers serve all other connections.
func (l *Listener) admit(c net.Conn) *conn {
	made := &conn{Conn: c, listener: l}
	address := addressOf(c)
	if l.limits.Exempt == nil || !l.limits.Exempt(address) {
		made.source = SourceOf(address)
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

// room reports whether one more connection from an address fits, and which connection it displaces. The caller holds the lock.
func (l *Listener) room(of netip.Prefix) (victim *conn, ok bool) {
	waiting := l.waiting
	from := l.sources[of]
	switch {
	case l.limits.PerAddress > 0 && from != nil && from.count >= l.limits.PerAddress:
		waiting = from.waiting
	case l.limits.Total == 0 || l.all < l.limits.Total:
		return nil, true
	}
	front := waiting.Front()
	if front == nil {
		return nil, false
	}
	return front.Value.(*conn), true
}

// count counts a connection as idle. The caller holds the lock.
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

// wait makes a connection the last idle one. The caller holds the lock.
func (l *Listener) wait(c *conn) {
	c.inAll = l.waiting.PushBack(c)
	if from := l.sources[c.source]; from != nil {
		c.inSource = from.waiting.PushBack(c)
	}
}

// serve removes a connection from the idle ones. The caller holds the lock.
func (l *Listener) serve(c *conn) {
	if c.inAll != nil {
		l.waiting.Remove(c.inAll)
	}
	if c.inSource != nil {
		l.sources[c.source].waiting.Remove(c.inSource)
	}
	c.inAll, c.inSource = nil, nil
}

// forget removes a connection from the count. The caller holds the lock.
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

// addressOf returns the remote address of a connection.
func addressOf(c net.Conn) netip.Addr {
	from, err := netip.ParseAddrPort(c.RemoteAddr().String())
	if err != nil {
		return netip.Addr{}
	}
	return from.Addr().Unmap().WithZone("")
}

// ipv6Site is the length of the prefix that a customer of a network commonly has.
const ipv6Site = 64

// SourceOf returns the prefix that counts as one address: an IPv4 address, or the /64 of an IPv6 address, because a host may use all
// addresses of it.
func SourceOf(a netip.Addr) netip.Prefix {
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

// conn is a counted connection.
type conn struct {
	net.Conn
	listener *Listener
	source   netip.Prefix

	// The listener's lock guards these.
	counted         bool
	inAll, inSource *list.Element
	unread          bool
}

// SetDeadline never fails, nor do SetReadDeadline and SetWriteDeadline, because fasthttp panics on an error. A displaced connection
// fails at its next use.
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

// lingering is the time for a client to read the response to a request that was not read completely. An immediate close would reset
// the connection and lose the response.
const lingering = 500 * time.Millisecond

// Close closes the connection and removes it from the count.
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

// Serving protects a connection from being displaced until the returned function is called.
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

// Release removes a connection from the count, because its holder has bounds of its own. It returns the accepted connection, because
// net.Buffers are written at once only to a TCP connection.
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

// Unread marks a connection whose request is not read completely, so that Close leaves time for the response.
func Unread(of net.Conn) {
	if c := find(of); c != nil {
		c.change(func(_ *Listener, c *conn) { c.unread = true })
	}
}

// find returns the counted connection, which may be inside of a TLS connection.
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
