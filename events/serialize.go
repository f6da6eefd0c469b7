package events

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"sync"

	"github.com/cloudevents/sdk-go/v2/event"
)

// serializer handles the deliveries about one object one after the other, and makes one call of
// the handler for all waiting deliveries that require the same. A delivery ends with the result of a
// call that began after the delivery arrived, so that call has read the change. It is not a lock: it
// saves work and conflicts within a process, while other processes may handle the same object.
//
// It is for deliveries, and the runtime has one for each function: it queues also deliveries that require different things of the same
// object, and knows whether a call stands for several events. For any other call that several callers make at
// the same time, such as a read, use functions/internal/coalesce.
type serializer struct {
	mu      sync.Mutex
	objects map[string]*objectQueue
	// concurrent are the kinds whose deliveries are not serialized.
	concurrent []string
}

// objectQueue is the queue of deliveries about one object.
type objectQueue struct {
	// busy has an element while a call of the handler is made.
	busy  chan struct{}
	users int
	// waiting has the calls that have not begun, by what they require.
	waiting map[string]*call
}

// call is one call of the handler for all deliveries that wait for it.
type call struct {
	// eventID is the ID of the first event, and differ is whether there are events with other IDs.
	eventID string
	differ  bool
	// done is closed at the end of the call, after err is set.
	done chan struct{}
	// err is the error of the call. Until the call has returned, and so if it panics, it is errNotReturned.
	err error
}

var errNotReturned = errors.New("the call for this delivery has not returned")

// contentOf returns the object of an event, and what the event requires of the handler. Both are
// empty for an event that says more than which object has changed. The event of a deletion that carries
// the last state of the object requires what no other event does.
func contentOf(in event.Event) (object, content string) {
	ref, err := RefOf(in)
	if err != nil || !IsChange(in.Type()) && in.Type() != TypeResync {
		return "", ""
	}
	content = in.Type() + " " + ref.Kind
	if carries(in.Type()) && IsDelete(in.Type()) {
		content = in.ID()
	}
	return ref.Namespace + "/" + ref.Name, content
}

// Serialize returns a Handler that calls handle as Serve does: for one delivery at a time about
// an object, and once for waiting deliveries that require the same. Deliveries about concurrent kinds
// do not wait.
func Serialize(handle Handler, concurrent ...string) Handler {
	s := &serializer{objects: map[string]*objectQueue{}, concurrent: concurrent}
	return func(ctx context.Context, in event.Event) (*event.Event, error) { return s.handle(ctx, in, handle) }
}

// handle calls a handler when it is the delivery's turn, or waits for a call that another delivery
// makes for both, and returns its error. The reply goes to the delivery that has made the call. A
// delivery whose turn does not come before ctx ends returns an error, so that the Broker redelivers
// its event.
func (s *serializer) handle(ctx context.Context, in event.Event, handle Handler) (*event.Event, error) {
	object, content := contentOf(in)
	if object == "" || slices.Contains(s.concurrent, extension(in, "kind")) {
		return handle(ctx, in)
	}
	q, c := s.enter(object, content, in.ID())
	defer s.leave(object)
	select {
	case q.busy <- struct{}{}:
		defer func() { <-q.busy }()
		if s.begin(q, content, c) {
			defer close(c.done)
			reply, err := handle(ctx, c.event(in))
			c.err = err
			return reply, err
		}
	case <-c.done:
	case <-ctx.Done():
		return nil, fmt.Errorf("wait for an earlier delivery about %s to end: %w", object, ctx.Err())
	}
	Report(ctx, "", "Left to a delivery that requires the same")
	return nil, c.err
}

// enter adds a delivery to the queue of an object, and returns the call that is made for it.
func (s *serializer) enter(object, content, eventID string) (*objectQueue, *call) {
	s.mu.Lock()
	defer s.mu.Unlock()
	q := s.objects[object]
	if q == nil {
		q = &objectQueue{busy: make(chan struct{}, 1), waiting: map[string]*call{}}
		s.objects[object] = q
	}
	q.users++
	c := q.waiting[content]
	if c == nil {
		c = &call{eventID: eventID, done: make(chan struct{}), err: errNotReturned}
		q.waiting[content] = c
	}
	c.differ = c.differ || c.eventID != eventID
	return q, c
}

// begin reports whether a call has not been made. Deliveries that arrive from now on wait for the next one.
func (s *serializer) begin(q *objectQueue, content string, c *call) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	if q.waiting[content] != c {
		return false
	}
	delete(q.waiting, content)
	return true
}

func (s *serializer) leave(object string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	q := s.objects[object]
	if q.users--; q.users == 0 {
		delete(s.objects, object)
	}
}

// event returns the event of a delivery as the handler gets it. Events of several changes carry
// several states of the object, and each state may need work. So the handler gets none of them, and has to read
// the object.
func (c *call) event(in event.Event) event.Event {
	if c.differ {
		in.DataEncoded = nil
	}
	return in
}
