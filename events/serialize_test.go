package events

import (
	"context"
	"errors"
	"runtime"
	"sync"
	"testing"

	"github.com/cloudevents/sdk-go/v2/event"
)

// usersOf returns the number of deliveries of an object.
func (t *serializer) usersOf(object string) int {
	t.mu.Lock()
	defer t.mu.Unlock()
	if own := t.objects[object]; own != nil {
		return own.users
	}
	return 0
}

// busy starts a delivery of an object that lasts until end is called, and then waits for all
// deliveries.
func busy(t *testing.T, object string) (q *serializer, group *sync.WaitGroup, end func()) {
	t.Helper()
	q, group = &serializer{objects: map[string]*objectQueue{}}, &sync.WaitGroup{}
	begun, stop := make(chan struct{}), make(chan struct{})
	group.Go(func() {
		_, _ = q.take(t.Context(), object, "update", func() error { close(begun); <-stop; return nil })
	})
	<-begun
	return q, group, func() { close(stop); group.Wait() }
}

// until waits for a number of deliveries of an object.
func until(q *serializer, object string, n int) {
	for q.usersOf(object) != n {
		runtime.Gosched()
	}
}

func TestTurnsMergeWhatWaits(t *testing.T) {
	t.Parallel()
	q, group, end := busy(t, "a")
	failure := errors.New("not yet")
	var mu sync.Mutex
	calls, merged := 0, 0
	const later = 5
	for range later {
		group.Go(func() {
			left, err := q.take(t.Context(), "a", "update", func() error { mu.Lock(); defer mu.Unlock(); calls++; return failure })
			if !errors.Is(err, failure) {
				t.Errorf("a merged delivery gets the outcome of the call, got %v", err)
			}
			mu.Lock()
			defer mu.Unlock()
			if left {
				merged++
			}
		})
	}
	until(q, "a", 1+later)
	end()
	if calls != 1 || merged != later-1 {
		t.Errorf("%d calls and %d merged for %d deliveries during a call, want 1 and %d", calls, merged, later, later-1)
	}
	if len(q.objects) != 0 {
		t.Errorf("left behind: %v", q.objects)
	}
}

func TestTurnsKeepApart(t *testing.T) {
	t.Parallel()
	q, group, end := busy(t, "a")
	if merged, err := q.take(t.Context(), "b", "update", func() error { return nil }); merged || err != nil {
		t.Errorf("a delivery of another object must not wait: got %t, %v", merged, err)
	}
	var mu sync.Mutex
	var calls []string
	for _, text := range []string{"update", "delete"} {
		group.Go(func() {
			_, _ = q.take(t.Context(), "a", text, func() error { mu.Lock(); defer mu.Unlock(); calls = append(calls, text); return nil })
		})
	}
	until(q, "a", 3)
	end()
	if len(calls) != 2 {
		t.Errorf("events with different content must both be handled: got %v", calls)
	}
}

func TestTurnsEndWithTheDelivery(t *testing.T) {
	t.Parallel()
	q, _, end := busy(t, "a")
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	called := false
	if _, err := q.take(ctx, "a", "update", func() error { called = true; return ctx.Err() }); !called || err == nil {
		t.Errorf("a delivery must not wait beyond its deadline: called %t, error %v", called, err)
	}
	end()
}

func TestSaying(t *testing.T) {
	t.Parallel()
	about := func(kind, eventType string) event.Event {
		e := event.New()
		e.SetType(eventType)
		Ref{Kind: kind, Namespace: "n", Name: "x"}.Set(&e, "")
		return e
	}
	carrying := func(id string) event.Event {
		e := about("NetworkConfiguration", TypeUpdate)
		e.SetID(id)
		return e
	}
	if _, one := contentOf(carrying("1")); one != "1" {
		t.Errorf("a duplicate has the same key: got %q", one)
	}
	if _, other := contentOf(carrying("2")); other != "2" {
		t.Errorf("another state may require work: got %q", other)
	}
	object, text := contentOf(about("Machine", TypeRefUpdate))
	for name, tc := range map[string]struct {
		reason     string
		in         event.Event
		same, wait bool
	}{
		"Same":     {reason: "both events report a change of one object", in: about("Machine", TypeRefUpdate), same: true, wait: true},
		"Type":     {reason: "a resync may require more work", in: about("Machine", TypeResync), wait: true},
		"Kind":     {reason: "a virtual machine and its Machine have the same name", in: about("VirtualMachine", TypeRefUpdate), wait: true},
		"Answer":   {reason: "the event has data", in: about("NetworkNamespace", TypeNetworkProvisioned)},
		"Nameless": {reason: "the handler has to reject it", in: about("", TypeRefUpdate)},
	} {
		o, s := contentOf(tc.in)
		if (o == object) != tc.wait || (o == object && s == text) != tc.same {
			t.Errorf("%s: %s: got %q, %q", name, tc.reason, o, s)
		}
	}
}
