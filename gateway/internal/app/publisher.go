package app

import (
	"context"
	"log/slog"
	"slices"
	"time"

	"github.com/vitistack/stack/gateway/internal/domainevents"
	"github.com/vitistack/stack/gateway/internal/health"
	"github.com/vitistack/stack/gateway/internal/inventory"
	"github.com/vitistack/stack/gateway/internal/metrics"
	"github.com/vitistack/stack/gateway/internal/stream"
)

// publisher commits snapshots of the inventory and publishes them to the stream, the metrics, the health and the producer.
type publisher struct {
	store    *inventory.Store
	hub      *stream.Hub
	metrics  *metrics.Gateway
	health   *health.Health
	producer *domainevents.Producer
	// window is the time for which changes are gathered.
	window  time.Duration
	started time.Time
	log     *slog.Logger
	// published is closed with the first snapshot.
	published chan struct{}
}

func newPublisher(a *app) *publisher {
	return &publisher{
		store: a.store, hub: a.hub, metrics: a.metrics, health: a.health, producer: a.producer,
		window: a.config.Stream.Window, started: a.started, log: a.component("gateway"), published: make(chan struct{}),
	}
}

// after returns a part that runs after the first snapshot.
func (p *publisher) after(run func(context.Context)) func(context.Context) {
	return func(ctx context.Context) {
		select {
		case <-ctx.Done():
		case <-p.published:
			run(ctx)
		}
	}
}

// run publishes snapshots until ctx ends. It begins when the watches have synced, so that no client sees an incomplete inventory.
// The first change after a quiet time is published at once; later changes are gathered for the window.
func (p *publisher) run(ctx context.Context, synced <-chan struct{}) {
	select {
	case <-ctx.Done():
		return
	case <-synced:
	}
	p.commit()
	p.metrics.Begin(p.store.Current())
	p.health.SetReady()
	close(p.published)
	p.log.Info("Ready", "after", time.Since(p.started).Round(time.Millisecond).String())
	pause := time.NewTimer(0)
	defer pause.Stop()
	for {
		select {
		case <-ctx.Done():
			return
		case <-pause.C:
		}
		select {
		case <-ctx.Done():
			return
		case <-p.store.Changed():
		}
		changes := p.commit()
		p.metrics.Changed(changes)
		p.producer.Changed(changes)
		pause.Reset(p.window)
	}
}

// commit commits a snapshot, publishes it to the stream, and returns the changes.
func (p *publisher) commit() []inventory.Change {
	start := time.Now()
	last := p.store.Current()
	snapshot, changes := p.store.Commit(start)
	p.metrics.Commit(time.Since(start))
	p.hub.Publish(snapshot, changes)
	if !slices.Equal(last.Servers(), snapshot.Servers()) || !slices.Equal(last.Dependencies(), snapshot.Dependencies()) || slices.ContainsFunc(changes, func(c inventory.Change) bool { return c.Topic == inventory.TopicOperators }) {
		p.health.Refresh(start)
	}
	warmLists(last, snapshot)
	return changes
}

// warmLists encodes the lists that were read since they were last encoded, so that the next reader does not wait.
func warmLists(last, next *inventory.Snapshot) {
	for _, topic := range inventory.Topics {
		before, now := last.Collection(topic), next.Collection(topic)
		if before != now && before.Read() {
			now.List()
		}
	}
}
