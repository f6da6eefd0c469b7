package port

import (
	"net"
	"strconv"
	"testing"
)

func TestKeep(t *testing.T) {
	t.Parallel()
	kept, err := Keep(0)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(kept.Close)
	for range 2 {
		listener, err := net.Listen("tcp", net.JoinHostPort("127.0.0.1", strconv.Itoa(kept.Number)))
		if err != nil {
			t.Fatalf("the server that the port is kept for cannot listen on it: %v", err)
		}
		if other, err := Keep(kept.Number); err == nil {
			other.Close()
			t.Error("a port on which a server listens was kept for another one")
		}
		_ = listener.Close()
	}
}
