package main

import (
	"context"
	"errors"
	"strconv"
	"time"

	"github.com/cloudevents/sdk-go/v2/event"

	"github.com/vitistack/stack/events"
)

const (
	// resyncSource is the source of requests for a round of resync.
	resyncSource = "/gateway/resync"
	// dueInterval is how often the snapshot is searched for an object that is due.
	dueInterval = time.Second
	// resyncRetry is how long to wait after a request that the Broker did not take.
	resyncRetry = 10 * time.Second
	// graceShare is the part of the period for which the event of an object's last write
	// may be under way.
	graceShare = 3
)

// requestResync asks the function resync for a round, at most once a period, when an
// object is due, until ctx ends. The gateway sees without a request what is due, and so
// nothing runs while nothing is. Every replica asks; requests of the same period have the
// same id.
func (g *gateway) requestResync(ctx context.Context) {
	select {
	case <-ctx.Done():
		return
	case <-g.published:
	}
	period := g.config.ResyncPeriod
	ticker := time.NewTicker(min(dueInterval, period))
	defer ticker.Stop()
	for next := time.Now(); ; {
		if now := time.Now(); !now.Before(next) {
			next = now.Add(g.requestOneRound(ctx, now, period))
		}
		select {
		case <-ctx.Done():
			return
		case <-ticker.C:
		}
	}
}

// requestOneRound sends the request if an object is due, and returns after how long to
// look again. A request that the Broker does not take is sent again.
func (g *gateway) requestOneRound(ctx context.Context, now time.Time, period time.Duration) time.Duration {
	o := g.store.Due(now, period/graceShare)
	if o == nil {
		return 0
	}
	e := event.New()
	e.SetType(events.TypeResyncRequested)
	e.SetSource(resyncSource)
	e.SetID("round-" + strconv.FormatInt(now.UnixMilli()/period.Milliseconds(), 10))
	ctx, cancel := context.WithTimeout(ctx, g.config.APITimeout)
	defer cancel()
	err := g.sendToBroker(ctx, e)
	if err != nil && !errors.Is(err, events.ErrNoSink) && ctx.Err() == nil {
		g.log.Warn("Cannot request a round of resync", "component", "resync", "kind", string(o.Kind), "namespace", o.Namespace, "name", o.Name, "error", err.Error())
	}
	if err != nil {
		return min(period, resyncRetry)
	}
	return period
}
