package nodeprobe

import (
	"context"
	"crypto/tls"
	"maps"
	"net"
	"net/http/httptest"
	"slices"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/vitistack/stack/gateway/internal/inventory"
)

var start = time.Date(2026, 1, 2, 3, 4, 5, 0, time.UTC)

func TestObserve(t *testing.T) {
	t.Parallel()
	silent := func(failures int, pause, next time.Duration) history {
		return history{answered: true, failures: failures, pause: pause, nextAt: start.Add(next)}
	}
	for name, tc := range map[string]struct {
		reason         string
		before         history
		answers, ready bool
		want           bool
	}{
		"First":     {reason: "the node answers as before", answers: true},
		"Unknown":   {reason: "the gateway may have no route to the node", ready: true},
		"Once":      {reason: "one packet may be lost", before: history{answered: true}, ready: true},
		"Twice":     {reason: "the node has stopped", before: history{answered: true, failures: 1}, ready: true, want: true},
		"Paused":    {reason: "the function was requested a moment ago", before: silent(2, firstPause, time.Second), ready: true},
		"StillSaid": {reason: "the cluster had not reported the node as NotReady yet", before: silent(2, firstPause, 0), ready: true, want: true},
		"Reported":  {reason: "the cluster itself reports it, and resync reconciles it", before: silent(2, firstPause, 0)},
		"Back":      {reason: "the node has started again", before: silent(2, firstPause, time.Minute), answers: true, want: true},
		"Hiccup":    {reason: "no failure was reported", before: history{answered: true, failures: 1}, answers: true},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			if _, got := tc.before.observe(start, tc.answers, tc.ready); got != tc.want {
				t.Errorf("%s: got %t", tc.reason, got)
			}
		})
	}
}

// TestSilentNodeCostsLess probes a node that remains silent while its cluster remains Ready.
func TestSilentNodeCostsLess(t *testing.T) {
	t.Parallel()
	h := history{answered: true}
	looks := 0
	for at := range 360 { // an hour of rounds
		var reconcile bool
		if h, reconcile = h.observe(start.Add(time.Duration(at)*10*time.Second), false, true); reconcile {
			looks++
		}
	}
	if looks < 5 || looks > 12 {
		t.Errorf("%d reconciles in an hour", looks)
	}
}

func TestRound(t *testing.T) {
	t.Parallel()
	up, down := listen(t), listen(t)
	p := New((&net.Dialer{}).DialContext)
	clusters := []Cluster{
		{UID: "a", Ready: true, Addresses: []string{up.Addr().String()}},
		{UID: "b", Ready: true, Addresses: []string{up.Addr().String(), down.Addr().String()}},
	}
	round := func(reason string, want ...string) {
		t.Helper()
		if diff := cmp.Diff(want, slices.Sorted(maps.Keys(p.Round(t.Context(), start, clusters)))); diff != "" {
			t.Errorf("%s (-want +got):\n%s", reason, diff)
		}
	}
	round("all answer")
	_ = down.Close()
	round("a node has failed once")
	round("a node is silent", "b")
	round("the silence was reported")
	clusters = clusters[:1]
	round("the cluster is deleted")
	if len(p.targets) != 1 {
		t.Errorf("%d addresses are stored", len(p.targets))
	}
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	if due := p.Round(ctx, start, clusters); len(due) > 0 || p.targets[target{"a", up.Addr().String()}].failures > 0 {
		t.Errorf("a stopping gateway reports its nodes as silent: %v", due)
	}
}

// TestAnswers dials servers that accept connections. Only some of them answer.
func TestAnswers(t *testing.T) {
	t.Parallel()
	for name, tc := range map[string]struct {
		reason string
		serve  func(net.Conn)
		want   bool
	}{
		"Answers": {"the process behind the address works", handshake(tls.NoClientCert), true},
		"Mutual":  {"Talos wants a certificate, which the gateway does not have", handshake(tls.RequireAnyClientCert), true},
		"NotTLS":  {"another program answers", func(c net.Conn) { _, _ = c.Write([]byte("HTTP/1.1 400 Bad Request\r\n\r\n")) }, true},
		"Alert":   {"the server refuses the handshake", func(c net.Conn) { _, _ = c.Write([]byte{21, 3, 3, 0, 2, 2, 40}) }, true},
		"Hangs":   {"the kernel accepts connections for a process that is stopped", func(net.Conn) { <-t.Context().Done() }, false},
		"HangsUp": {"a load balancer without a server behind it closes connections", func(net.Conn) {}, false},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			l := listenWith(t, tc.serve)
			ctx, cancel := context.WithTimeout(t.Context(), time.Second)
			defer cancel()
			if got := New((&net.Dialer{}).DialContext).answers(ctx, l.Addr().String()); got != tc.want {
				t.Errorf("%s: got %t", tc.reason, got)
			}
		})
	}
}

// TestReach counts what the rounds have shown of a cluster.
func TestReach(t *testing.T) {
	t.Parallel()
	up, down, stopped, never := listen(t), listen(t), listen(t), listen(t)
	_ = never.Close()
	p := New((&net.Dialer{}).DialContext)
	of := func(l net.Listener) string { return l.Addr().String() }
	clusters := []Cluster{
		{UID: "a", Addresses: []string{of(up), of(down), of(stopped), of(never)}, Stopped: map[string]bool{of(stopped): true}},
		{UID: "b", Addresses: []string{of(never)}},
	}
	last := start
	round := func(reason string, seconds int, want map[string]inventory.NodeReachability) {
		t.Helper()
		last = start.Add(time.Duration(seconds) * time.Second)
		p.Round(t.Context(), last, clusters)
		if diff := cmp.Diff(want, p.Reachability(clusters)); diff != "" {
			t.Errorf("%s (-want +got):\n%s", reason, diff)
		}
	}
	round("an address that has never answered shows nothing", 0, map[string]inventory.NodeReachability{"a": {Answering: 3, LastSeen: start}})
	_ = down.Close()
	_ = stopped.Close()
	round("one lost packet is no outage", 10, map[string]inventory.NodeReachability{"a": {Answering: 3, LastSeen: last.Add(10 * time.Second)}})
	round("a machine that its owner has stopped shows nothing", 20, map[string]inventory.NodeReachability{"a": {Answering: 1, Silent: 1, LastSeen: start.Add(20 * time.Second)}})
	_ = up.Close()
	round("it has answered in the round before", 30, map[string]inventory.NodeReachability{"a": {Answering: 1, Silent: 1, LastSeen: start.Add(20 * time.Second)}})
	round("no address answers", 40, map[string]inventory.NodeReachability{"a": {Silent: 2, LastSeen: start.Add(20 * time.Second)}})
}

// handshake serves one TLS handshake.
func handshake(auth tls.ClientAuthType) func(net.Conn) {
	server := httptest.NewUnstartedServer(nil)
	server.StartTLS()
	config := server.TLS.Clone()
	server.Close()
	config.ClientAuth = auth
	return func(c net.Conn) { _ = tls.Server(c, config).Handshake() }
}

// listen answers handshakes until it is closed or t ends.
func listen(t *testing.T) net.Listener {
	t.Helper()
	return listenWith(t, handshake(tls.NoClientCert))
}

// listenWith serves each connection, and then closes it, until it is closed or t ends.
func listenWith(t *testing.T, serve func(net.Conn)) net.Listener {
	t.Helper()
	l, err := (&net.ListenConfig{}).Listen(t.Context(), "tcp", "127.0.0.1:0")
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
			go func() {
				serve(conn)
				_ = conn.Close()
			}()
		}
	}()
	return l
}
