// Package resyncrequest requests that the function resync reconciles the objects that are due.
package resyncrequest

import (
	"context"
	"errors"
	"fmt"
	"hash/fnv"
	"log/slog"
	"time"

	"github.com/cloudevents/sdk-go/v2/event"

	"github.com/vitistack/stack/events"
	"github.com/vitistack/stack/gateway/internal/inventory"
)

const (
	// source is the source of the requests.
	source = "/gateway/resync"
	// mostNamed is the number of objects up to which a request names them. If more are due at the first request of a period,
	// resync reads all objects: a page of 500 costs about as much as one object by its name.
	mostNamed = 100
	// dueInterval is the time between two searches for an object that is due.
	dueInterval = time.Second
	// requestInterval is the shortest time between two requests.
	requestInterval = 5 * time.Second
	// retryInterval is the time to wait after a request that the Broker did not accept.
	retryInterval = 10 * time.Second
	// graceShare is the part of the period for which the event of an object's last write may be in transit.
	graceShare = 3
)

// Requester requests each object that is due once a period. Every replica runs one. Periods start at the same times in all replicas, and
// requests of a period that say the same have the same id.
type Requester struct {
	Store  *inventory.Store
	Broker *events.Sender
	Period time.Duration
	// Timeout bounds each request to the Broker.
	Timeout time.Duration
	Log     *slog.Logger

	current period
}

// period is what has been requested in a period.
type period struct {
	number int64
	// begun is whether there was a request.
	begun bool
	// covered are the objects that are due and that a request has named, or for which resync reads all.
	covered map[events.DueObject]bool
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

// requestDue sends a request if an object is due that no request of the period covers, and returns the time until the next search. So an object
// that stays due does not delay another one whose events were lost.
func (r *Requester) requestDue(ctx context.Context, now time.Time) time.Duration {
	if number := now.UnixMilli() / r.Period.Milliseconds(); number != r.current.number {
		r.current = period{number: number, covered: map[events.DueObject]bool{}}
	}
	due := r.current.uncovered(r.Store.Due(now, r.Period/graceShare))
	if len(due) == 0 {
		return 0
	}
	ctx, cancel := context.WithTimeout(ctx, r.Timeout)
	defer cancel()
	e, err := newRequest(r.current.number, due)
	if err == nil {
		err = r.Broker.Request(ctx, e)
	}
	if err != nil && !errors.Is(err, events.ErrNoSink) && ctx.Err() == nil {
		r.Log.Warn("Cannot request a resync", "kind", due[0].Kind, "namespace", due[0].Namespace, "name", due[0].Name, "error", err.Error())
	}
	if err != nil {
		return min(r.Period, retryInterval)
	}
	r.current.add(due)
	return min(r.Period, requestInterval)
}

// uncovered returns the objects that no request covers. After the first request they are at most as many as a request names, so that
// resync reads all at most once a period.
func (p *period) uncovered(due []*inventory.Object) (left []events.DueObject) {
	for _, o := range due {
		if ref := (events.DueObject{Kind: string(o.Kind), Namespace: o.Namespace, Name: o.Name}); !p.covered[ref] {
			left = append(left, ref)
		}
		if p.begun && len(left) == mostNamed {
			break
		}
	}
	return left
}

// add records a request for objects.
func (p *period) add(due []events.DueObject) {
	p.begun = true
	for _, ref := range due {
		p.covered[ref] = true
	}
}

// newRequest returns the request of a period for objects that are due. It names them unless they are more than mostNamed.
func newRequest(period int64, due []events.DueObject) (event.Event, error) {
	e := event.New()
	e.SetType(events.TypeResyncRequested)
	e.SetSource(source)
	data := events.ResyncRequested{}
	if len(due) <= mostNamed {
		data.Objects = due
	}
	if err := e.SetData(event.ApplicationJSON, data); err != nil {
		return e, fmt.Errorf("write the request of period %d: %w", period, err)
	}
	// A Broker may drop an event whose id it knows, so requests of other replicas with other objects need other ids.
	content := fnv.New64a()
	_, _ = content.Write(e.Data())
	e.SetID(fmt.Sprintf("round-%d-%x", period, content.Sum64()))
	return e, nil
}
