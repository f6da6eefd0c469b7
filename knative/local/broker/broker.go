// Package broker is a Knative Broker in memory: an HTTP ingress, Triggers with all of Knative's filters, its retries,
// dead letters and replies. The words of the contract are Knative's (https://github.com/knative/specs); filters, retry
// table, backoff and error extensions are its code. What is held when the process ends is lost.
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

// Broker accepts events and delivers them to the subscribers of its Triggers, at least once each. Events with the same
// partitionkey extension, or else subject, are tried the first time in the order they came.
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

// Stats counts since the broker was made.
type Stats struct {
	Received int64          `json:"received"`
	Triggers []TriggerStats `json:"triggers"`
}

// TriggerStats counts the events that matched a Trigger. Each is in the end Delivered, DeadLettered or, without a dead
// letter sink, Dropped; a dead letter that its sink does not take counts as Dropped too.
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
	Waiting      int    `json:"waiting"` // for their next try
}

// New returns a broker without Triggers. It logs what it loses or gives to a dead letter sink. near, if not nil, is
// called first for each request, and returns http.ErrSkipAltProtocol for a request over the network.
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

// SetTriggers makes these the Triggers. What is held for a Trigger that stays is delivered by its new definition, what
// is held for one that goes is dropped.
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

// Close drops what is held, cancels the requests under way and returns when they have ended.
func (b *Broker) Close() {
	b.SetTriggers(nil)
	b.cancel()
	b.work.Wait()
	b.client.CloseIdleConnections()
}

// after calls f after a delay, or never when the broker is closed first.
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
