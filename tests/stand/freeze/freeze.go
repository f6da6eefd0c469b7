// Package freeze has a proxy before a server that makes connections hang, as those to a host that has lost its power: nothing arrives any more, and
// no packet says so.
package freeze

import (
	"net"
	"net/url"
	"sync"
	"testing"
)

// Proxy passes connections on to a server.
type Proxy struct {
	target string

	mu   sync.Mutex
	open []net.Conn
	// frozen is closed when the connections of this time freeze.
	frozen chan struct{}
}

// New starts a proxy before the server of a URL, and returns the URL of that server through the proxy. The proxy ends with t.
func New(t testing.TB, server string) (p *Proxy, through string) {
	t.Helper()
	address, err := url.Parse(server)
	if err != nil {
		t.Fatal(err)
	}
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	p = &Proxy{target: address.Host, frozen: make(chan struct{})}
	var running sync.WaitGroup
	running.Go(func() {
		for {
			from, err := l.Accept()
			if err != nil {
				return
			}
			p.join(&running, from)
		}
	})
	t.Cleanup(func() {
		_ = l.Close()
		p.Cut()
		running.Wait()
	})
	address.Host = l.Addr().String()
	return p, address.String()
}

// Cut closes all connections, including those that hang.
func (p *Proxy) Cut() {
	p.mu.Lock()
	defer p.mu.Unlock()
	for _, c := range p.open {
		_ = c.Close()
	}
	p.open = nil
}

// Freeze makes the connections that are open hang. Later ones work.
func (p *Proxy) Freeze() {
	p.mu.Lock()
	defer p.mu.Unlock()
	close(p.frozen)
	p.frozen = make(chan struct{})
}

// join connects a client with the server.
func (p *Proxy) join(running *sync.WaitGroup, from net.Conn) {
	to, err := net.Dial("tcp", p.target)
	if err != nil {
		_ = from.Close()
		return
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	p.open = append(p.open, from, to)
	frozen := p.frozen
	for _, way := range [][2]net.Conn{{from, to}, {to, from}} {
		running.Go(func() { pass(way[0], way[1], frozen) })
	}
}

// pass copies from one connection to another until one of them ends. Once they are frozen, it drops what it reads.
func pass(into, from net.Conn, frozen <-chan struct{}) {
	buffer := make([]byte, 32<<10)
	for {
		n, err := from.Read(buffer)
		select {
		case <-frozen:
			if err != nil {
				return // the other side does not hear of it
			}
			continue
		default:
		}
		if _, failed := into.Write(buffer[:n]); err != nil || failed != nil {
			_, _ = into.Close(), from.Close()
			return
		}
	}
}
