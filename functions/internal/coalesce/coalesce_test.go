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
		t.Errorf("%d requests for %d concurrent reads", n, askers*rounds)
	}
	if len(r.current)+len(r.next) != 0 {
		t.Error("an entry is left")
	}
}

func TestCallsOfOneThatIsEnded(t *testing.T) {
	t.Parallel()
	var r Calls[string]
	begun, end := make(chan struct{}), make(chan struct{})
	ended, cancel := context.WithCancel(t.Context())
	var group sync.WaitGroup
	// The first read keeps the key busy, so that the others wait for the second read, whose context
	// ends before it starts.
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
			t.Error("the cancellation of another delivery must not be the answer")
		}
	})
	if got := r.Do(t.Context(), "y", func(context.Context) string { return "y" }); got != "y" {
		t.Errorf("another key: got %s", got)
	}
	close(end)
	group.Wait()
}
