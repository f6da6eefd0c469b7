package main

import (
	"context"
	"time"

	"github.com/vitistack/stack/gateway/internal/inventory"
)

// publish makes snapshots and tells the stream of them, until ctx ends. It begins
// when the watches have settled, so that nobody sees half of what there is. The
// first change after a quiet time is told at once, and those that follow are
// gathered.
func (g *gateway) publish(ctx context.Context, settled <-chan struct{}) {
	select {
	case <-ctx.Done():
		return
	case <-settled:
	}
	g.commit()
	g.metrics.begin(g.store.Current())
	g.health.begin()
	close(g.published)
	g.log.Info("Ready", "component", "gateway", "after", time.Since(g.started).Round(time.Millisecond).String())
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
		case <-g.store.Changed():
		}
		changes := g.commit()
		g.metrics.observe(changes)
		g.announcer.Changed(changes)
		pause.Reset(g.config.Stream.Window)
	}
}

// commit makes a snapshot, tells the stream of it, and returns what has changed.
func (g *gateway) commit() []inventory.Change {
	start := time.Now()
	last := g.store.Current()
	snapshot, changes := g.store.Commit(start)
	g.metrics.commit.Update(time.Since(start).Seconds())
	g.hub.Publish(snapshot, changes)
	for _, change := range changes {
		if change.Topic == inventory.TopicOperators {
			g.health.refresh(start)
		}
	}
	g.warm(last, snapshot)
	return changes
}

// warm makes the lists again that somebody has read since they were last made, so
// that the next reader does not wait for them.
func (g *gateway) warm(last, next *inventory.Snapshot) {
	for _, topic := range inventory.Topics {
		before, now := last.Collection(topic), next.Collection(topic)
		if before != now && before.Read() {
			now.List()
		}
	}
}
