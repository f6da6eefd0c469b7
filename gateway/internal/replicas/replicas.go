// Package replicas shows events to the clients of all replicas of the gateway, and adds up in each what functions push to one.
package replicas

import (
	"context"
	"encoding/json"
	"log/slog"
	"strings"
	"sync"
	"time"

	"github.com/cloudevents/sdk-go/v2/event"

	"github.com/vitistack/stack/gateway/internal/cache"
	"github.com/vitistack/stack/gateway/internal/metrics"
	"github.com/vitistack/stack/gateway/internal/stream"
)

// retryInterval is the time between two attempts to report missed events to the other replicas.
const retryInterval = 5 * time.Second

// Replicas sends events and metrics to the clients of this process and, through Redis, to the other replicas.
type Replicas struct {
	Cache  *cache.Cache
	Hub    *stream.Hub
	Pushed *metrics.Pushed
	// Epoch identifies this process.
	Epoch string
	// Timeout bounds the time between the time of an event and its delivery to the other replicas.
	Timeout time.Duration
	Log     *slog.Logger

	missed missedSince
}

// message is what one replica sends to the others: an event, the time since which it could not send events, or metrics.
type message struct {
	From      string          `json:"from"`
	Namespace string          `json:"namespace,omitempty"`
	Event     json.RawMessage `json:"event,omitempty"`
	Missed    time.Time       `json:"missed,omitzero"`
	Metrics   *Push           `json:"metrics,omitempty"`
}

// Push is what a function has pushed.
type Push struct {
	Text string `json:"text"`
	// Ended reports that the process that pushed has ended.
	Ended bool `json:"ended,omitempty"`
}

// ShowEvent sends an event about a namespace to the clients of all replicas. An event that Redis does not accept is reported to the
// other replicas as missed once Redis is back.
func (r *Replicas) ShowEvent(e event.Event, namespace string) {
	encoded, err := json.Marshal(e)
	if err != nil {
		r.Log.Error("Cannot encode event", "eventId", e.ID(), "error", err.Error())
		return
	}
	r.Hub.SendEvent(namespace, encoded)
	since := time.Now()
	if e.Time().Before(since) && !e.Time().IsZero() {
		since = e.Time()
	}
	if !r.send(message{Namespace: namespace, Event: encoded}) {
		r.missed.add(since)
	}
}

// AddMetrics adds what a function has pushed, in all replicas. A text that is not in the format of Prometheus is an error.
func (r *Replicas) AddMetrics(p Push) error {
	if err := r.addMetrics(p); err != nil {
		return err
	}
	r.send(message{Metrics: &p})
	return nil
}

func (r *Replicas) addMetrics(p Push) error {
	if _, err := r.Pushed.Take(strings.NewReader(p.Text), p.Ended, time.Now()); err != nil {
		return err
	}
	r.Hub.SendDeliveries(r.Pushed.Deliveries())
	return nil
}

// send publishes a message to the other replicas, and reports whether Redis has accepted it.
func (r *Replicas) send(m message) bool {
	m.From = r.Epoch
	encoded, err := json.Marshal(m)
	return err == nil && r.Cache.Publish(context.Background(), encoded)
}

// Run receives the messages of other replicas until ctx ends. After an interruption of Redis, clients get the time since which they
// may have missed events, which are in the history. An event has its time before it is written and sent, which takes at most Timeout.
func (r *Replicas) Run(ctx context.Context) {
	var running sync.WaitGroup
	defer running.Wait()
	running.Go(func() {
		r.Cache.Subscribe(ctx, r.receive, func(since time.Time) { r.Hub.SendMissed(since.Add(-r.Timeout)) })
	})
	ticker := time.NewTicker(retryInterval)
	defer ticker.Stop()
	for {
		select {
		case <-ctx.Done():
			return
		case <-ticker.C:
			if since := r.missed.take(); !since.IsZero() && !r.send(message{Missed: since}) {
				r.missed.add(since)
			}
		}
	}
}

func (r *Replicas) receive(encoded []byte) {
	var m message
	if err := json.Unmarshal(encoded, &m); err != nil || m.From == r.Epoch {
		return
	}
	switch {
	case !m.Missed.IsZero():
		r.Hub.SendMissed(m.Missed)
	case m.Metrics != nil:
		_ = r.addMetrics(*m.Metrics) // the replica that sent it could parse it
	default:
		r.Hub.SendEvent(m.Namespace, m.Event)
	}
}

// missedSince is the time since which the other replicas miss events of this one, or zero.
type missedSince struct {
	mu    sync.Mutex
	since time.Time
}

// add records that they miss events since a time.
func (m *missedSince) add(since time.Time) {
	m.mu.Lock()
	defer m.mu.Unlock()
	if m.since.IsZero() || since.Before(m.since) {
		m.since = since
	}
}

// take returns the time and resets it.
func (m *missedSince) take() (since time.Time) {
	m.mu.Lock()
	defer m.mu.Unlock()
	since, m.since = m.since, time.Time{}
	return since
}
