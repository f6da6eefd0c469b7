package coalesce

import (
	"context"
	"runtime"
	"sync"
	"sync/atomic"
	"testing"
)

func TestCallsComeAfterTheQuestion(t *testing.T) {
	t.Parallel()
	var r Calls[int64]
	var version, requests atomic.Int64
	get := func(context.Context) int64 {
		requests.Add(1)
		is := version.Load()
		runtime.Gosched()
		return is
	}
	const askers, rounds = 16, 500
	var group sync.WaitGroup
	for range askers {
		group.Go(func() {
			for range rounds {
				wrote := version.Add(1)
				if got := r.Do(t.Context(), "x", get); got < wrote {
					t.Errorf("read version %d after %d was written", got, wrote)
				}
			}
		})
	}
	group.Wait()
	if n := requests.Load(); n >= askers*rounds {
		t.Errorf("%d requests for %d reads at the same time", n, askers*rounds)
	}
	if len(r.current)+len(r.next) != 0 {
		t.Error("something is left behind")
	}
}

func TestCallsOfOneThatIsEnded(t *testing.T) {
	t.Parallel()
	var r Calls[string]
	begun, end := make(chan struct{}), make(chan struct{})
	ended, cancel := context.WithCancel(t.Context())
	var group sync.WaitGroup
	// The first keeps the thing busy, so that the others wait for the second, which is
	// ended before it can read.
	group.Go(func() {
		r.Do(t.Context(), "x", func(context.Context) string { close(begun); <-end; return "first" })
	})
	<-begun
	group.Go(func() {
		r.Do(ended, "x", func(context.Context) string { cancel(); return "ended" })
	})
	waits := func() bool { r.mu.Lock(); defer r.mu.Unlock(); return r.next["x"] != nil }
	for !waits() {
		runtime.Gosched()
	}
	group.Go(func() {
		if got := r.Do(t.Context(), "x", func(context.Context) string { return "own" }); got == "ended" {
			t.Error("the end of another delivery is the answer")
		}
	})
	if got := r.Do(t.Context(), "y", func(context.Context) string { return "y" }); got != "y" {
		t.Errorf("another thing: got %s", got)
	}
	close(end)
	group.Wait()
}
