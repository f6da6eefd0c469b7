package main

import (
	"context"
	"encoding/json"
	"net/http"
	"net/url"
	"strconv"
	"strings"
	"time"

	"github.com/gofiber/fiber/v2"
	"github.com/gofiber/fiber/v2/utils"

	"github.com/vitistack/stack/gateway/internal/history"
	"github.com/vitistack/stack/gateway/internal/problem"
	"github.com/vitistack/stack/gateway/internal/response"
)

// eventJSON is an event of the history, with the attributes of CloudEvents under
// their own names.
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

// mostCounted is how far events are counted. Beyond it X-Total-Count is left out.
const mostCounted = 100_000

// mostTypes is how many types of events can be asked for at once: databases bound
// what a condition may have.
const mostTypes = 100

// usualPage is how many events a page has where no limit is given.
const usualPage = 100

// parameters are those of a request, each of which has to be read.
type parameters struct {
	values url.Values
	known  []string
}

func parametersOf(c *fiber.Ctx) (*parameters, error) {
	values, err := url.ParseQuery(utils.CopyString(string(c.Request().URI().QueryString())))
	if err != nil {
		return nil, problem.New(http.StatusBadRequest, "the query cannot be read: write name=value pairs with & between")
	}
	return &parameters{values: values}, nil
}

func (p *parameters) get(name string) string {
	p.known = append(p.known, name)
	return p.values.Get(name)
}

// rest is a problem if there are parameters that nobody has read.
func (p *parameters) rest() error {
	for _, name := range p.known {
		p.values.Del(name)
	}
	for name := range p.values {
		return problem.Parameter(name, "it is unknown here: write %s", strings.Join(p.known, ", "))
	}
	return nil
}

// page reads limit and continue.
func (p *parameters) page() (limit int, before int64, err error) {
	limit = usualPage
	if text := p.get("limit"); text != "" {
		if limit, err = strconv.Atoi(text); err != nil || limit < 1 || limit > mostListed {
			return 0, 0, problem.Parameter("limit", "write a number from 1 to %d", mostListed)
		}
	}
	if text := p.get("continue"); text != "" {
		if before, err = strconv.ParseInt(text, 36, 64); err != nil || before < 1 {
			return 0, 0, problem.Parameter("continue", "it is none that the gateway has given: leave it out to begin anew")
		}
	}
	return limit, before, nil
}

// listEvents serves the history, the newest first.
func (g *gateway) listEvents(c *fiber.Ctx) error {
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
	if len(q.Types) > mostTypes {
		return problem.Parameter("type", "it has %d types: write at most %d", len(q.Types), mostTypes)
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
	if q.Namespaces, err = g.visibleHistory(c, q.Namespace); err != nil {
		return err
	}
	ctx, cancel := context.WithTimeout(context.Background(), g.config.APITimeout)
	defer cancel()
	events, err := g.history.Events(ctx, q)
	if err != nil {
		return g.unreadable(err)
	}
	if n, err := g.history.Count(ctx, q, mostCounted); err == nil && n < mostCounted {
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

// visibleHistory returns the namespaces whose events a caller sees, or nil for all. asked is
// the one that the request names, or empty.
func (g *gateway) visibleHistory(c *fiber.Ctx, asked string) ([]string, error) {
	var namespaces []string
	if asked != "" {
		namespaces = []string{asked}
	}
	visible, err := g.visibilityOf(c, "list", namespaces, historyResources)
	if err != nil || visible.all {
		return nil, err
	}
	return append([]string{}, visible.namespaces...), nil
}

// linkNext names the page that begins before a sequence.
func linkNext(c *fiber.Ctx, original string, before int64) {
	values, err := url.ParseQuery(original)
	if err != nil {
		return
	}
	values.Set("continue", strconv.FormatInt(before, 36))
	c.Set(fiber.HeaderLink, "<"+c.Path()+"?"+values.Encode()+`>; rel="next"`)
}

// unreadable is the answer while the database cannot be read.
func (g *gateway) unreadable(err error) error {
	g.log.Warn("Cannot read the history", "component", "history", "error", err.Error())
	return problem.New(http.StatusServiceUnavailable, "the history cannot be read at present: /health/database says why").WithRetryAfter(5)
}

// deadLetterJSON is an event that nobody took.
type deadLetterJSON struct {
	Sequence    int64           `json:"sequence"`
	ID          string          `json:"id"`
	Source      string          `json:"source"`
	Type        string          `json:"type"`
	Subject     string          `json:"subject,omitempty"`
	Namespace   string          `json:"namespace,omitempty"`
	Name        string          `json:"name,omitempty"`
	Destination string          `json:"destination"`
	Code        int             `json:"code"`
	Error       string          `json:"error"`
	Time        time.Time       `json:"time"`
	Data        json.RawMessage `json:"data"`
}

// listDeadLetters serves the events that could not be delivered, the newest first.
func (g *gateway) listDeadLetters(c *fiber.Ctx) error {
	p, err := parametersOf(c)
	if err != nil {
		return err
	}
	limit, before, err := p.page()
	if err != nil {
		return err
	}
	if err := p.rest(); err != nil {
		return err
	}
	ctx, cancel := context.WithTimeout(context.Background(), g.config.APITimeout)
	defer cancel()
	letters, err := g.history.DeadLetters(ctx, before, limit)
	if err != nil {
		return g.unreadable(err)
	}
	if n, err := g.history.CountDeadLetters(ctx); err == nil {
		c.Set("X-Total-Count", strconv.Itoa(n))
	}
	out := struct {
		DeadLetters []deadLetterJSON `json:"deadLetters"`
	}{DeadLetters: []deadLetterJSON{}}
	for _, l := range letters {
		data := json.RawMessage(l.Data)
		if !json.Valid(data) {
			data = json.RawMessage("null")
		}
		out.DeadLetters = append(out.DeadLetters, deadLetterJSON{
			Sequence: l.Sequence, ID: l.ID, Source: l.Source, Type: l.Type, Subject: l.Subject, Namespace: l.Namespace, Name: l.Name,
			Destination: l.Destination, Code: l.Code, Error: l.Error, Time: l.Time, Data: data,
		})
	}
	if len(letters) == limit {
		linkNext(c, "limit="+strconv.Itoa(limit), letters[len(letters)-1].Sequence)
	}
	return response.JSON(c, http.StatusOK, out)
}
