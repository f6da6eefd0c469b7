package outbound

import (
	"errors"
	"io"
	"net"
	"testing"
)

// TestProxy connects through a proxy that records the requested addresses.
func TestProxy(t *testing.T) {
	t.Parallel()
	asked := make(chan string, 1)
	address := socks(t, asked)
	server, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = server.Close() })
	for name, tc := range map[string]struct {
		reason, list, proxy, direct, target string
		denied                              bool
		want                                string
	}{
		"Proxied":  {reason: "a node in a network behind the proxy", proxy: "socks5://" + address, target: "192.168.10.20:50000", want: "192.168.10.20"},
		"Direct":   {reason: "NO_PROXY has the target", proxy: "socks5://" + address, direct: "127.0.0.0/8", target: server.Addr().String()},
		"Denied":   {reason: "the list excludes the target", list: "10.0.0.0/8", proxy: "socks5://" + address, target: "192.168.10.20:50000", denied: true},
		"Metadata": {reason: "the metadata service is forbidden through a proxy too", proxy: "socks5://" + address, target: "169.254.169.254:80", denied: true},
		"Mistake":  {reason: "an invalid proxy URL allows no connection", proxy: address, target: "192.168.10.20:50000", denied: true},
	} {
		conn, err := Parse(tc.list).through(tc.proxy, tc.direct).DialContext(t.Context(), "tcp", tc.target)
		var denied *Denied
		if errors.As(err, &denied) != tc.denied || (err != nil) != tc.denied {
			t.Errorf("%s: %s: got %v", name, tc.reason, err)
		}
		if err == nil {
			_ = conn.Close()
		}
		got := ""
		select {
		case got = <-asked:
		default:
		}
		if got != tc.want {
			t.Errorf("%s: %s: the proxy was asked for %q", name, tc.reason, got)
		}
	}
}

// socks accepts each request for a connection to an IPv4 address (RFC 1928).
func socks(t *testing.T, asked chan<- string) string {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
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
			request := make([]byte, 3+10)
			_, _ = io.ReadFull(conn, request[:3])
			_, _ = conn.Write([]byte{5, 0})
			_, _ = io.ReadFull(conn, request[3:])
			asked <- net.IP(request[7:11]).String()
			_, _ = conn.Write([]byte{5, 0, 0, 1, 0, 0, 0, 0, 0, 0})
		}
	}()
	return l.Addr().String()
}
