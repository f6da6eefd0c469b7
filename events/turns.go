package events

import (
	"context"
	"sync"

	"github.com/cloudevents/sdk-go/v2/event"
)

// turns has deliveries for one object handled one after the other, and of those
// that say the same and wait at the same time just one: it reads the object after
// all of them have come, so it sees what any of them was sent for. It is no lock:
// it saves work and conflicts within a process, while others may do the same at the
// same time, and who has waited for patience goes ahead.
type turns struct {
	mu      sync.Mutex
	objects map[string]*turn
}

// turn is where the deliveries for one object queue.
type turn struct {
	busy  chan struct{}
	users int
	// waiting are the deliveries that have not begun, by what they say.
	waiting map[string]*waiting
}

type waiting struct {
	done chan struct{}
	err  error
}

// saying is the object that an event is about, and all that the event says of it. There
// is none for events that say more than about an object. Of those that carry theirs only
// a duplicate says the same: another may carry a state for which there is more to do.
func saying(in event.Event) (object, text string) {
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

// InTurns has a handler called as a function's process calls it: for one object after
// the other, and once for events that say the same of an object and wait at the same
// time.
func InTurns(handle Handler) Handler {
	t := &turns{objects: map[string]*turn{}}
	return func(ctx context.Context, in event.Event) (*event.Event, error) { return t.handle(ctx, in, handle) }
}

// handle has a handler called when it is the turn of the event's object, for this event
// or for one that says the same and whose call begins later. The reply goes to the event
// that was handled.
func (t *turns) handle(ctx context.Context, in event.Event, handle Handler) (reply *event.Event, err error) {
	object, text := saying(in)
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

// take calls handle when it is the turn of the object, or waits for another call
// that began after this one, and returns what that came to. merged tells which.
func (t *turns) take(ctx context.Context, object, text string, handle func() error) (merged bool, err error) {
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

// await waits until nobody else handles the object, but for no longer than
// patience, and returns what lets the next one begin.
func (t *turn) await(ctx context.Context) (end func()) {
	ctx, cancel := context.WithTimeout(ctx, patience)
	defer cancel()
	select {
	case t.busy <- struct{}{}:
		return func() { <-t.busy }
	case <-ctx.Done():
		return func() {}
	}
}

func (t *turns) enter(object string) *turn {
	t.mu.Lock()
	defer t.mu.Unlock()
	own := t.objects[object]
	if own == nil {
		own = &turn{busy: make(chan struct{}, 1), waiting: map[string]*waiting{}}
		t.objects[object] = own
	}
	own.users++
	return own
}

func (t *turns) leave(object string) {
	t.mu.Lock()
	defer t.mu.Unlock()
	own := t.objects[object]
	if own.users--; own.users == 0 {
		delete(t.objects, object)
	}
}
