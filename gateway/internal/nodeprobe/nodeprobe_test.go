package nodeprobe

import (
	"context"
	"maps"
	"net"
	"slices"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
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

// listen accepts connections until it is closed or t ends.
func listen(t *testing.T) net.Listener {
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
			_ = conn.Close()
		}
	}()
	return l
}
