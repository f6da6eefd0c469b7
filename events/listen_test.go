package events

import (
	"net"
	"strconv"
	"testing"
)

// TestListen opens a port of one address, which the local engine requires, or of all, which Knative requires.
func TestListen(t *testing.T) {
	t.Parallel()
	for host, want := range map[string]bool{"": true, "127.0.0.1": false} {
		listener, err := listen(t.Context(), host, "0")
		if err != nil {
			t.Fatal(err)
		}
		defer func() { _ = listener.Close() }()
		other := net.JoinHostPort("127.0.0.2", strconv.Itoa(listener.Addr().(*net.TCPAddr).Port))
		conn, err := new(net.Dialer).DialContext(t.Context(), "tcp", other)
		if err == nil {
			_ = conn.Close()
		}
		if got := err == nil; got != want {
			t.Errorf("host %q: %s answers: %v, want %v", host, other, got, want)
		}
	}
}
