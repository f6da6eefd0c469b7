package main

import (
	"bytes"
	"cmp"
	"encoding/json"
	"iter"
	"net/http"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/gofiber/fiber/v2"
	"github.com/gofiber/fiber/v2/utils"

	"github.com/vitistack/stack/gateway/internal/apiserver"
	"github.com/vitistack/stack/gateway/internal/httpbody"
	"github.com/vitistack/stack/gateway/internal/inventory"
	"github.com/vitistack/stack/gateway/internal/problem"
	"github.com/vitistack/stack/gateway/internal/response"
)

// entry is one line of a list.
type entry interface {
	// Attribute is the value of an attribute of the list.
	Attribute(name string) string
	// Mentions tells whether a text in lower case occurs in the entry.
	Mentions(text string) bool
	// Place is where the entry is in the list's own order. No two have the same.
	Place() []string
	// Listed is the entry as JSON.
	Listed() []byte
}

// listing is a list that can be asked for in parts.
type listing struct {
	// field is the field of the response that has the entries.
	field string
	vocabulary
	// tag is the entity tag of all that there is.
	tag string
	all iter.Seq[entry]
	// resources are what the entries are called in rights.
	resources []apiserver.Resource
}

// view is what a query has found.
type view struct {
	body  httpbody.Body
	total int
	// next is where the next page begins, or nil.
	next *cursor
}

// serveListing answers a query. What it finds is kept for as long as nothing
// changes, since a page that many look at asks the same again.
func (g *gateway) serveListing(c *fiber.Ctx, l listing) error {
	q, err := parseQuery(utils.CopyString(string(c.Request().URI().QueryString())), l.vocabulary)
	if err != nil {
		return err
	}
	if q.limit == 0 {
		q.limit = inventory.PageSize
	}
	visible, err := g.visibilityOf(c, "list", q.namespaces(), l.resources)
	if err != nil {
		return err
	}
	if !visible.all {
		l.all, l.tag = visibleEntries(l.all, visible), l.tag+"-"+visible.mark()
	}
	tag := l.tag + "-" + q.identity()
	found := g.views.get(tag, func() view { return q.find(l) })
	h := &c.Context().Response.Header
	h.Set("X-Total-Count", strconv.Itoa(found.total))
	if found.next != nil {
		h.Set(fiber.HeaderLink, "<"+q.next(c.Path(), found.next)+`>; rel="next"`)
	}
	return response.Send(c, tag, fiber.MIMEApplicationJSON, found.body)
}

// find selects, sorts and cuts.
func (q *query) find(l listing) view {
	page, total, next := q.selectFrom(l.all)
	encoded := make([][]byte, len(page))
	for i, e := range page {
		encoded[i] = pick(e.Listed(), q.fields)
	}
	return view{body: httpbody.New(join(l.field, encoded)), total: total, next: next}
}

// ranked is an entry with what it is sorted by.
type ranked struct {
	entry
	keys []string
}

func (q *query) selectFrom(all iter.Seq[entry]) (page []ranked, total int, next *cursor) {
	var selected []ranked
	for e := range all {
		if !q.matches(e) {
			continue
		}
		total++
		// In the list's own order nothing need be kept that is not on the page.
		if len(q.sort) == 0 && len(selected) > q.limit {
			continue
		}
		if r := (ranked{entry: e, keys: q.keys(e)}); len(q.sort) > 0 || q.isAfter(r) {
			selected = append(selected, r)
		}
	}
	if len(q.sort) > 0 {
		slices.SortFunc(selected, func(a, b ranked) int { return q.compare(a.keys, b.keys) })
		selected = slices.DeleteFunc(selected, func(r ranked) bool { return !q.isAfter(r) })
	}
	if len(selected) > q.limit {
		selected = selected[:q.limit]
		next = &cursor{Mark: q.mark(), Place: selected[q.limit-1].keys}
	}
	return selected, total, next
}

func (q *query) matches(e entry) bool {
	for _, f := range q.filters {
		if !slices.Contains(f.values, e.Attribute(f.attribute)) {
			return false
		}
	}
	return q.text == "" || e.Mentions(q.text)
}

// keys are the values that the query sorts by, and then the entry's place, so that
// no two entries have the same.
func (q *query) keys(e entry) []string {
	place := e.Place()
	keys := make([]string, 0, len(q.sort)+len(place))
	for _, s := range q.sort {
		keys = append(keys, e.Attribute(s.attribute))
	}
	return append(keys, place...)
}

func (q *query) compare(a, b []string) int {
	for i := range min(len(a), len(b)) {
		var order int
		switch {
		case i >= len(q.sort):
			order = strings.Compare(a[i], b[i])
		case q.sort[i].descending:
			order = inventory.CompareAttribute(q.sort[i].attribute, b[i], a[i])
		default:
			order = inventory.CompareAttribute(q.sort[i].attribute, a[i], b[i])
		}
		if order != 0 {
			return order
		}
	}
	return cmp.Compare(len(a), len(b))
}

func (q *query) isAfter(r ranked) bool {
	return q.after == nil || q.compare(r.keys, q.after.Place) > 0
}

// pick leaves of a JSON object only the fields, in that order. None means all.
func pick(object []byte, fields []string) []byte {
	if len(fields) == 0 {
		return object
	}
	var parts map[string]json.RawMessage
	if err := json.Unmarshal(object, &parts); err != nil {
		return object
	}
	b := []byte{'{'}
	for _, f := range fields {
		value, ok := parts[f]
		if !ok {
			continue
		}
		if len(b) > 1 {
			b = append(b, ',')
		}
		b = strconv.AppendQuote(b, f)
		b = append(b, ':')
		b = append(b, value...)
	}
	return append(b, '}')
}

// join is a JSON object whose one field is a list.
func join(field string, items [][]byte) []byte {
	b := append([]byte(`{"`+field+`":[`), bytes.Join(items, []byte{','})...)
	return append(b, `]}`...)
}

// topicEntry is an item of a topic as an entry.
type topicEntry struct{ *inventory.Item }

// Place is where the item is in its collection.
func (e topicEntry) Place() []string { return []string{e.Namespace, e.Name, e.ID} }

func entries(items []*inventory.Item) iter.Seq[entry] {
	return func(yield func(entry) bool) {
		for _, i := range items {
			if !yield(topicEntry{i}) {
				return
			}
		}
	}
}

// list serves a topic. Asked for without conditions it is sent as it has been
// encoded beforehand.
func (g *gateway) list(topic inventory.Topic) fiber.Handler {
	words := vocabulary{
		attributes: slices.Concat(inventory.CommonAttributes, inventory.Attributes[topic]),
		fields:     inventory.Fields(topic),
		values:     map[string][]string{"status": inventory.Statuses(topic)},
	}
	return func(c *fiber.Ctx) error {
		snapshot, err := g.snapshot()
		if err != nil {
			return err
		}
		collection := snapshot.Collection(topic)
		if g.callerOf(c).limited() || len(c.Request().URI().QueryString()) > 0 || collection.Shown() < len(collection.Items) {
			return g.serveListing(c, listing{
				field: string(topic), vocabulary: words, tag: collection.ETag(snapshot.Epoch), all: entries(collection.Items),
				resources: resourcesIn(topic),
			})
		}
		c.Context().Response.Header.Set("X-Total-Count", strconv.Itoa(len(collection.Items)))
		return response.Send(c, collection.ETag(snapshot.Epoch), fiber.MIMEApplicationJSON, collection.List())
	}
}

// find is the item of a topic that a path names: by its identifier, or by
// namespace/name with the slash written %2F, or by its name where it is in no
// namespace.
func (g *gateway) find(c *fiber.Ctx, topic inventory.Topic) (*inventory.Item, *inventory.Snapshot, error) {
	snapshot, err := g.snapshot()
	if err != nil {
		return nil, nil, err
	}
	id := utils.CopyString(c.Params("id"))
	collection := snapshot.Collection(topic)
	namespace, name, ok := strings.Cut(unescapeSlash(id), "/")
	if !ok {
		namespace, name = "", id
	}
	i := collection.Find(id)
	if i == nil {
		i = collection.FindNamed(namespace, name)
	}
	if i != nil {
		namespace = i.Namespace
	}
	// Whether the item exists makes no difference to a caller that does not see it.
	visible, err := g.visibilityOf(c, "get", []string{namespace}, resourcesIn(topic))
	if err != nil {
		return nil, nil, err
	}
	if i != nil && visible.includes(i.Namespace) {
		return i, snapshot, nil
	}
	return nil, nil, problem.New(http.StatusNotFound, "there is no %s with this id: /api/v1/%s lists them; namespace%%2Fname is an id too", strings.TrimSuffix(string(topic), "s"), topic)
}

func unescapeSlash(s string) string {
	return strings.NewReplacer("%2F", "/", "%2f", "/").Replace(s)
}

// item serves one item of a topic.
func (g *gateway) item(topic inventory.Topic) fiber.Handler {
	return func(c *fiber.Ctx) error {
		i, snapshot, err := g.find(c, topic)
		if err != nil {
			return err
		}
		return response.Send(c, snapshot.ETag()+"-"+i.ID, fiber.MIMEApplicationJSON, httpbody.Body{Plain: i.Listed()})
	}
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
