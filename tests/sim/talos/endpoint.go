package talos

import (
	"context"
	"errors"
	"io"
	"net"
	"net/netip"
	"sync"
	"time"

	"github.com/vitistack/stack/tests/sim/faults"
	"github.com/vitistack/stack/tests/sim/underlay"
)

// endpoint is a server on one port of one or more addresses. A nil endpoint is closed.
type endpoint struct {
	port uint16
	backend

	mu        sync.Mutex
	listeners map[netip.Addr]*listener
}

// backend is the server of an endpoint.
type backend struct {
	// serve answers connections until the listener is closed.
	serve func(net.Listener)
	// finish waits for running calls to end.
	finish func()
	// stop drops all connections.
	stop func()
}

// listen opens a port of an address.
func listen(addr netip.Addr, port uint16, wrap func(net.Conn) net.Conn, s backend) (*endpoint, error) {
	e := &endpoint{port: port, backend: s, listeners: map[netip.Addr]*listener{}}
	if err := e.add(addr, wrap); err != nil {
		return nil, err
	}
	return e, nil
}

// listenOn listens on a port of a machine's address in the underlay.
func listenOn(addr netip.Addr, port uint16) (net.Listener, error) {
	local, err := underlay.Assign(addr)
	if err != nil {
		return nil, err
	}
	return net.Listen("tcp", netip.AddrPortFrom(local, port).String())
}

// add listens on one more address.
func (e *endpoint) add(addr netip.Addr, wrap func(net.Conn) net.Conn) error {
	l, err := listenOn(addr, e.port)
	if err != nil {
		return err
	}
	at := &listener{Listener: l, wrap: wrap}
	e.mu.Lock()
	e.listeners[addr] = at
	e.mu.Unlock()
	go e.backend.serve(at)
	return nil
}

// drop closes an added address and its connections.
func (e *endpoint) drop(addr netip.Addr) {
	if e == nil {
		return
	}
	e.mu.Lock()
	defer e.mu.Unlock()
	if l := e.listeners[addr]; l != nil {
		_ = l.Close()
		l.conns.Range(func(_, c any) bool { _ = c.(net.Conn).Close(); return true })
		delete(e.listeners, addr)
	}
}

// close frees the addresses and drops the connections, as a power cut does.
func (e *endpoint) close() {
	if e != nil {
		e.silence()
		go e.backend.stop()
	}
}

// grace is how long running calls may take during an orderly shutdown.
const grace = time.Second

// retire frees the addresses at once, and drops the connections when their calls have ended or the
// grace is over.
func (e *endpoint) retire() {
	if e == nil {
		return
	}
	e.silence()
	late := time.AfterFunc(grace, e.backend.stop)
	go func() {
		e.backend.finish()
		late.Stop()
	}()
}

// silence stops listening.
func (e *endpoint) silence() {
	e.mu.Lock()
	defer e.mu.Unlock()
	for _, l := range e.listeners {
		_ = l.Close()
	}
}

// hangUp closes a client's connection without an answer.
func (e *endpoint) hangUp(client net.Addr) {
	e.mu.Lock()
	defer e.mu.Unlock()
	for _, l := range e.listeners {
		l.hangUp(client)
	}
}

// listener records the connections that it has accepted.
type listener struct {
	net.Listener
	wrap  func(net.Conn) net.Conn
	conns sync.Map // string -> net.Conn
}

func (l *listener) Accept() (net.Conn, error) {
	c, err := l.Listener.Accept()
	if err != nil {
		return nil, err
	}
	name := c.RemoteAddr().String()
	l.conns.Store(name, c)
	return l.wrap(&tracked{Conn: c, forget: func() { l.conns.Delete(name) }}), nil
}

func (l *listener) hangUp(client net.Addr) {
	if c, ok := l.conns.Load(client.String()); ok {
		if tcp, ok := c.(*net.TCPConn); ok {
			_ = tcp.SetLinger(0) // a reset instead of an orderly end
		}
		_ = c.(net.Conn).Close()
	}
}

type tracked struct {
	net.Conn
	forget func()
}

func (c *tracked) Close() error {
	c.forget()
	return c.Conn.Close()
}

// faultyHandshake is a connection whose handshake has a fault: it is late, never answers ("hang"), or drops
// the connection.
type faultyHandshake struct {
	net.Conn
	ctx   context.Context
	plan  *faults.Plan
	first sync.Once
	err   error
}

// withHandshakeFault wraps the connections of a boot, for the operation "tls".
func (b *boot) withHandshakeFault(c net.Conn) net.Conn {
	return &faultyHandshake{Conn: c, ctx: b.ctx, plan: b.node.fleet.plan}
}

func (c *faultyHandshake) Read(p []byte) (int, error) {
	c.first.Do(func() { c.err = c.applyFault() })
	if c.err != nil {
		return 0, c.err
	}
	return c.Conn.Read(p)
}

func (c *faultyHandshake) applyFault() error {
	fault := c.plan.Next("tls")
	if err := fault.Wait(c.ctx); err != nil {
		return err
	}
	switch fault.Error {
	case "":
		return nil
	case "hang":
		_, err := io.Copy(io.Discard, c.Conn) // until the client gives up
		return errors.Join(err, io.EOF)
	}
	_ = c.Conn.Close()
	return errors.New(fault.Error)
}
