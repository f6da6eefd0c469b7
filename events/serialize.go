package events

import (
	"context"
	"sync"

	"github.com/cloudevents/sdk-go/v2/event"
)

// serializer handles the deliveries for one object one after the other. Of waiting deliveries
// that say the same it handles one, which reads the object after all of them have arrived.
// It is not a lock: it saves work and conflicts within a process, while other processes may
// handle the same object, and a delivery that has waited for patience proceeds.
type serializer struct {
	mu      sync.Mutex
	objects map[string]*objectQueue
}

// objectQueue is the queue of deliveries for one object.
type objectQueue struct {
	busy  chan struct{}
	users int
	// waiting has the deliveries that have not started, by their content.
	waiting map[string]*waiting
}

type waiting struct {
	done chan struct{}
	err  error
}

// contentOf returns the object of an event, and all that the event says about it. Both are
// empty for an event that is about more than an object. For an event that carries its
// object only a duplicate says the same, because another event may carry a state that
// needs more work.
func contentOf(in event.Event) (object, text string) {
	ref, err := RefOf(in)
	switch {
	case err != nil || !IsChange(in.Type()) && in.Type() != TypeResync:
		return "", ""
	case carries(in.Type()):
		text = in.ID()
	default:
		text = in.Type() + " " + ref.Kind
	}
	return ref.Namespace + "/" + ref.Name, text
}

// Serialize returns a Handler that calls handle as Serve does: one delivery at a time for
// each object, and once for waiting events that say the same about an object.
func Serialize(handle Handler) Handler {
	t := &serializer{objects: map[string]*objectQueue{}}
	return func(ctx context.Context, in event.Event) (*event.Event, error) { return t.handle(ctx, in, handle) }
}

// handle calls a handler when it is the event's turn, for this event or for a later one that
// says the same. The reply goes to the event that was handled.
func (t *serializer) handle(ctx context.Context, in event.Event, handle Handler) (reply *event.Event, err error) {
	object, text := contentOf(in)
	if object == "" {
		return handle(ctx, in)
	}
	merged, err := t.take(ctx, object, text, func() (err error) {
		reply, err = handle(ctx, in)
		return err
	})
	if merged {
		Report(ctx, "", "Left to a delivery that says the same")
	}
	return reply, err
}

// take calls handle when it is the delivery's turn, or waits for another call that started
// after this one and returns its error. merged reports the latter.
func (t *serializer) take(ctx context.Context, object, text string, handle func() error) (merged bool, err error) {
	own := t.enter(object)
	defer t.leave(object)
	t.mu.Lock()
	if first := own.waiting[text]; first != nil {
		t.mu.Unlock()
		select {
		case <-first.done:
			return true, first.err
		case <-ctx.Done():
			return true, ctx.Err()
		}
	}
	w := &waiting{done: make(chan struct{})}
	defer close(w.done)
	own.waiting[text] = w
	t.mu.Unlock()
	defer own.await(ctx)()
	t.mu.Lock()
	delete(own.waiting, text)
	t.mu.Unlock()
	w.err = handle()
	return false, w.err
}

// await waits until no other delivery handles the object, but no longer than patience. It
// returns a function that starts the next delivery.
func (t *objectQueue) await(ctx context.Context) (end func()) {
	ctx, cancel := context.WithTimeout(ctx, patience)
	defer cancel()
	select {
	case t.busy <- struct{}{}:
		return func() { <-t.busy }
	case <-ctx.Done():
		return func() {}
	}
}

func (t *serializer) enter(object string) *objectQueue {
	t.mu.Lock()
	defer t.mu.Unlock()
	own := t.objects[object]
	if own == nil {
		own = &objectQueue{busy: make(chan struct{}, 1), waiting: map[string]*waiting{}}
		t.objects[object] = own
	}
	own.users++
	return own
}

func (t *serializer) leave(object string) {
	t.mu.Lock()
	defer t.mu.Unlock()
	own := t.objects[object]
	if own.users--; own.users == 0 {
		delete(t.objects, object)
	}
}
