package handlers

import (
	"context"
	"encoding/json"
	"log/slog"
	"net/http"
	"net/url"
	"strconv"
	"strings"
	"time"

	"github.com/gofiber/fiber/v2"

	"github.com/vitistack/stack/gateway/internal/auth"
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
	// Timeout bounds each query of the database.
	Timeout time.Duration
	Log     *slog.Logger
}

// historyResources are the resources that a caller needs rights on to read events.
var historyResources = rightsOn(inventory.TopicNetworks, inventory.TopicAddresses, inventory.TopicAllocations, inventory.TopicMachines, inventory.TopicClusters)

// ListEvents serves the events of the history, the newest first.
func (h *History) ListEvents(c *fiber.Ctx) error {
	p, err := parametersOf(c)
	if err != nil {
		return err
	}
	original := p.values.Encode()
	q := history.Query{
		Kind: p.get("kind"), Namespace: p.get("namespace"), Name: p.get("name"), UID: p.get("uid"),
		Cluster: p.get("cluster"), Source: p.get("source"),
	}
	if types := p.get("type"); types != "" {
		q.Types = strings.Split(types, ",")
	}
	if len(q.Types) > maxTypes {
		return problem.Parameter("type", "it has %d types: write at most %d", len(q.Types), maxTypes)
	}
	if q.Since, err = timeParameter("since", p.get("since")); err != nil {
		return err
	}
	if q.Until, err = timeParameter("until", p.get("until")); err != nil {
		return err
	}
	if q.Limit, q.Before, err = p.page(); err != nil {
		return err
	}
	if err := p.rest(); err != nil {
		return err
	}
	if q.Namespaces, err = h.visibleNamespaces(c, q.Namespace); err != nil {
		return err
	}
	ctx, cancel := context.WithTimeout(context.Background(), h.Timeout)
	defer cancel()
	events, err := h.Store.Events(ctx, q)
	if err != nil {
		return h.unreadable(err)
	}
	if n, err := h.Store.Count(ctx, q, maxCount); err == nil && n < maxCount {
		c.Set("X-Total-Count", strconv.Itoa(n))
	}
	out := struct {
		Events []eventJSON `json:"events"`
	}{Events: []eventJSON{}}
	for _, e := range events {
		out.Events = append(out.Events, eventOf(e))
	}
	if len(events) == q.Limit {
		linkNext(c, original, events[len(events)-1].Sequence)
	}
	return response.JSON(c, http.StatusOK, out)
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

// linkNext sets the link to the page that begins before a sequence.
func linkNext(c *fiber.Ctx, original string, before int64) {
	values, err := url.ParseQuery(original)
	if err != nil {
		return
	}
	values.Set("continue", strconv.FormatInt(before, 36))
	c.Set(fiber.HeaderLink, "<"+c.Path()+"?"+values.Encode()+`>; rel="next"`)
}

// unreadable returns the problem for a query that the database did not answer.
func (h *History) unreadable(err error) error {
	h.Log.Warn("Cannot read the history", "error", err.Error())
	return problem.New(http.StatusServiceUnavailable, "the history cannot be read at present: /health/database says why").WithRetryAfter(5)
}
