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

// pipe is a connection from an address, without a network.
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

// open tells whether a connection has not been closed.
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
		// serving are the connections that a handler serves, from the moment they are there.
		serving   map[int]bool
		want      []bool
		displaced int
	}{
		"Unbounded":  {reason: "0 bounds nothing", from: []string{"10.0.0.1", "10.0.0.1"}, want: []bool{true, true}},
		"Fits":       {reason: "there is room for all", limits: Limits{All: 2, PerAddress: 2}, from: []string{"10.0.0.1", "10.0.0.1"}, want: []bool{true, true}},
		"All":        {reason: "the one that waits longest gives way", limits: Limits{All: 2}, from: []string{"10.0.0.1", "10.0.0.2", "10.0.0.3"}, want: []bool{false, true, true}, displaced: 1},
		"Address":    {reason: "an address gives way to itself", limits: Limits{All: 9, PerAddress: 1}, from: []string{"10.0.0.1", "10.0.0.2", "10.0.0.2"}, want: []bool{true, false, true}, displaced: 1},
		"AddressAll": {reason: "an address at its bound takes nobody else's place", limits: Limits{All: 2, PerAddress: 1}, from: []string{"10.0.0.1", "10.0.0.2", "10.0.0.2"}, want: []bool{true, false, true}, displaced: 1},
		"Served":     {reason: "one that is served stays", limits: Limits{All: 2}, from: []string{"10.0.0.1", "10.0.0.2", "10.0.0.3"}, serving: map[int]bool{0: true}, want: []bool{true, false, true}, displaced: 1},
		"AllServed":  {reason: "there is no room where all are served", limits: Limits{All: 1}, from: []string{"10.0.0.1", "10.0.0.2"}, serving: map[int]bool{0: true}, want: []bool{true}, displaced: 1},
		"Site":       {reason: "an IPv6 customer has a /64", limits: Limits{All: 9, PerAddress: 1}, from: []string{"2001:db8::1", "2001:db8::2", "2001:db8:0:1::1"}, want: []bool{false, true, true}, displaced: 1},
		"Mapped":     {reason: "an IPv4 address is the same within IPv6", limits: Limits{All: 9, PerAddress: 1}, from: []string{"10.0.0.1", "::ffff:10.0.0.1", "::ffff:10.0.0.2"}, want: []bool{false, true, true}, displaced: 1},
		"Exempt":     {reason: "many come through a proxy", limits: Limits{All: 9, PerAddress: 1, Exempt: exempt}, from: []string{"10.0.0.9", "10.0.0.9"}, want: []bool{true, true}},
		"ExemptAll":  {reason: "a proxy counts in all", limits: Limits{All: 1, PerAddress: 1, Exempt: exempt}, from: []string{"10.0.0.9", "10.0.0.9"}, want: []bool{false, true}, displaced: 1},
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
				t.Errorf("after the end of all: %d held, %d sources, %d waiting", l.Held(), len(l.sources), l.waiting.Len())
			}
		})
	}
}

// TestMarks has connections change what they count as, also below TLS.
func TestMarks(t *testing.T) {
	t.Parallel()
	l := New(&script{from: []string{"10.0.0.1", "10.0.0.1", "10.0.0.1", "10.0.0.1"}}, Limits{All: 2, PerAddress: 2}, func() {})
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
		t.Errorf("%d are held, of which one is released", l.Held())
	}
	if _, accepted := Release(stream).(pipe); !accepted {
		t.Error("a released connection is not the one that was accepted")
	}
	Serving(stream)()
	second := accept()
	// The first one has just been served, so that the second waits longest.
	Serving(first)()
	third := accept()
	for name, c := range map[string]net.Conn{"released": stream, "served since": first, "new": third} {
		if !open(c) {
			t.Errorf("the one that is %s is closed", name)
		}
	}
	if open(second) {
		t.Error("the one that waits longest stays")
	}
	if err := second.SetDeadline(time.Now()); err != nil {
		t.Errorf("a deadline on one that was displaced: %v", err)
	}
}
