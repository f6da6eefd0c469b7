package handlers

import (
	"context"
	"encoding/json"
	"log/slog"
	"net/http"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/gofiber/fiber/v2"

	"github.com/vitistack/stack/gateway/internal/auth"
	"github.com/vitistack/stack/gateway/internal/domainevents"
	"github.com/vitistack/stack/gateway/internal/history"
	"github.com/vitistack/stack/gateway/internal/inventory"
	"github.com/vitistack/stack/gateway/internal/problem"
	"github.com/vitistack/stack/gateway/internal/response"
)

// eventJSON is an event of the history, with the names of CloudEvents for its attributes.
type eventJSON struct {
	Sequence  int64           `json:"sequence"`
	ID        string          `json:"id"`
	Source    string          `json:"source"`
	Type      string          `json:"type"`
	Subject   string          `json:"subject,omitempty"`
	Time      time.Time       `json:"time"`
	Kind      string          `json:"kind,omitempty"`
	Namespace string          `json:"namespace,omitempty"`
	Name      string          `json:"name,omitempty"`
	UID       string          `json:"uid,omitempty"`
	Cluster   string          `json:"cluster,omitempty"`
	Data      json.RawMessage `json:"data"`
}

func eventOf(e history.Event) eventJSON {
	return eventJSON{
		Sequence: e.Sequence, ID: e.ID, Source: e.Source, Type: e.Type, Subject: e.Subject, Time: e.Time,
		Kind: e.Kind, Namespace: e.Namespace, Name: e.Name, UID: e.UID, Cluster: e.Cluster, Data: e.Data,
	}
}

// maxCount bounds the count of events. A larger count sends no X-Total-Count.
const maxCount = 100_000

// maxTypes bounds the types of events in one query, because databases bound the values of a condition.
const maxTypes = 100

// History serves events.
type History struct {
	Store     *history.Store
	Inventory *Inventory
	Access    *auth.Authenticator
	// Resend returns the delivery that sends the event of a dead letter again. An error says why the event cannot be sent.
	Resend func(history.DeadLetter) (history.Delivery, error)
	// Timeout bounds each query of the database.
	Timeout time.Duration
	Log     *slog.Logger
}

// historyResources are the resources that a caller needs rights on to read events.
var historyResources = rightsOn(inventory.TopicNetworks, inventory.TopicAddresses, inventory.TopicAllocations, inventory.TopicMachines, inventory.TopicClusters)

// eventKinds are the kinds of the objects that events are about.
var eventKinds = slices.DeleteFunc(kindNames(), func(name string) bool { return strings.Contains(name, " ") })

func kindNames() []string {
	names := []string{string(domainevents.KindOperator)}
	for _, k := range inventory.Kinds {
		names = append(names, string(k))
	}
	return names
}

// ListEvents serves the events of the history, the newest first unless the request has another order.
func (h *History) ListEvents(c *fiber.Ctx) error {
	p, err := parametersOf(c)
	if err != nil {
		return err
	}
	q, err := eventQuery(p)
	if err != nil {
		return err
	}
	if q.Namespaces, err = h.visibleNamespaces(c, q.Namespace); err != nil {
		return err
	}
	ctx, cancel := context.WithTimeout(context.Background(), h.Timeout)
	defer cancel()
	limit := q.Limit
	q.Limit++
	events, err := h.Store.Events(ctx, q)
	if err != nil {
		return h.unreadable(err)
	}
	if n, err := h.Store.Count(ctx, q, maxCount); err == nil && n < maxCount {
		c.Set("X-Total-Count", strconv.Itoa(n))
	}
	if len(events) > limit {
		events = events[:limit]
		last := events[limit-1]
		p.linkNext(c, q.Order, last.Sequence, last.Type, last.Name, last.Time)
	}
	out := struct {
		Events []eventJSON `json:"events"`
	}{Events: []eventJSON{}}
	for _, e := range events {
		out.Events = append(out.Events, eventOf(e))
	}
	return response.JSON(c, http.StatusOK, out)
}

// eventQuery reads the query of a request for events.
func eventQuery(p *parameters) (q history.Query, err error) {
	q = history.Query{UID: p.get("uid"), Cluster: p.get("cluster")}
	if q.Kind, err = p.oneOf("kind", eventKinds); err != nil {
		return q, err
	}
	s, err := p.selection()
	q.Namespace, q.Name, q.Source, q.Text = s.namespace, s.name, s.source, s.text
	q.Types, q.Since, q.Until, q.Limit, q.Order = s.types, s.since, s.until, s.limit, s.order
	return q, err
}

// visibleNamespaces returns the namespaces whose events a caller may see, or nil for all. requested is the namespace that the
// request names, or empty.
func (h *History) visibleNamespaces(c *fiber.Ctx, requested string) ([]string, error) {
	var namespaces []string
	if requested != "" {
		namespaces = []string{requested}
	}
	visible, err := h.Access.VisibilityOf(c, "list", namespaces, historyResources)
	if err != nil || visible.All {
		return nil, err
	}
	return append([]string{}, visible.Namespaces...), nil
}

// unreadable returns the problem for a query that the database did not answer.
func (h *History) unreadable(err error) error {
	h.Log.Warn("Cannot read the history", "error", err.Error())
	return problem.New(http.StatusServiceUnavailable, "the history cannot be read at present: /health/database says why").WithRetryAfter(5)
}
