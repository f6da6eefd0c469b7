package listing

import (
	"slices"
	"strconv"
	"strings"
	"testing"

	"github.com/vitistack/stack/gateway/internal/problem"
)

// listed is an entry of a list in the fuzz tests.
type listed int

func (l listed) Attribute(name string) string { return name + strconv.Itoa(int(l)%3) }
func (l listed) Mentions(text string) bool    { return strings.Contains(strconv.Itoa(int(l)), text) }
func (l listed) Place() []string              { return []string{"team", strconv.Itoa(int(l))} }
func (l listed) Listed() []byte               { return []byte(`{"name":"` + strconv.Itoa(int(l)) + `"}`) }

// FuzzQuery parses any query. A valid query lists each entry once over all pages, whatever its cursor contains.
func FuzzQuery(f *testing.F) {
	for _, raw := range []string{
		"", "limit=2&sort=-status,name", "continue=eyJtIjoiIiwicCI6WyJhIl19&limit=1", "q=1&fields=name", "status=status1,status2", "status!=status1", "name>=name1&name<=name2", "limit=1001", "%zz",
		"continue=" + (&cursor{Mark: "0", Place: []string{"\x00"}}).String(),
	} {
		f.Add(raw)
	}
	var all []Entry
	for i := range 9 {
		all = append(all, listed(i))
	}
	v := Vocabulary{Attributes: []string{"name", "status"}, Fields: []string{"name"}, Compare: func(_, a, b string) int { return strings.Compare(a, b) }}
	f.Fuzz(func(t *testing.T, raw string) {
		seen := map[string]bool{}
		for range len(all) + 1 {
			q, err := Parse(raw, v, 4)
			if err != nil {
				if p := problem.From(err); p.Status != 400 || p.Detail == "" {
					t.Fatalf("%q is rejected with %d %q", raw, p.Status, p.Detail)
				}
				return
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
			_, raw, _ = strings.Cut(q.NextPath("/", Page{next: next}), "?")
		}
		t.Fatalf("%q never ends", raw)
	})
}
