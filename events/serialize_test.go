package events

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/cloudevents/sdk-go/v2/event"
)

// about returns an event about an object named x.
func about(kind, eventType, id string) event.Event {
	e := event.New()
	e.SetID(id)
	e.SetType(eventType)
	Ref{Kind: kind, Namespace: "n", Name: "x"}.Set(&e, "")
	return e
}

// calls records the calls of a handler that takes a while.
type calls struct {
	mu      sync.Mutex
	events  []event.Event
	began   []time.Time
	running int
	// atOnce is the highest number of calls at the same time.
	atOnce int
}

// handler returns a serialized handler whose calls take some time and return err.
func (c *calls) handler(takes time.Duration, err error, concurrent ...string) Handler {
	return Serialize(func(ctx context.Context, in event.Event) (*event.Event, error) {
		c.mu.Lock()
		c.events, c.began = append(c.events, in), append(c.began, time.Now())
		c.running++
		c.atOnce = max(c.atOnce, c.running)
		c.mu.Unlock()
		select {
		case <-time.After(takes):
		case <-ctx.Done():
			err = ctx.Err()
		}
		c.mu.Lock()
		defer c.mu.Unlock()
		c.running--
		return &in, err
	}, concurrent...)
}

// TestTurnsOfASlowObject delivers events about one object while its backend takes seconds for each
// call. A delivery is handled only by a call that begins after it has arrived, no two calls are made
// at once, and few are made for many deliveries.
func TestTurnsOfASlowObject(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		const deliveries, pause, slow, mostCalls = 40, 100 * time.Millisecond, 4 * time.Second, 6
		c := &calls{}
		handle := c.handler(slow, nil)
		var group sync.WaitGroup
		for i := range deliveries {
			group.Go(func() {
				time.Sleep(time.Duration(i) * pause)
				arrived := time.Now()
				ctx, cancel := context.WithTimeout(t.Context(), deliveryTimeout)
				defer cancel()
				if _, err := handle(ctx, about("Machine", []string{TypeUpdate, TypeRefUpdate, TypeResync}[i%3], fmt.Sprint(i))); err != nil {
					t.Errorf("delivery %d: %v", i, err)
				}
				c.mu.Lock()
				defer c.mu.Unlock()
				if c.began[len(c.began)-1].Before(arrived) {
					t.Errorf("delivery %d ended before a call that began after its arrival", i)
				}
			})
		}
		group.Wait()
		if c.atOnce > 1 || len(c.events) > mostCalls {
			t.Errorf("%d calls for %d deliveries, %d at once, want at most %d and 1", len(c.events), deliveries, c.atOnce, mostCalls)
		}
	})
}

// TestTurnsShareAResult has deliveries wait during a call. One of them makes a call for all, which get
// its error, and only it gets the reply.
func TestTurnsShareAResult(t *testing.T) {
	t.Parallel()
	for name, tc := range map[string]struct {
		reason string
		ids    []string
		data   bool
	}{
		"Duplicates": {reason: "duplicates carry the same state", ids: []string{"1", "1", "1"}, data: true},
		"Changes":    {reason: "each state may need work, so the live object decides", ids: []string{"1", "2", "3"}},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			synctest.Test(t, func(t *testing.T) {
				failure, c := errors.New("not yet"), &calls{}
				handle := c.handler(time.Second, failure)
				var group sync.WaitGroup
				replies := make(chan *event.Event, len(tc.ids))
				group.Go(func() { _, _ = handle(t.Context(), about("Machine", TypeRefUpdate, "0")) })
				synctest.Wait()
				for _, id := range tc.ids {
					group.Go(func() {
						in := about("Machine", TypeUpdate, id)
						if err := in.SetData("application/json", map[string]string{}); err != nil {
							t.Error(err)
						}
						reply, err := handle(t.Context(), in)
						if !errors.Is(err, failure) {
							t.Errorf("got the error %v, want that of the call", err)
						}
						if reply != nil {
							replies <- reply
						}
					})
				}
				group.Wait()
				if len(c.events) != 2 || len(replies) != 1 {
					t.Fatalf("%d calls and %d replies, want 2 and 1", len(c.events), len(replies))
				}
				if carried := ObjectFrom(c.events[1], &map[string]string{}); carried != tc.data {
					t.Errorf("the event carries an object: %t, want %t: %s", carried, tc.data, tc.reason)
				}
			})
		})
	}
}

func TestTurnsKeepApart(t *testing.T) {
	t.Parallel()
	for name, tc := range map[string]struct {
		reason string
		other  event.Event
		atOnce int
	}{
		"Type":       {"both have to be handled, one after the other", about("Machine", TypeResync, "2"), 1},
		"Kind":       {"a virtual machine has the name of its Machine", about("VirtualMachine", TypeRefUpdate, "2"), 1},
		"Concurrent": {"the handler serializes this kind itself", about("KubernetesCluster", TypeUpdate, "2"), 2},
		"Answer":     {"the event has data", about("Machine", TypeNetworkProvisioned, "2"), 2},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			synctest.Test(t, func(t *testing.T) {
				c := &calls{}
				handle := c.handler(time.Second, nil, "KubernetesCluster")
				var group sync.WaitGroup
				for _, in := range []event.Event{about("Machine", TypeRefUpdate, "1"), tc.other} {
					group.Go(func() { _, _ = handle(t.Context(), in) })
				}
				group.Wait()
				if len(c.events) != 2 || c.atOnce != tc.atOnce {
					t.Errorf("%s: %d calls, %d at once, want 2 and %d", tc.reason, len(c.events), c.atOnce, tc.atOnce)
				}
			})
		})
	}
}

// TestTurnsEndWithTheDelivery has a delivery wait longer than its time. It fails, so that the Broker
// redelivers its event, and a delivery that waits for the same call is handled nevertheless.
func TestTurnsEndWithTheDelivery(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		c := &calls{}
		handle := c.handler(4*time.Second, nil)
		var group sync.WaitGroup
		group.Go(func() { _, _ = handle(t.Context(), about("Machine", TypeRefUpdate, "1")) })
		synctest.Wait()
		group.Go(func() {
			ctx, cancel := context.WithTimeout(t.Context(), time.Second)
			defer cancel()
			if _, err := handle(ctx, about("Machine", TypeResync, "2")); !errors.Is(err, context.DeadlineExceeded) || IsPermanent(err) {
				t.Errorf("got the error %v, want one that has the event redelivered", err)
			}
		})
		synctest.Wait()
		if _, err := handle(t.Context(), about("Machine", TypeResync, "3")); err != nil {
			t.Error(err)
		}
		group.Wait()
		if ids := []string{c.events[0].ID(), c.events[len(c.events)-1].ID()}; !slices.Equal(ids, []string{"1", "3"}) || len(c.events) != 2 {
			t.Errorf("%d calls, with the events %v, want 1 and 3", len(c.events), ids)
		}
	})
}

// TestTurnsLeaveNothing checks that a queue ends with its last delivery.
func TestTurnsLeaveNothing(t *testing.T) {
	t.Parallel()
	s := &serializer{objects: map[string]*objectQueue{}}
	if _, err := s.handle(t.Context(), about("Machine", TypeRefUpdate, "1"), func(context.Context, event.Event) (*event.Event, error) { return nil, nil }); err != nil {
		t.Fatal(err)
	}
	if len(s.objects) != 0 {
		t.Errorf("left behind: %v", s.objects)
	}
}

func TestContent(t *testing.T) {
	t.Parallel()
	deleted := func(id string) string {
		_, content := contentOf(about("NetworkConfiguration", TypeDelete, id))
		return content
	}
	if first, duplicate := deleted("1"), deleted("1"); first != duplicate || first == deleted("2") {
		t.Error("two deletions are of different objects, unless one is a duplicate")
	}
	object, content := contentOf(about("Machine", TypeRefUpdate, "1"))
	for name, tc := range map[string]struct {
		reason     string
		in         event.Event
		same, wait bool
	}{
		"Same":     {reason: "both events report a change of one object", in: about("Machine", TypeRefUpdate, "1"), same: true, wait: true},
		"Type":     {reason: "a resync may require more work", in: about("Machine", TypeResync, "1"), wait: true},
		"Kind":     {reason: "a virtual machine and its Machine have the same name", in: about("VirtualMachine", TypeRefUpdate, "1"), wait: true},
		"Answer":   {reason: "the event has data", in: about("NetworkNamespace", TypeNetworkProvisioned, "1")},
		"Nameless": {reason: "the handler has to reject it", in: about("", TypeRefUpdate, "1")},
	} {
		o, s := contentOf(tc.in)
		if (o == object) != tc.wait || (o == object && s == content) != tc.same {
			t.Errorf("%s: %s: got %q, %q", name, tc.reason, o, s)
		}
	}
}

// TestTurnsEndWithAPanic has two deliveries share a call that panics. Both fail, so that the Broker redelivers both.
func TestTurnsEndWithAPanic(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		busy := true
		handle := Serialize(func(context.Context, event.Event) (*event.Event, error) {
			if busy {
				busy = false
				time.Sleep(time.Second)
				return nil, nil
			}
			panic("a nil map")
		})
		var group sync.WaitGroup
		group.Go(func() { _, _ = handle(t.Context(), about("Machine", TypeRefUpdate, "0")) })
		synctest.Wait()
		failed := make(chan bool, 2)
		for _, id := range []string{"1", "2"} {
			group.Go(func() {
				var err error
				defer func() { failed <- recover() != nil || err != nil }()
				_, err = handle(t.Context(), about("Machine", TypeUpdate, id))
			})
		}
		group.Wait()
		for range 2 {
			if !<-failed {
				t.Error("a delivery whose call has panicked counts as handled")
			}
		}
	})
}
