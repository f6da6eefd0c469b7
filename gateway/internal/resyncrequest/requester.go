// Package resyncrequest requests that the function resync reconciles the objects that are due.
package resyncrequest

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"strconv"
	"time"

	"github.com/cloudevents/sdk-go/v2/event"

	"github.com/vitistack/stack/events"
	"github.com/vitistack/stack/gateway/internal/inventory"
)

const (
	// source is the source of the requests.
	source = "/gateway/resync"
	// mostNamed is the number of objects up to which a request names them. If more are due, resync reads all objects: a page
	// of 500 costs about as much as one object by its name.
	mostNamed = 100
	// dueInterval is the time between two searches for an object that is due.
	dueInterval = time.Second
	// retryInterval is the time to wait after a request that the Broker did not accept.
	retryInterval = 10 * time.Second
	// graceShare is the part of the period for which the event of an object's last write may be in transit.
	graceShare = 3
)

// Requester sends a request at most once a period. Every replica runs one; requests of the same period have the same id.
type Requester struct {
	Store  *inventory.Store
	Broker *events.Sender
	Period time.Duration
	// Timeout bounds each request to the Broker.
	Timeout time.Duration
	Log     *slog.Logger
}

// Run sends a request whenever an object is due, until ctx ends. It searches the inventory, so that nothing runs while no object
// is due.
func (r *Requester) Run(ctx context.Context) {
	ticker := time.NewTicker(min(dueInterval, r.Period))
	defer ticker.Stop()
	for next := time.Now(); ; {
		if now := time.Now(); !now.Before(next) {
			next = now.Add(r.requestDue(ctx, now))
		}
		select {
		case <-ctx.Done():
			return
		case <-ticker.C:
		}
	}
}

// requestDue sends the request if an object is due, and returns the time until the next search.
func (r *Requester) requestDue(ctx context.Context, now time.Time) time.Duration {
	due := r.Store.Due(now, r.Period/graceShare, mostNamed+1)
	if len(due) == 0 {
		return 0
	}
	ctx, cancel := context.WithTimeout(ctx, r.Timeout)
	defer cancel()
	e, err := newRequest(due, now.UnixMilli()/r.Period.Milliseconds())
	if err == nil {
		err = r.Broker.Send(ctx, e)
	}
	if err != nil && !errors.Is(err, events.ErrNoSink) && ctx.Err() == nil {
		r.Log.Warn("Cannot request a resync", "kind", string(due[0].Kind), "namespace", due[0].Namespace, "name", due[0].Name, "error", err.Error())
	}
	if err != nil {
		return min(r.Period, retryInterval)
	}
	return r.Period
}

// newRequest returns the request for objects that are due in a period. It names them unless they are more than mostNamed.
func newRequest(due []*inventory.Object, period int64) (event.Event, error) {
	e := event.New()
	e.SetType(events.TypeResyncRequested)
	e.SetSource(source)
	e.SetID("round-" + strconv.FormatInt(period, 10))
	data := events.ResyncRequested{}
	if len(due) <= mostNamed {
		for _, o := range due {
			data.Objects = append(data.Objects, events.DueObject{Kind: string(o.Kind), Namespace: o.Namespace, Name: o.Name})
		}
	}
	if err := e.SetData(event.ApplicationJSON, data); err != nil {
		return e, fmt.Errorf("write event %s: %w", e.ID(), err)
	}
	return e, nil
}
