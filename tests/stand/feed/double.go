package feed

import (
	"context"
	"slices"
	"sync"
	"time"

	"github.com/cloudevents/sdk-go/v2/event"
)

// Clock is a clock that only its test advances.
type Clock struct {
	mu  sync.Mutex
	now time.Time
}

// NewClock returns a clock that has stopped at the present time.
func NewClock() *Clock { return &Clock{now: time.Now()} }

// Now returns the time of the clock.
func (c *Clock) Now() time.Time {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.now
}

// Pass advances the clock.
func (c *Clock) Pass(d time.Duration) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.now = c.now.Add(d)
}

// Outbox records what a function sends to the broker.
type Outbox struct {
	mu     sync.Mutex
	events []event.Event
}

// Send records an event, and returns an error for an invalid one.
func (o *Outbox) Send(_ context.Context, e event.Event) error {
	o.mu.Lock()
	defer o.mu.Unlock()
	o.events = append(o.events, e)
	return e.Validate()
}

// Events returns the events since the last call of Take, in their order.
func (o *Outbox) Events() []event.Event {
	o.mu.Lock()
	defer o.mu.Unlock()
	return slices.Clone(o.events)
}

// Take returns the events and removes them.
func (o *Outbox) Take() []event.Event {
	o.mu.Lock()
	defer o.mu.Unlock()
	taken := o.events
	o.events = nil
	return taken
}
