// Package resyncrequest requests rounds of the function resync when objects are due.
package resyncrequest

import (
	"context"
	"errors"
	"log/slog"
	"strconv"
	"time"

	"github.com/cloudevents/sdk-go/v2/event"

	"github.com/vitistack/stack/events"
	"github.com/vitistack/stack/gateway/internal/inventory"
)

const (
	// source is the source of the events that request a round.
	source = "/gateway/resync"
	// dueInterval is the time between two searches for an object that is due.
	dueInterval = time.Second
	// retryInterval is the time to wait after a request that the Broker did not accept.
	retryInterval = 10 * time.Second
	// graceShare is the part of the period for which the event of an object's last write may be in transit.
	graceShare = 3
)

// Requester requests a round at most once a period. Every replica runs one; requests of the same period have the same id.
type Requester struct {
	Store  *inventory.Store
	Broker *events.Sender
	Period time.Duration
	// Timeout bounds each request to the Broker.
	Timeout time.Duration
	Log     *slog.Logger
}

// Run requests a round whenever an object is due, until ctx ends. It searches the inventory, so that nothing runs while no object
// is due.
func (r *Requester) Run(ctx context.Context) {
	ticker := time.NewTicker(min(dueInterval, r.Period))
	defer ticker.Stop()
	for next := time.Now(); ; {
		if now := time.Now(); !now.Before(next) {
			next = now.Add(r.requestRound(ctx, now))
		}
		select {
		case <-ctx.Done():
			return
		case <-ticker.C:
		}
	}
}

// requestRound sends the request if an object is due, and returns the time until the next search.
func (r *Requester) requestRound(ctx context.Context, now time.Time) time.Duration {
	o := r.Store.Due(now, r.Period/graceShare)
	if o == nil {
		return 0
	}
	e := event.New()
	e.SetType(events.TypeResyncRequested)
	e.SetSource(source)
	e.SetID("round-" + strconv.FormatInt(now.UnixMilli()/r.Period.Milliseconds(), 10))
	ctx, cancel := context.WithTimeout(ctx, r.Timeout)
	defer cancel()
	err := r.Broker.Send(ctx, e)
	if err != nil && !errors.Is(err, events.ErrNoSink) && ctx.Err() == nil {
		r.Log.Warn("Cannot request a round of resync", "kind", string(o.Kind), "namespace", o.Namespace, "name", o.Name, "error", err.Error())
	}
	if err != nil {
		return min(r.Period, retryInterval)
	}
	return r.Period
}
