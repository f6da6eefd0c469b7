package main

import (
	"context"
	"encoding/json"
	"sync"
	"time"

	"github.com/cloudevents/sdk-go/v2/event"
)

// sharedEvent is what a replica tells the others: an event, since when it could not
// tell them of some, or what a function has counted.
type sharedEvent struct {
	From      string          `json:"from"`
	Namespace string          `json:"namespace,omitempty"`
	Event     json.RawMessage `json:"event,omitempty"`
	Missed    time.Time       `json:"missed,omitzero"`
	Metrics   *pushedMetrics  `json:"metrics,omitempty"`
}

// debt is since when the other replicas lack events of this one, or zero.
type debt struct {
	mu    sync.Mutex
	since time.Time
}

// owe notes that they lack some since a time.
func (d *debt) owe(since time.Time) {
	d.mu.Lock()
	defer d.mu.Unlock()
	if d.since.IsZero() || since.Before(d.since) {
		d.since = since
	}
}

// take returns the debt, and forgets it.
func (d *debt) take() (since time.Time) {
	d.mu.Lock()
	defer d.mu.Unlock()
	since, d.since = d.since, time.Time{}
	return since
}

// announced counts an event of the gateway's own, and shows it.
func (g *gateway) announced(e event.Event, namespace string) {
	g.metrics.event(g, e.Type(), processed, 1)
	g.tell(e, namespace)
}

// tell shows an event to the clients of the stream: those of this process, and
// through Redis those of the other replicas.
func (g *gateway) tell(e event.Event, namespace string) {
	encoded, err := json.Marshal(e)
	if err != nil {
		g.log.Error("Cannot encode event", "component", "events", "eventId", e.ID(), "error", err.Error())
		return
	}
	g.hub.Announce(namespace, encoded)
	since := time.Now()
	if e.Time().Before(since) && !e.Time().IsZero() {
		since = e.Time()
	}
	if !g.share(sharedEvent{Namespace: namespace, Event: encoded}) {
		g.owed.owe(since)
	}
}

// share tells the other replicas, and returns whether they are told.
func (g *gateway) share(s sharedEvent) bool {
	s.From = g.store.Current().Epoch
	encoded, err := json.Marshal(s)
	return err == nil && g.cache.Publish(context.Background(), encoded)
}

// settlePause is between two tries to tell the other replicas that they lack events.
const settlePause = 5 * time.Second

// shareEvents shows what other replicas tell, until ctx ends. What they could not
// tell while Redis was away is in the history: clients hear that they have missed it.
// An event has its time before it is written and told, which takes at most the time
// limit of a request.
func (g *gateway) shareEvents(ctx context.Context) {
	var running sync.WaitGroup
	defer running.Wait()
	running.Go(func() {
		g.cache.Subscribe(ctx, g.hear, func(since time.Time) { g.hub.Missed(since.Add(-g.config.APITimeout)) })
	})
	ticker := time.NewTicker(settlePause)
	defer ticker.Stop()
	for {
		select {
		case <-ctx.Done():
			return
		case <-ticker.C:
			if since := g.owed.take(); !since.IsZero() && !g.share(sharedEvent{Missed: since}) {
				g.owed.owe(since)
			}
		}
	}
}

func (g *gateway) hear(message []byte) {
	var heard sharedEvent
	if err := json.Unmarshal(message, &heard); err != nil || heard.From == g.store.Current().Epoch {
		return
	}
	if !heard.Missed.IsZero() {
		g.hub.Missed(heard.Missed)
		return
	}
	if heard.Metrics != nil {
		_ = g.addMetrics(*heard.Metrics) // the replica that shares it could read it
		return
	}
	g.hub.Announce(heard.Namespace, heard.Event)
}
