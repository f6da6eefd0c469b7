package feed

import (
	"context"
	"slices"
	"sync"
	"time"

	"github.com/cloudevents/sdk-go/v2/event"
)

// Clock is a time that only its test moves.
type Clock struct {
	mu  sync.Mutex
	now time.Time
}

// NewClock makes a clock that stands at the present.
func NewClock() *Clock { return &Clock{now: time.Now()} }

// Now is the time at which the clock stands.
func (c *Clock) Now() time.Time {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.now
}

// Pass moves the clock on.
func (c *Clock) Pass(d time.Duration) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.now = c.now.Add(d)
}

// Outbox keeps what a function sends to the broker.
type Outbox struct {
	mu     sync.Mutex
	events []event.Event
}

// Send keeps an event, and refuses one that is none.
func (o *Outbox) Send(_ context.Context, e event.Event) error {
	o.mu.Lock()
	defer o.mu.Unlock()
	o.events = append(o.events, e)
	return e.Validate()
}

// Events are all that have been sent since Take, in their order.
func (o *Outbox) Events() []event.Event {
	o.mu.Lock()
	defer o.mu.Unlock()
	return slices.Clone(o.events)
}

// Take returns the events and forgets them.
func (o *Outbox) Take() []event.Event {
	o.mu.Lock()
	defer o.mu.Unlock()
	taken := o.events
	o.events = nil
	return taken
}
