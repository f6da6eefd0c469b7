package handlers

import (
	"encoding/base64"
	"encoding/json"
	"hash/fnv"
	"maps"
	"net/http"
	"net/url"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/gofiber/fiber/v2"
	"github.com/gofiber/fiber/v2/utils"

	"github.com/vitistack/stack/gateway/internal/history"
	"github.com/vitistack/stack/gateway/internal/listing"
	"github.com/vitistack/stack/gateway/internal/problem"
)

// defaultLimit is the number of events of a page for a query without a limit.
const defaultLimit = 100

// parameters are the query parameters of a request. Every parameter must be read, see rest.
type parameters struct {
	values url.Values
	known  []string
}

// parametersOf returns the query parameters of a request. A parameter that the request has more than once is a problem.
func parametersOf(c *fiber.Ctx) (*parameters, error) {
	values, err := url.ParseQuery(utils.CopyString(string(c.Request().URI().QueryString())))
	if err != nil {
		return nil, problem.New(http.StatusBadRequest, "the query cannot be read: write name=value pairs with & between")
	}
	for name := range values {
		if len(values[name]) > 1 {
			return nil, problem.Repeated(name)
		}
	}
	return &parameters{values: values}, nil
}

func (p *parameters) get(name string) string {
	p.known = append(p.known, name)
	return p.values.Get(name)
}

// rest returns a problem if the request has parameters that were not read, and are therefore unknown.
func (p *parameters) rest() error {
	names := slices.Sorted(maps.Keys(p.values))
	for _, name := range names {
		if !slices.Contains(p.known, name) {
			return problem.Parameter(name, "it is unknown here: write %s", strings.Join(p.known, ", "))
		}
	}
	return nil
}

// oneOf reads a parameter that has one of a few values, or is left out.
func (p *parameters) oneOf(name string, known []string) (string, error) {
	value := p.get(name)
	if value != "" && !slices.Contains(known, value) {
		return "", problem.Parameter(name, "there is no %s %s: write %s", name, value, strings.Join(known, ", "))
	}
	return value, nil
}

// selection is what selects and sorts events and dead letters alike.
type selection struct {
	namespace, name, source, text string
	types                         []string
	since, until                  time.Time
	limit                         int
	order                         history.Order
}

// selection reads the parameters that lists of events and of dead letters have in common. Call it after all others have been read, because
// every other one that the request has is unknown.
func (p *parameters) selection() (s selection, err error) {
	s = selection{namespace: p.get("namespace"), name: p.get("name"), source: p.get("source"), text: p.get("q")}
	if s.types, err = p.types(); err != nil {
		return s, err
	}
	if s.since, s.until, err = p.during(); err != nil {
		return s, err
	}
	if s.limit, s.order, err = p.page(); err != nil {
		return s, err
	}
	return s, p.rest()
}

// types reads types of events.
func (p *parameters) types() ([]string, error) {
	text := p.get("type")
	if text == "" {
		return nil, nil
	}
	types := strings.Split(text, ",")
	if len(types) > maxTypes {
		return nil, problem.Parameter("type", "it has %d types: write at most %d", len(types), maxTypes)
	}
	return types, nil
}

// during reads since and until.
func (p *parameters) during() (since, until time.Time, err error) {
	if since, err = timeParameter("since", p.get("since")); err != nil {
		return since, until, err
	}
	until, err = timeParameter("until", p.get("until"))
	return since, until, err
}

// position is where a page of events or dead letters ends: the sequence of its last row, and the row's value of the column that the
// query sorts by. Query identifies the query that it belongs to.
type position struct {
	Query    uint64 `json:"q"`
	Sequence int64  `json:"n"`
	Text     string `json:"t,omitempty"`
	Micros   int64  `json:"m,omitempty"`
}

// page reads limit, sort and continue. Call it after all parameters that select.
func (p *parameters) page() (limit int, o history.Order, err error) {
	limit = defaultLimit
	if text := p.get("limit"); text != "" {
		if limit, err = strconv.Atoi(text); err != nil || limit < 1 || limit > listing.MaxLimit {
			return 0, o, problem.Parameter("limit", "write a number from 1 to %d", listing.MaxLimit)
		}
	}
	if text := p.get("sort"); text != "" {
		by, descending := strings.CutPrefix(text, "-")
		if !slices.Contains(history.Orders, by) {
			return 0, o, problem.Parameter("sort", "nothing can be sorted by %s: write one of %s, with - before it for the reverse", by, strings.Join(history.Orders, ", "))
		}
		o.By, o.Ascending = by, !descending
	}
	if text := p.get("continue"); text != "" {
		var at position
		decoded, err := base64.RawURLEncoding.DecodeString(text)
		if err != nil || json.Unmarshal(decoded, &at) != nil || at.Sequence < 1 {
			return 0, o, problem.Parameter("continue", "it is not a value that the gateway has returned: leave it out to start from the beginning")
		}
		if at.Query != p.digest() {
			return 0, o, problem.Parameter("continue", "it belongs to another query: leave it out to start from the beginning")
		}
		o.After, o.AfterValue = at.Sequence, at.Text
		if o.By == "time" {
			o.AfterValue = at.Micros
		}
	}
	return limit, o, nil
}

// digest identifies what the query selects, and its order.
func (p *parameters) digest() uint64 {
	selecting := maps.Clone(p.values)
	delete(selecting, "continue")
	delete(selecting, "limit")
	h := fnv.New64a()
	_, _ = h.Write([]byte(selecting.Encode()))
	return h.Sum64() >> 11 // exact as a number in JSON
}

// linkNext sets the link to the page after a row.
func (p *parameters) linkNext(c *fiber.Ctx, o history.Order, sequence int64, eventType, name string, at time.Time) {
	end := position{Query: p.digest(), Sequence: sequence}
	switch o.By {
	case "time":
		end.Micros = at.UnixMicro()
	case "type":
		end.Text = eventType
	case "name":
		end.Text = name
	}
	encoded, err := json.Marshal(end)
	if err != nil {
		return
	}
	values := maps.Clone(p.values)
	values.Set("continue", base64.RawURLEncoding.EncodeToString(encoded))
	c.Set(fiber.HeaderLink, "<"+c.Path()+"?"+values.Encode()+`>; rel="next"`)
}

// timeParameter reads a time in a query.
func timeParameter(name, text string) (time.Time, error) {
	if text == "" {
		return time.Time{}, nil
	}
	t, err := time.Parse(time.RFC3339, text)
	if err != nil {
		return time.Time{}, problem.Parameter(name, "write a time such as 2026-01-02T15:04:05Z")
	}
	return t, nil
}
