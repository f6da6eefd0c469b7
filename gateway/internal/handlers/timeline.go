package handlers

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/gofiber/fiber/v2"

	"github.com/vitistack/stack/gateway/internal/history"
	"github.com/vitistack/stack/gateway/internal/inventory"
	"github.com/vitistack/stack/gateway/internal/response"
)

// timelineJSON is the timeline of a cluster over all layers.
type timelineJSON struct {
	ID        string      `json:"id"`
	Name      string      `json:"name"`
	Namespace string      `json:"namespace"`
	Phase     string      `json:"phase"`
	Start     time.Time   `json:"start"`
	End       *time.Time  `json:"end"`
	Spans     []spanJSON  `json:"spans"`
	Events    []eventJSON `json:"events"`
	// Partial says why events are missing.
	Partial string `json:"partial,omitempty"`
}

// spanJSON is the time that an object, or one of its conditions, took.
type spanJSON struct {
	// Layer is from 1 for networks to 4 for clusters.
	Layer   int    `json:"layer"`
	Topic   string `json:"topic"`
	ID      string `json:"id"`
	Name    string `json:"name"`
	Step    string `json:"step,omitempty"`
	Status  string `json:"status"`
	Reason  string `json:"reason,omitempty"`
	Message string `json:"message,omitempty"`
	// Start is the creation, End the time of readiness. Until then End is null and Seconds counts up to now.
	Start   time.Time  `json:"start"`
	End     *time.Time `json:"end"`
	Seconds float64    `json:"seconds"`
}

// maxTimelineEvents bounds the events of a timeline.
const maxTimelineEvents = 500

// ShowTimeline serves the timeline of a cluster: the spans of its objects and conditions, and its events.
func (h *History) ShowTimeline(c *fiber.Ctx) error {
	i, snapshot, err := h.Inventory.find(c, inventory.TopicClusters)
	if err != nil {
		return err
	}
	if err := h.Access.RequireVisible(c, i.Namespace, historyResources); err != nil {
		return err
	}
	now := time.Now().UTC()
	out := timelineJSON{
		ID: i.ID, Name: i.Name, Namespace: i.Namespace, Phase: i.Phase, Start: i.Created,
		Spans: spansOf(i, partsOf(i, snapshot), now), Events: []eventJSON{},
	}
	if i.Readiness.Ready {
		out.End = &i.Readiness.Since
	}
	ctx, cancel := context.WithTimeout(context.Background(), h.Timeout)
	defer cancel()
	// Since excludes the events of an earlier cluster with the same name.
	events, err := h.Store.Events(ctx, history.Query{Namespace: i.Namespace, Cluster: i.Name, Since: i.Created, Limit: maxTimelineEvents + 1})
	switch {
	case err != nil:
		out.Partial = "the history cannot be read at present, so events are missing"
	case len(events) > maxTimelineEvents:
		events = events[:maxTimelineEvents]
		out.Partial = fmt.Sprintf("only the newest %d events are here, and /api/v1/events has the others", maxTimelineEvents)
	}
	slices.Reverse(events)
	for _, e := range events {
		out.Events = append(out.Events, eventOf(e))
	}
	return response.JSON(c, fiber.StatusOK, out)
}

// spansOf returns the spans of a cluster and of its parts, the earliest first within each layer.
func spansOf(cluster *inventory.Item, parts clusterParts, now time.Time) []spanJSON {
	var spans []spanJSON
	if parts.network != nil {
		spans = append(spans, spanOf(1, parts.network, now))
	}
	for _, a := range parts.addresses {
		spans = append(spans, spanOf(2, a, now))
	}
	for _, m := range parts.machines {
		spans = append(spans, spanOf(3, m, now))
	}
	spans = append(spans, spanOf(4, cluster, now))
	spans = append(spans, stepsOf(4, cluster, now)...)
	slices.SortStableFunc(spans, func(a, b spanJSON) int {
		if a.Layer != b.Layer {
			return a.Layer - b.Layer
		}
		if (a.Step == "") != (b.Step == "") {
			return strings.Compare(a.Step, b.Step)
		}
		return a.Start.Compare(b.Start)
	})
	return spans
}

func spanOf(layer int, i *inventory.Item, now time.Time) spanJSON {
	s := spanJSON{
		Layer: layer, Topic: string(i.Topic), ID: i.ID, Name: i.Name, Status: i.Status,
		Reason: i.Readiness.Reason, Message: i.Readiness.Message, Start: i.Created,
	}
	if i.Readiness.Ready {
		s.end(i.Readiness.Since)
	} else {
		s.Seconds = seconds(s.Start, now)
	}
	return s
}

// stepsOf returns the conditions of an object as spans. Each begins when the previous condition became true.
func stepsOf(layer int, i *inventory.Item, now time.Time) []spanJSON {
	var steps []spanJSON
	from := i.Created
	for _, c := range conditionsOf(i.Object) {
		if c.Type == "Ready" {
			continue
		}
		s := spanJSON{
			Layer: layer, Topic: string(i.Topic), ID: i.ID, Name: i.Name, Step: c.Type, Status: inventory.StatusPending,
			Reason: c.Reason, Message: c.Message, Start: from,
		}
		if c.Status == "True" {
			s.Status = inventory.StatusRunning
			s.end(c.Since)
			from = c.Since
		} else {
			s.Seconds = seconds(from, now)
		}
		steps = append(steps, s)
	}
	return steps
}

func (s *spanJSON) end(at time.Time) {
	at = at.UTC()
	s.End, s.Seconds = &at, seconds(s.Start, at)
}

func seconds(from, to time.Time) float64 { return max(to.Sub(from).Seconds(), 0) }
