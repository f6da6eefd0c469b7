package handlers

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/gofiber/fiber/v2"

	"github.com/vitistack/stack/apis/v1alpha1"
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

// creation lists the conditions of a cluster that are steps of its creation. Each step begins when the previous one is True.
var creation = []string{
	v1alpha1.ConditionTopologyValid, v1alpha1.ConditionNetworkAvailable, "CredentialsCreated", v1alpha1.ConditionMachinesCreated,
	v1alpha1.ConditionMachinesRunning, v1alpha1.ConditionConfigApplied, v1alpha1.ConditionBootstrapped, v1alpha1.ConditionNodesReady,
}

// stepsOf returns the conditions of an object as spans.
func stepsOf(layer int, i *inventory.Item, now time.Time) []spanJSON {
	var steps []spanJSON
	conditions := conditionsOf(i.Object)
	for _, c := range conditions {
		if c.Type == v1alpha1.ConditionReady {
			continue
		}
		s := spanJSON{
			Layer: layer, Topic: string(i.Topic), ID: i.ID, Name: i.Name, Step: c.Type, Status: inventory.StatusPending,
			Reason: c.Reason, Message: c.Message, Start: stepStart(c, conditions, i.Created),
		}
		if c.Status == "True" {
			s.Status = inventory.StatusRunning
			s.end(c.Since)
		} else {
			s.Seconds = seconds(s.Start, now)
		}
		steps = append(steps, s)
	}
	return steps
}

// stepStart returns when a step of an object began:
//
//	a step of the creation that is done     when the step before it was done, or at the creation of the object
//	one that is not done                    the same, or when its condition became what it is, if that is later
//	a state that is not part of a creation  when its condition became what it is
//
// A step that was undone and done again later has no known start in between, so it starts when it was done.
func stepStart(c conditionJSON, conditions []conditionJSON, created time.Time) time.Time {
	place := slices.Index(creation, c.Type)
	if place < 0 {
		return c.Since
	}
	start := created
	for _, before := range conditions {
		if n := slices.Index(creation, before.Type); n >= 0 && n < place && before.Status == "True" && before.Since.After(start) {
			start = before.Since
		}
	}
	if c.Status != "True" && c.Since.After(start) || c.Status == "True" && start.After(c.Since) {
		return c.Since
	}
	return start
}

func (s *spanJSON) end(at time.Time) {
	at = at.UTC()
	s.End, s.Seconds = &at, seconds(s.Start, at)
}

func seconds(from, to time.Time) float64 { return max(to.Sub(from).Seconds(), 0) }
