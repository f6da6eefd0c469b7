// Package listing answers queries on lists: it filters, sorts, searches, selects fields and cuts pages. It knows nothing of what
// the lists contain.
package listing

import (
	"bytes"
	"cmp"
	"encoding/json"
	"fmt"
	"iter"
	"slices"
	"strconv"
	"strings"

	"github.com/vitistack/stack/gateway/internal/httpbody"
)

// Entry is one entry of a list.
type Entry interface {
	// Attribute returns the value of an attribute of the list, or nothing.
	Attribute(name string) string
	// Mentions reports whether a text in lower case occurs in the entry.
	Mentions(text string) bool
	// Place is the position of the entry in the list's own order. No two entries have the same place.
	Place() []string
	// Listed is the entry as JSON.
	Listed() []byte
}

// multiple is an Entry with attributes that have several values. A filter selects it by any of them.
type multiple interface {
	// Values returns all values of an attribute, or nothing for one that has a single value.
	Values(name string) []string
}

// Page is the part of a list that a query selects.
type Page struct {
	Body httpbody.Body
	// Total is the number of entries that match the query on all pages.
	Total int
	// next is the last entry of the page, or nil on the last page.
	next *cursor
}

// size returns the bytes that a page takes in a cache.
func (p Page) size() int { return len(p.Body.Plain) + len(p.Body.Gzip) + len(p.Body.Zstd) + 512 }

// Find selects, sorts and cuts. field is the field of the response that holds the entries. With tellCut, a body that
// is cut although the query names no limit has two more fields: total, and next with the path of the next page, which begins with path.
func (q *Query) Find(field, path string, tellCut bool, all iter.Seq[Entry]) Page {
	selected, total, next := q.selectFrom(all)
	encoded := make([][]byte, len(selected))
	for i, e := range selected {
		encoded[i] = pickFields(e.Listed(), q.fields)
	}
	page := Page{Total: total, next: next}
	body := append([]byte(`{"`+field+`":[`), bytes.Join(encoded, []byte{','})...)
	body = append(body, ']')
	if tellCut && !q.chosen && next != nil {
		body = fmt.Appendf(body, `,"total":%d,"next":%q`, total, q.NextPath(path, page))
	}
	page.Body = httpbody.New(append(body, '}'))
	return page
}

// rankedEntry is an entry with the values that it is sorted by.
type rankedEntry struct {
	Entry
	keys []string
}

func (q *Query) selectFrom(all iter.Seq[Entry]) (page []rankedEntry, total int, next *cursor) {
	var selected []rankedEntry
	for e := range all {
		if !q.matches(e) {
			continue
		}
		total++
		// In the list's own order only the entries of the page need memory.
		if len(q.sort) == 0 && len(selected) > q.limit {
			continue
		}
		if r := (rankedEntry{Entry: e, keys: q.keys(e)}); len(q.sort) > 0 || q.isAfter(r) {
			selected = append(selected, r)
		}
	}
	if len(q.sort) > 0 {
		slices.SortFunc(selected, func(a, b rankedEntry) int { return q.compareKeys(a.keys, b.keys) })
		selected = slices.DeleteFunc(selected, func(r rankedEntry) bool { return !q.isAfter(r) })
	}
	if len(selected) > q.limit {
		selected = selected[:q.limit]
		next = &cursor{Mark: q.digest(), Place: selected[q.limit-1].keys}
	}
	return selected, total, next
}

func (q *Query) matches(e Entry) bool {
	for _, f := range q.filters {
		if !q.selectsEntry(f, e) {
			return false
		}
	}
	return q.text == "" || e.Mentions(q.text)
}

// selectsEntry reports whether a filter selects an entry by one of its values. The filter != selects an entry that has no such value.
func (q *Query) selectsEntry(f filter, e Entry) bool {
	m, ok := e.(multiple)
	if !ok {
		return q.selects(f, e.Attribute(f.attribute))
	}
	values := m.Values(f.attribute)
	isSelected := func(value string) bool { return q.selects(f, value) }
	switch {
	case len(values) == 0:
		return isSelected(e.Attribute(f.attribute))
	case f.operator == '!':
		return !slices.ContainsFunc(values, func(value string) bool { return !isSelected(value) })
	default:
		return slices.ContainsFunc(values, isSelected)
	}
}

// selects reports whether a filter selects a value. A range selects no entry that lacks the attribute.
func (q *Query) selects(f filter, value string) bool {
	compare := func(other string) int { return q.vocabulary.Compare(f.attribute, value, other) }
	isEqual := func(other string) bool { return value == other || compare(other) == 0 }
	switch f.operator {
	case '!':
		return !slices.ContainsFunc(f.values, isEqual)
	case '>':
		return value != "" && compare(f.values[0]) >= 0
	case '<':
		return value != "" && compare(f.values[0]) <= 0
	default:
		return slices.ContainsFunc(f.values, isEqual)
	}
}

// keys returns the values that the query sorts by, followed by the entry's place, so that no two entries have the same keys.
func (q *Query) keys(e Entry) []string {
	place := e.Place()
	keys := make([]string, 0, len(q.sort)+len(place))
	for _, s := range q.sort {
		keys = append(keys, e.Attribute(s.attribute))
	}
	return append(keys, place...)
}

func (q *Query) compareKeys(a, b []string) int {
	for i := range min(len(a), len(b)) {
		var order int
		switch {
		case i >= len(q.sort):
			order = strings.Compare(a[i], b[i])
		case q.sort[i].descending:
			order = q.vocabulary.Compare(q.sort[i].attribute, b[i], a[i])
		default:
			order = q.vocabulary.Compare(q.sort[i].attribute, a[i], b[i])
		}
		if order != 0 {
			return order
		}
	}
	return cmp.Compare(len(a), len(b))
}

func (q *Query) isAfter(r rankedEntry) bool {
	return q.after == nil || q.compareKeys(r.keys, q.after.Place) > 0
}

// pickFields returns a JSON object with only these fields, in this order. No fields means all.
func pickFields(object []byte, fields []string) []byte {
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
