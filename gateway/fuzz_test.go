package main

import (
	"slices"
	"strconv"
	"strings"
	"testing"
	"unicode/utf8"

	"github.com/vitistack/stack/gateway/internal/problem"
)

// listed is an entry of a list of the fuzz tests.
type listed int

func (l listed) Attribute(name string) string { return name + strconv.Itoa(int(l)%3) }
func (l listed) Mentions(text string) bool    { return strings.Contains(strconv.Itoa(int(l)), text) }
func (l listed) Place() []string              { return []string{"team", strconv.Itoa(int(l))} }
func (l listed) Listed() []byte               { return []byte(`{"name":"` + strconv.Itoa(int(l)) + `"}`) }

// FuzzQuery reads any query. One that is taken finds its entries page after page,
// each once, whatever its cursor claims.
func FuzzQuery(f *testing.F) {
	for _, raw := range []string{
		"", "limit=2&sort=-status,name", "continue=eyJtIjoiIiwicCI6WyJhIl19&limit=1", "q=1&fields=name", "status=status1,status2", "limit=1001", "%zz",
		"continue=" + (&cursor{Mark: "0", Place: []string{"\x00"}}).String(),
	} {
		f.Add(raw)
	}
	var all []entry
	for i := range 9 {
		all = append(all, listed(i))
	}
	v := vocabulary{attributes: []string{"name", "status"}, fields: []string{"name"}}
	f.Fuzz(func(t *testing.T, raw string) {
		seen := map[string]bool{}
		for range len(all) + 1 {
			q, err := parseQuery(raw, v)
			if err != nil {
				if p := problem.From(err); p.Status != 400 || p.Detail == "" {
					t.Fatalf("%q is refused with %d %q", raw, p.Status, p.Detail)
				}
				return
			}
			if q.limit == 0 {
				q.limit = 4
			}
			page, _, next := q.selectFrom(slices.Values(all))
			for _, r := range page {
				if key := strings.Join(r.Place(), "/"); seen[key] {
					t.Fatalf("%q lists %s twice", raw, key)
				} else {
					seen[key] = true
				}
			}
			if next == nil {
				return
			}
			_, raw, _ = strings.Cut(q.next("/", next), "?")
		}
		t.Fatalf("%q never ends", raw)
	})
}

// FuzzHeaders reads headers that callers write as they like.
func FuzzHeaders(f *testing.F) {
	for _, text := range []string{"gzip;q=0.5, zstd", "*;q=0", `W/"a", "b"`, "req-1\r\nSet-Cookie: a", "name sha256:00 read+write", "\xff"} {
		f.Add(text)
	}
	f.Fuzz(func(t *testing.T, text string) {
		if id := requestID(text); !utf8.ValidString(id) || strings.ContainsAny(id, "\r\n\"\\ ") {
			t.Errorf("request id %q of %q", id, text)
		}
		if key, _, err := parseKey(text, 0); err == nil && key.scopes == 0 {
			t.Errorf("the key of %q may do nothing", text)
		}
	})
}
