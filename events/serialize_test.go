package events

import (
	"context"
	"errors"
	"runtime"
	"sync"
	"testing"

	"github.com/cloudevents/sdk-go/v2/event"
)

// usersOf is how many deliveries are at an object.
func (t *serializer) usersOf(object string) int {
	t.mu.Lock()
	defer t.mu.Unlock()
	if own := t.objects[object]; own != nil {
		return own.users
	}
	return 0
}

// busy has an object handled until end is called, after which all are waited for.
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

// until waits for a number of deliveries at an object.
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
				t.Errorf("who is merged gets the outcome of the call, got %v", err)
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
		t.Errorf("%d calls and %d merged for %d that came during a call, want 1 and %d", calls, merged, later, later-1)
	}
	if len(q.objects) != 0 {
		t.Errorf("left behind: %v", q.objects)
	}
}

func TestTurnsKeepApart(t *testing.T) {
	t.Parallel()
	q, group, end := busy(t, "a")
	if merged, err := q.take(t.Context(), "b", "update", func() error { return nil }); merged || err != nil {
		t.Errorf("another object does not wait: got %t, %v", merged, err)
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
		t.Errorf("events that say different things are handled both: got %v", calls)
	}
}

func TestTurnsEndWithTheDelivery(t *testing.T) {
	t.Parallel()
	q, _, end := busy(t, "a")
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	called := false
	if _, err := q.take(ctx, "a", "update", func() error { called = true; return ctx.Err() }); !called || err == nil {
		t.Errorf("nobody waits for longer than the delivery lasts: called %t, error %v", called, err)
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
		t.Errorf("a duplicate says the same: got %q", one)
	}
	if _, other := contentOf(carrying("2")); other != "2" {
		t.Errorf("another may carry a state for which there is something to do: got %q", other)
	}
	object, text := contentOf(about("Machine", TypeRefUpdate))
	for name, tc := range map[string]struct {
		reason     string
		in         event.Event
		same, wait bool
	}{
		"Same":     {reason: "both say that it has changed", in: about("Machine", TypeRefUpdate), same: true, wait: true},
		"Type":     {reason: "a function may look closer at a resync", in: about("Machine", TypeResync), wait: true},
		"Kind":     {reason: "a virtual machine and its Machine have one name", in: about("VirtualMachine", TypeRefUpdate), wait: true},
		"Answer":   {reason: "it carries data of its own", in: about("NetworkNamespace", TypeNetworkProvisioned)},
		"Nameless": {reason: "the handler has to refuse it", in: about("", TypeRefUpdate)},
	} {
		o, s := contentOf(tc.in)
		if (o == object) != tc.wait || (o == object && s == text) != tc.same {
			t.Errorf("%s: %s: got %q, %q", name, tc.reason, o, s)
		}
	}
}
