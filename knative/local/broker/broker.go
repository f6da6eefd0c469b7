// Package broker is a Knative Broker in memory: an HTTP ingress, Triggers with all of Knative's filters, its retries, dead letters and replies. The
// terms are those of Knative's contract (https://github.com/knative/specs), and filters, retry table, backoff and error extensions are its code. Events
// that are held when the process ends are lost.
package broker

import (
	"context"
	"log/slog"
	"net"
	"net/http"
	"sync"
	"sync/atomic"
	"time"
)

// Broker accepts events and delivers them to the subscribers of its Triggers, at least once each. Events with the same partitionkey extension, or else
// subject, have their first attempt in the order of their arrival.
type Broker struct {
	log    *slog.Logger
	client *http.Client
	ctx    context.Context
	cancel context.CancelFunc
	work   sync.WaitGroup

	received atomic.Int64
	held     atomic.Int64

	mu     sync.RWMutex
	queues []*queue
}

// Stats has the counters since the start of the broker.
type Stats struct {
	Received int64          `json:"received"`
	Triggers []TriggerStats `json:"triggers"`
}

// TriggerStats counts the events that matched a Trigger. Each finally counts as Delivered, DeadLettered or, without a dead letter sink, Dropped. A dead
// letter that its sink rejects counts as Dropped.
type TriggerStats struct {
	Name         string `json:"name"`
	Subscriber   string `json:"subscriber"`
	Received     int64  `json:"received"`
	Delivered    int64  `json:"delivered"`
	Retried      int64  `json:"retried"`
	DeadLettered int64  `json:"deadLettered"`
	Dropped      int64  `json:"dropped"`
	InFlight     int    `json:"inFlight"`
	Queued       int    `json:"queued"`  // for their turn
	Waiting      int    `json:"waiting"` // for their next attempt
}

// New returns a broker without Triggers. It logs events that it loses or sends to a dead letter sink. near, if not nil, is called first for each
// request, and returns http.ErrSkipAltProtocol for a request over the network.
func New(log *slog.Logger, near http.RoundTripper) *Broker {
	ctx, cancel := context.WithCancel(context.Background())
	transport := &http.Transport{
		DialContext:         (&net.Dialer{Timeout: dialTimeout}).DialContext,
		MaxIdleConnsPerHost: maxInFlight,
		DisableCompression:  true,
	}
	if near != nil {
		transport.RegisterProtocol("http", near)
	}
	return &Broker{log: log, ctx: ctx, cancel: cancel, client: &http.Client{Transport: transport}}
}

// SetTriggers replaces the Triggers. Events that are held for a Trigger are delivered by its new definition, and dropped if the Trigger is removed.
func (b *Broker) SetTriggers(triggers []Trigger) {
	b.mu.Lock()
	defer b.mu.Unlock()
	known := map[string]*queue{}
	for _, q := range b.queues {
		known[q.current().Key()] = q
	}
	b.queues = nil
	for _, t := range triggers {
		q := known[t.Key()]
		if q == nil {
			q = newQueue(b, t)
		}
		delete(known, t.Key())
		q.replace(t)
		b.queues = append(b.queues, q)
	}
	for _, q := range known {
		q.close()
	}
}

// Stats returns the counters, in the order of SetTriggers.
func (b *Broker) Stats() Stats {
	b.mu.RLock()
	defer b.mu.RUnlock()
	stats := Stats{Received: b.received.Load(), Triggers: []TriggerStats{}}
	for _, q := range b.queues {
		stats.Triggers = append(stats.Triggers, q.snapshot())
	}
	return stats
}

// Close drops held events, cancels running requests and returns when they have ended.
func (b *Broker) Close() {
	b.SetTriggers(nil)
	b.cancel()
	b.work.Wait()
	b.client.CloseIdleConnections()
}

// after calls f after a delay, unless the broker is closed before.
func (b *Broker) after(delay time.Duration, f func()) {
	if delay <= 0 {
		delay = 0
	}
	time.AfterFunc(delay, func() {
		if b.ctx.Err() == nil {
			f()
		}
	})
}
