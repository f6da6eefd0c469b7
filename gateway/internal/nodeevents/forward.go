package nodeevents

import (
	"context"
	"crypto/rand"
	"errors"
	"strconv"
	"sync/atomic"
	"time"

	"golang.org/x/sync/errgroup"

	"github.com/vitistack/stack/events"
	"github.com/vitistack/stack/gateway/internal/inventory"
)

const (
	// gatherTime is how long the first event of a cluster waits for others of the same moment.
	gatherTime = 20 * time.Millisecond
	// maxSends bounds the requests to the Broker at the same time.
	maxSends = 16
)

// Outcomes of a request for a reconcile.
const (
	outcomeSent   = "sent"
	outcomeFailed = "failed"
)

// ForwardOutcomes are all outcomes of requests, for counters that exist from the start.
var ForwardOutcomes = []string{outcomeSent, outcomeFailed}

// forward sends the requests for reconciles until ctx ends. A request that the Broker does not accept is repeated when the window of the
// cluster ends.
func (s *Server) forward(ctx context.Context) {
	process := rand.Text()[:8]
	var number atomic.Uint64
	timer := time.NewTimer(0)
	defer timer.Stop()
	for {
		select {
		case <-ctx.Done():
			return
		case <-s.windows.changed:
			time.Sleep(gatherTime)
		case <-timer.C:
		}
		due, next := s.windows.take(time.Now())
		var sends errgroup.Group
		sends.SetLimit(maxSends)
		for _, o := range due {
			sends.Go(func() error {
				s.request(ctx, o, process+"."+strconv.FormatUint(number.Add(1), 10))
				return nil
			})
		}
		_ = sends.Wait()
		if !next.IsZero() {
			timer.Reset(time.Until(next))
		}
	}
}

// request sends the event that requests a reconcile of a cluster. cause is unique, because each request says that something has changed since
// the last one.
func (s *Server) request(ctx context.Context, o *inventory.Object, cause string) {
	ref := events.Ref{APIVersion: o.APIVersion, Kind: string(o.Kind), Namespace: o.Namespace, Name: o.Name}
	ctx, cancel := context.WithTimeout(ctx, s.Timeout)
	defer cancel()
	err := s.Broker.Request(ctx, events.NewReconcileRequest(events.SourceNodeEvents, ref, o.UID, cause))
	if err == nil {
		s.Metrics.NodeEventForwarded(outcomeSent)
		return
	}
	s.Metrics.NodeEventForwarded(outcomeFailed)
	s.windows.add(o)
	if !errors.Is(err, events.ErrNoSink) && ctx.Err() == nil {
		s.Log.Warn("Cannot request a reconcile of the cluster", "namespace", o.Namespace, "name", o.Name, "error", err.Error())
	}
}
