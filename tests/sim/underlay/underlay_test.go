package underlay_test

import (
	"io"
	"net"
	"net/netip"
	"testing"
	"time"

	"golang.org/x/net/proxy"

	"github.com/vitistack/stack/tests/sim/underlay"
)

// TestProxy connects to servers by addresses that this machine does not have.
func TestProxy(t *testing.T) {
	t.Parallel()
	gateway, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	go underlay.Serve(t.Context(), gateway)
	dialer, err := proxy.SOCKS5("tcp", gateway.Addr().String(), nil, nil)
	if err != nil {
		t.Fatal(err)
	}
	for name, tc := range map[string]struct {
		reason, address string
		assigned        bool
	}{
		"IPv4":    {reason: "a machine in a private network", address: "192.168.10.20", assigned: true},
		"IPv6":    {reason: "a machine in an IPv6 network", address: "2001:db8::20", assigned: true},
		"Nowhere": {reason: "no machine ever had the address", address: "192.168.10.99"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			port := "1"
			if tc.assigned {
				port = answer(t, netip.MustParseAddr(tc.address), tc.address)
			}
			conn, err := dialer.Dial("tcp", net.JoinHostPort(tc.address, port))
			if !tc.assigned {
				if err == nil {
					t.Errorf("%s: connected", tc.reason)
				}
				return
			}
			if err != nil {
				t.Fatalf("%s: %v", tc.reason, err)
			}
			defer func() { _ = conn.Close() }()
			_ = conn.SetDeadline(time.Now().Add(10 * time.Second))
			if got, err := io.ReadAll(conn); err != nil || string(got) != tc.address {
				t.Errorf("%s: got %q, %v", tc.reason, got, err)
			}
		})
	}
}

// answer serves a text at an address, and returns the port.
func answer(t *testing.T, address netip.Addr, text string) string {
	t.Helper()
	local, err := underlay.Assign(address)
	if err != nil {
		t.Fatal(err)
	}
	if again, _ := underlay.Assign(address); again != local || !local.IsLoopback() {
		t.Errorf("%s is at %s, then at %s", address, local, again)
	}
	l, err := net.Listen("tcp", netip.AddrPortFrom(local, 0).String())
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = l.Close() })
	go func() {
		for {
			conn, err := l.Accept()
			if err != nil {
				return
			}
			_, _ = io.WriteString(conn, text)
			_ = conn.Close()
		}
	}()
	_, port, _ := net.SplitHostPort(l.Addr().String())
	return port
}
