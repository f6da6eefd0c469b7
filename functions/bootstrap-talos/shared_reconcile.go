package main

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"time"

	"github.com/cloudevents/sdk-go/v2/event"

	"github.com/vitistack/stack/functions/internal/coalesce"
	"github.com/vitistack/stack/functions/internal/kube"
	"github.com/vitistack/stack/functions/internal/reconcile"
)

// sharedReconciles reconciles each cluster for one delivery at a time, and once for all deliveries that
// wait. A reconcile stops polling nodes when something has changed; resync waits for its
// end. It only saves requests: another process may reconcile the same cluster.
type sharedReconciles struct {
	calls coalesce.Calls[reconcileResult]
	mu    sync.Mutex
	// waiting has the options of the deliveries that wait, combined by cluster.
	waiting map[string]reconcileOptions
}

// reconcileResult is the result of a reconcile.
type reconcileResult struct {
	// reply is the event that the delivery which has done the reconcile returns to the Broker. It may be nil.
	reply *event.Event
	// err is what the cluster waits for, or what has failed.
	err error
	// superseded is whether another delivery reconciles the cluster again.
	superseded bool
}

// reconcileCluster reconciles one KubernetesCluster, and writes its status. It returns the event to
// answer with, nil for none. An error has the event redelivered. While the cluster waits for
// something that sends no event, that is the event of the delivery that has done the last reconcile.
func (f *function) reconcileCluster(ctx context.Context, namespace, name string, options reconcileOptions) (*event.Event, error) {
	key := namespace + "/" + name
	f.reconciles.add(key, options)
	if options.reported {
		f.reports.record(key, f.now())
	}
	if options.changed {
		f.reconciles.calls.Supersede(key)
	}
	leads := false
	done := f.reconciles.calls.Do(ctx, key, func(ctx context.Context) reconcileResult {
		leads = true
		together := f.reconciles.take(key, options)
		var done reconcileResult
		done.err = kube.OnConflict(func() (err error) {
			done.reply, err = f.reconcileOnce(ctx, namespace, name, together)
			return err
		})
		done.superseded = coalesce.IsSuperseded(ctx)
		return done
	})
	if !leads {
		done.reply = nil
	}
	isWaiting := errors.As(done.err, new(reconcile.WaitError))
	if !reconcile.Retried(done.err) || (isWaiting && (!leads || done.superseded)) {
		return done.reply, nil
	}
	return done.reply, fmt.Errorf("reconcile KubernetesCluster %s: %w", key, done.err)
}

// add combines the options of a delivery into those of the next reconcile of a cluster.
func (s *sharedReconciles) add(key string, options reconcileOptions) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.waiting == nil {
		s.waiting = map[string]reconcileOptions{}
	}
	s.waiting[key] = s.waiting[key].with(options)
}

// take returns the combined options of all deliveries that share a reconcile. own are those of the delivery
// that does it.
func (s *sharedReconciles) take(key string, own reconcileOptions) reconcileOptions {
	s.mu.Lock()
	defer s.mu.Unlock()
	defer delete(s.waiting, key)
	return own.with(s.waiting[key])
}

// with returns options that do what o and others do.
func (o reconcileOptions) with(others reconcileOptions) reconcileOptions {
	o.full = o.full || others.full
	o.reported = o.reported || others.reported
	o.polls = o.polls || others.polls
	o.reportErrors = o.reportErrors || others.reportErrors
	return o
}

// pollDeadline returns the time until which a delivery with some options polls nodes.
func pollDeadline(options reconcileOptions) time.Time {
	if !options.polls {
		return time.Now()
	}
	return time.Now().Add(nodePollTime)
}
