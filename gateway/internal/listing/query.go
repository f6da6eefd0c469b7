package listing

import (
	"crypto/sha256"
	"encoding/base64"
	"encoding/json"
	"fmt"
	"net/url"
	"slices"
	"strconv"
	"strings"

	"github.com/vitistack/stack/gateway/internal/problem"
)

// MaxLimit bounds the parameter limit.
const MaxLimit = 1000

// Query is what a request asks of a list. It holds no memory of the request.
type Query struct {
	vocabulary Vocabulary

	limit int
	// chosen reports that the request names the limit.
	chosen bool
	text   string
	fields []string
	sort   []sortKey
	// filters select by the values of attributes.
	filters []filter
	// after is the last entry of the previous page, or nil for the first page.
	after *cursor
	// canonical is equal for queries that select the same entries in the same order, on any page.
	canonical string
	raw       string
}

type sortKey struct {
	attribute  string
	descending bool
}

// filter selects entries by the value of one attribute.
type filter struct {
	attribute string
	// operator is the character before =: ! selects other values, > and < select a range that includes its bound, none selects equal values.
	operator byte
	values   []string
}

// cursor is the last entry of a page: its keys, and the digest of the query that it belongs to. It stays valid while entries are
// added and removed.
type cursor struct {
	Mark  string   `json:"m"`
	Place []string `json:"p"`
}

// Vocabulary is what queries on a list may name.
type Vocabulary struct {
	Attributes []string
	Fields     []string
	// Values are the possible values of attributes that have few.
	Values map[string][]string
	// Check returns an error that says what to write if a value is impossible for an attribute. It may be nil.
	Check func(attribute, value string) error
	// Compare orders two values of an attribute.
	Compare func(attribute, a, b string) int
}

// Parse reads a query string. limit is the number of entries of a page if the query names none. An unknown or invalid parameter
// is a problem that names it.
func Parse(raw string, v Vocabulary, limit int) (*Query, error) {
	values, err := url.ParseQuery(raw)
	if err != nil {
		return nil, problem.New(400, "the query cannot be read: write name=value pairs with & between")
	}
	q := &Query{raw: raw, vocabulary: v, limit: limit}
	names := make([]string, 0, len(values))
	for name := range values {
		names = append(names, name)
	}
	slices.Sort(names)
	for _, name := range names {
		if len(values[name]) > 1 {
			return nil, problem.Repeated(name)
		}
		if err := q.set(name, values[name][0]); err != nil {
			return nil, err
		}
	}
	q.canonical = q.describe()
	if q.after != nil && q.after.Mark != q.digest() {
		return nil, problem.Parameter("continue", "it belongs to another query: leave it out to start from the beginning")
	}
	return q, nil
}

func (q *Query) set(name, value string) error {
	v := q.vocabulary
	switch name {
	case "limit":
		n, err := strconv.Atoi(value)
		if err != nil || n < 1 || n > MaxLimit {
			return problem.Parameter(name, "write a number from 1 to %d", MaxLimit)
		}
		q.limit, q.chosen = n, true
	case "continue":
		c, err := parseCursor(value)
		if err != nil {
			return err
		}
		q.after = c
	case "q":
		q.text = strings.ToLower(value)
	case "sort":
		return q.setSort(value)
	case "fields":
		q.fields = strings.Split(value, ",")
		for _, f := range q.fields {
			if !slices.Contains(v.Fields, f) {
				return problem.Parameter(name, "there is no field %s: write %s", f, strings.Join(v.Fields, ", "))
			}
		}
	default:
		return q.addFilter(name, value)
	}
	return nil
}

// addFilter adds the filter of a parameter, whose name is an attribute and an operator.
func (q *Query) addFilter(name, value string) error {
	v := q.vocabulary
	f := filter{attribute: name, values: strings.Split(value, ",")}
	if last := len(name) - 1; last > 0 && strings.IndexByte("!<>", name[last]) >= 0 {
		f.attribute, f.operator = name[:last], name[last]
	}
	if !slices.Contains(v.Attributes, f.attribute) {
		return problem.Parameter(name, "it is unknown here: write limit, continue, sort, fields, q, or one of %s with =, !=, >= or <=", strings.Join(v.Attributes, ", "))
	}
	if len(f.values) > 1 && (f.operator == '<' || f.operator == '>') {
		return problem.Parameter(name, "a bound is one value, and %d are written", len(f.values))
	}
	for _, one := range f.values {
		if known := v.Values[f.attribute]; known != nil && !slices.Contains(known, one) {
			return problem.Parameter(name, "there is no %s %s: write %s", f.attribute, one, strings.Join(known, ", "))
		}
		if v.Check == nil {
			continue
		}
		if err := v.Check(f.attribute, one); err != nil {
			return problem.Parameter(name, "%q is no %s: %s", one, f.attribute, err)
		}
	}
	q.filters = append(q.filters, f)
	return nil
}

func (q *Query) setSort(value string) error {
	for key := range strings.SplitSeq(value, ",") {
		attribute, descending := strings.CutPrefix(key, "-")
		if !slices.Contains(q.vocabulary.Attributes, attribute) {
			return problem.Parameter("sort", "nothing can be sorted by %s: write %s, each with - before it for the reverse", attribute, strings.Join(q.vocabulary.Attributes, ", "))
		}
		q.sort = append(q.sort, sortKey{attribute, descending})
	}
	return nil
}

// Namespaces returns the namespaces that the query filters by, or none.
func (q *Query) Namespaces() []string {
	for _, f := range q.filters {
		if f.attribute == "namespace" && f.operator == 0 {
			return f.values
		}
	}
	return nil
}

// describe returns a text that no other selection or order has, whatever characters the values of the filters have.
func (q *Query) describe() string {
	b := strconv.AppendQuote(nil, q.text)
	for _, s := range q.sort {
		b = strconv.AppendBool(append(b, s.attribute...), s.descending)
	}
	for _, f := range q.filters {
		b = fmt.Appendf(b, "%s%c%q", f.attribute, f.operator, f.values)
	}
	return string(b)
}

// digest identifies what the query selects, and its order.
func (q *Query) digest() string { return digestOf(q.canonical) }

// Digest identifies the whole query, including its page.
func (q *Query) Digest() string {
	page := fmt.Sprintf("%s\x00%s\x00%d", q.canonical, strings.Join(q.fields, ","), q.limit)
	if q.after != nil {
		page += fmt.Sprintf("\x00%q", q.after.Place)
	}
	return digestOf(page)
}

// digestOf returns a short text that no other text leads to, also if a caller looks for one: the response to a query is cached by it.
func digestOf(text string) string {
	sum := sha256.Sum256([]byte(text))
	return base64.RawURLEncoding.EncodeToString(sum[:15])
}

func parseCursor(text string) (*cursor, error) {
	decoded, err := base64.RawURLEncoding.DecodeString(text)
	c := &cursor{}
	if err == nil {
		err = json.Unmarshal(decoded, c)
	}
	if err != nil || len(c.Place) == 0 {
		return nil, problem.Parameter("continue", "it is not a value that the gateway has returned: leave it out to start from the beginning")
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

// NextPath returns the path and query of the page after p, or nothing if p is the last page.
func (q *Query) NextPath(path string, p Page) string {
	if p.next == nil {
		return ""
	}
	values, err := url.ParseQuery(q.raw)
	if err != nil {
		values = url.Values{}
	}
	values.Set("continue", p.next.String())
	return path + "?" + values.Encode()
}
