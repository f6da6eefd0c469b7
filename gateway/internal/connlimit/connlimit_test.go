package connlimit

import (
	"crypto/tls"
	"errors"
	"net"
	"net/netip"
	"os"
	"testing"
	"time"
)

// pipe returns a connection from an address, without a network.
type pipe struct {
	net.Conn
	from net.Addr
}

func (p pipe) RemoteAddr() net.Addr { return p.from }

// script is a listener that accepts connections from these addresses.
type script struct {
	net.Listener
	from []string
}

func (s *script) Accept() (net.Conn, error) {
	if len(s.from) == 0 {
		return nil, net.ErrClosed
	}
	near, far := net.Pipe()
	_ = far
	address := net.TCPAddrFromAddrPort(netip.AddrPortFrom(netip.MustParseAddr(s.from[0]), 1))
	s.from = s.from[1:]
	return pipe{Conn: near, from: address}, nil
}

// open reports whether a connection is open.
func open(c net.Conn) bool {
	_ = c.SetReadDeadline(time.Now().Add(-time.Second))
	_, err := c.Read(make([]byte, 1))
	return errors.Is(err, os.ErrDeadlineExceeded)
}

func TestBounds(t *testing.T) {
	t.Parallel()
	exempt := func(a netip.Addr) bool { return a == netip.MustParseAddr("10.0.0.9") }
	cases := map[string]struct {
		reason string
		limits Limits
		from   []string
		// serving returns the connections that a handler serves, once they exist.
		serving   map[int]bool
		want      []bool
		displaced int
	}{
		"Unbounded":  {reason: "0 bounds nothing", from: []string{"10.0.0.1", "10.0.0.1"}, want: []bool{true, true}},
		"Fits":       {reason: "every connection has a place", limits: Limits{Total: 2, PerAddress: 2}, from: []string{"10.0.0.1", "10.0.0.1"}, want: []bool{true, true}},
		"All":        {reason: "the connection that waits longest is displaced", limits: Limits{Total: 2}, from: []string{"10.0.0.1", "10.0.0.2", "10.0.0.3"}, want: []bool{false, true, true}, displaced: 1},
		"Address":    {reason: "an address displaces its own connection", limits: Limits{Total: 9, PerAddress: 1}, from: []string{"10.0.0.1", "10.0.0.2", "10.0.0.2"}, want: []bool{true, false, true}, displaced: 1},
		"AddressAll": {reason: "an address at its limit displaces no other address", limits: Limits{Total: 2, PerAddress: 1}, from: []string{"10.0.0.1", "10.0.0.2", "10.0.0.2"}, want: []bool{true, false, true}, displaced: 1},
		"Served":     {reason: "a connection with a running request stays", limits: Limits{Total: 2}, from: []string{"10.0.0.1", "10.0.0.2", "10.0.0.3"}, serving: map[int]bool{0: true}, want: []bool{true, false, true}, displaced: 1},
		"AllServed":  {reason: "a new connection is closed if all others have running requests", limits: Limits{Total: 1}, from: []string{"10.0.0.1", "10.0.0.2"}, serving: map[int]bool{0: true}, want: []bool{true}, displaced: 1},
		"Site":       {reason: "a customer has an IPv6 /64", limits: Limits{Total: 9, PerAddress: 1}, from: []string{"2001:db8::1", "2001:db8::2", "2001:db8:0:1::1"}, want: []bool{false, true, true}, displaced: 1},
		"Mapped":     {reason: "an IPv4-mapped address is the same address", limits: Limits{Total: 9, PerAddress: 1}, from: []string{"10.0.0.1", "::ffff:10.0.0.1", "::ffff:10.0.0.2"}, want: []bool{false, true, true}, displaced: 1},
		"Exempt":     {reason: "a proxy forwards many clients", limits: Limits{Total: 9, PerAddress: 1, Exempt: exempt}, from: []string{"10.0.0.9", "10.0.0.9"}, want: []bool{true, true}},
		"ExemptAll":  {reason: "the total limit includes proxies", limits: Limits{Total: 1, PerAddress: 1, Exempt: exempt}, from: []string{"10.0.0.9", "10.0.0.9"}, want: []bool{false, true}, displaced: 1},
	}
	for name, tc := range cases {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			displaced := 0
			l := New(&script{from: tc.from}, tc.limits, func() { displaced++ })
			var conns []net.Conn
			for {
				c, err := l.Accept()
				if err != nil {
					break
				}
				if tc.serving[len(conns)] {
					defer Serving(c)()
				}
				conns = append(conns, c)
			}
			var got []bool
			for _, c := range conns {
				got = append(got, open(c))
			}
			if len(got) != len(tc.want) || displaced != tc.displaced {
				t.Fatalf("%s: open %v, %d displaced; want %v and %d", tc.reason, got, displaced, tc.want, tc.displaced)
			}
			for i := range got {
				if got[i] != tc.want[i] {
					t.Errorf("%s: open %v, want %v", tc.reason, got, tc.want)
				}
			}
			for _, c := range conns {
				_ = c.Close()
				_ = c.Close()
			}
			if l.Held() != 0 || len(l.sources) != 0 || l.waiting.Len() != 0 {
				t.Errorf("after all have ended: %d held, %d sources, %d waiting", l.Held(), len(l.sources), l.waiting.Len())
			}
		})
	}
}

// TestMarks has connections change their state, also below TLS.
func TestMarks(t *testing.T) {
	t.Parallel()
	l := New(&script{from: []string{"10.0.0.1", "10.0.0.1", "10.0.0.1", "10.0.0.1"}}, Limits{Total: 2, PerAddress: 2}, func() {})
	accept := func() net.Conn {
		c, err := l.Accept()
		if err != nil {
			t.Fatal(err)
		}
		return c
	}
	stream, first := accept(), accept()
	Release(tls.Server(stream, &tls.Config{MinVersion: tls.VersionTLS12}))
	if l.Held() != 1 {
		t.Errorf("%d are held, including the released one", l.Held())
	}
	if _, accepted := Release(stream).(pipe); !accepted {
		t.Error("a released connection is not the one that was accepted")
	}
	Serving(stream)()
	second := accept()
	// The first connection was just served, so the second waits longest.
	Serving(first)()
	third := accept()
	for name, c := range map[string]net.Conn{"released": stream, "served since": first, "new": third} {
		if !open(c) {
			t.Errorf("the connection that is %s is closed", name)
		}
	}
	if open(second) {
		t.Error("the connection that waits longest stays")
	}
	if err := second.SetDeadline(time.Now()); err != nil {
		t.Errorf("a deadline of a displaced connection: %v", err)
	}
}
