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

// turns reconciles each cluster for one delivery at a time, and once for all deliveries that wait
// for their turn. A reconcile stops polling nodes when something has changed; resync waits for its
// end. It only saves requests: another process may reconcile the same cluster.
type turns struct {
	calls coalesce.Calls[turn]
	mu    sync.Mutex
	// waiting has what the deliveries that wait for a turn want together.
	waiting map[string]reconcileOptions
}

// turn is the result of a reconcile.
type turn struct {
	// reply is the event that the delivery which has done the reconcile returns to the Broker. It may be nil.
	reply *event.Event
	// err is what the cluster waits for, or what has failed.
	err error
	// superseded is whether another delivery looks again.
	superseded bool
}

// reconcileCluster reconciles one KubernetesCluster, and writes its status. It returns the event to
// answer with, nil for none. An error has the event redelivered. While the cluster waits for
// something that sends no event, that is the event of the delivery that has done the last reconcile.
func (f *function) reconcileCluster(ctx context.Context, namespace, name string, options reconcileOptions) (*event.Event, error) {
	key := namespace + "/" + name
	f.turns.add(key, options)
	if options.changed {
		f.turns.calls.Supersede(key)
	}
	leads := false
	done := f.turns.calls.Do(ctx, key, func(ctx context.Context) turn {
		leads = true
		together := f.turns.take(key, options)
		var done turn
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

// add records what a delivery wants from the next turn of a cluster.
func (t *turns) add(key string, options reconcileOptions) {
	t.mu.Lock()
	defer t.mu.Unlock()
	if t.waiting == nil {
		t.waiting = map[string]reconcileOptions{}
	}
	t.waiting[key] = t.waiting[key].with(options)
}

// take returns what the deliveries of a turn want together. own are the options of the delivery
// that does the reconcile.
func (t *turns) take(key string, own reconcileOptions) reconcileOptions {
	t.mu.Lock()
	defer t.mu.Unlock()
	defer delete(t.waiting, key)
	return own.with(t.waiting[key])
}

// with returns options that do what o and others do.
func (o reconcileOptions) with(others reconcileOptions) reconcileOptions {
	o.full = o.full || others.full
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
