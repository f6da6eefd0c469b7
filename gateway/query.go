package main

import (
	"encoding/base64"
	"encoding/json"
	"hash/fnv"
	"net/url"
	"slices"
	"strconv"
	"strings"

	"github.com/vitistack/stack/gateway/internal/problem"
)

// mostListed is how many items a page has at most.
const mostListed = 1000

// query is what a list is asked for. It is read from the parameters of a request
// and holds nothing of it.
type query struct {
	// limit is 0 where none is given.
	limit  int
	text   string
	fields []string
	sort   []sortKey
	// filters have the values that an attribute may have.
	filters []filter
	// after is where the page begins, or nil for the first one.
	after *cursor
	// canonical is the same for queries that ask for the same items in the same
	// order, wherever their page begins.
	canonical string
	raw       string
}

type sortKey struct {
	attribute  string
	descending bool
}

type filter struct {
	attribute string
	values    []string
}

// cursor is the last item of a page: its place in the order, and a mark of the
// query that it belongs to. It stays good while items come and go.
type cursor struct {
	Mark  string   `json:"m"`
	Place []string `json:"p"`
}

// vocabulary is what a list can be asked for.
type vocabulary struct {
	attributes []string
	fields     []string
	// values are all that an attribute may have, for those that are bounded.
	values map[string][]string
}

// parseQuery reads the parameters of a list. One that is unknown or cannot be
// used is a problem that names it.
func parseQuery(raw string, v vocabulary) (*query, error) {
	values, err := url.ParseQuery(raw)
	if err != nil {
		return nil, problem.New(400, "the query cannot be read: write name=value pairs with & between")
	}
	q := &query{raw: raw}
	names := make([]string, 0, len(values))
	for name := range values {
		names = append(names, name)
	}
	slices.Sort(names)
	for _, name := range names {
		if err := q.set(name, values[name], v); err != nil {
			return nil, err
		}
	}
	q.canonical = q.describe()
	if q.after != nil && q.after.Mark != q.mark() {
		return nil, problem.Parameter("continue", "it belongs to another query: leave it out to begin anew")
	}
	return q, nil
}

func (q *query) set(name string, values []string, v vocabulary) error {
	last := values[len(values)-1]
	switch {
	case name == "limit":
		n, err := strconv.Atoi(last)
		if err != nil || n < 1 || n > mostListed {
			return problem.Parameter(name, "write a number from 1 to %d", mostListed)
		}
		q.limit = n
	case name == "continue":
		c, err := parseCursor(last)
		if err != nil {
			return err
		}
		q.after = c
	case name == "q":
		q.text = strings.ToLower(last)
	case name == "sort":
		return q.setSort(values, v)
	case name == "fields":
		q.fields = splitAll(values)
		for _, f := range q.fields {
			if !slices.Contains(v.fields, f) {
				return problem.Parameter(name, "there is no field %s: write %s", f, strings.Join(v.fields, ", "))
			}
		}
	case slices.Contains(v.attributes, name):
		wanted := splitAll(values)
		for _, value := range wanted {
			if known := v.values[name]; known != nil && !slices.Contains(known, value) {
				return problem.Parameter(name, "there is no %s %s: write %s", name, value, strings.Join(known, ", "))
			}
		}
		q.filters = append(q.filters, filter{attribute: name, values: wanted})
	default:
		return problem.Parameter(name, "it is unknown here: write limit, continue, sort, fields, q, %s", strings.Join(v.attributes, ", "))
	}
	return nil
}

func (q *query) setSort(values []string, v vocabulary) error {
	for _, key := range splitAll(values) {
		attribute, descending := strings.CutPrefix(key, "-")
		if !slices.Contains(v.attributes, attribute) {
			return problem.Parameter("sort", "nothing can be sorted by %s: write %s, each with - before it for the reverse", attribute, strings.Join(v.attributes, ", "))
		}
		q.sort = append(q.sort, sortKey{attribute, descending})
	}
	return nil
}

// splitAll splits values at their commas.
func splitAll(values []string) []string {
	var all []string
	for _, value := range values {
		for part := range strings.SplitSeq(value, ",") {
			all = append(all, part)
		}
	}
	return all
}

// namespaces returns those that the query names, or none.
func (q *query) namespaces() []string {
	for _, f := range q.filters {
		if f.attribute == "namespace" {
			return f.values
		}
	}
	return nil
}

func (q *query) describe() string {
	described, err := json.Marshal([]any{q.text, q.sort, q.filters})
	if err != nil {
		return q.raw
	}
	var b strings.Builder
	b.Write(described)
	for _, s := range q.sort {
		b.WriteString(s.attribute)
		b.WriteString(strconv.FormatBool(s.descending))
	}
	for _, f := range q.filters {
		b.WriteString(f.attribute + "=" + strings.Join(f.values, ",") + "&")
	}
	return b.String()
}

// mark stands for what the query selects and how it is ordered.
func (q *query) mark() string {
	h := fnv.New64a()
	_, _ = h.Write([]byte(q.canonical))
	return strconv.FormatUint(h.Sum64(), 36)
}

// identity stands for the whole query, its page included.
func (q *query) identity() string {
	h := fnv.New64a()
	_, _ = h.Write([]byte(q.canonical + "\x00" + strings.Join(q.fields, ",") + "\x00" + strconv.Itoa(q.limit)))
	if q.after != nil {
		_, _ = h.Write([]byte("\x00" + strings.Join(q.after.Place, "\x00")))
	}
	return strconv.FormatUint(h.Sum64(), 36)
}

func parseCursor(text string) (*cursor, error) {
	decoded, err := base64.RawURLEncoding.DecodeString(text)
	c := &cursor{}
	if err == nil {
		err = json.Unmarshal(decoded, c)
	}
	if err != nil || len(c.Place) == 0 {
		return nil, problem.Parameter("continue", "it is none that the gateway has given: leave it out to begin anew")
	}
	return c, nil
}

func (c *cursor) String() string {
	encoded, err := json.Marshal(c)
	if err != nil {
		return ""
	}
	return base64.RawURLEncoding.EncodeToString(encoded)
}

// next is the address of the page after one that ends at c.
func (q *query) next(path string, c *cursor) string {
	values, err := url.ParseQuery(q.raw)
	if err != nil {
		values = url.Values{}
	}
	values.Set("continue", c.String())
	return path + "?" + values.Encode()
}
