package plan

import (
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
)

func TestNextToLeave(t *testing.T) {
	t.Parallel()
	old, young := time.Unix(1000, 0), time.Unix(2000, 0)
	a, b, c := PoolMachine{name: "a", ordinal: 0, created: old}, PoolMachine{name: "b", ordinal: 1, created: young}, PoolMachine{name: "c", ordinal: 2, created: old}
	with := func(s PoolMachine, change func(*PoolMachine)) PoolMachine {
		change(&s)
		return s
	}
	named := func(s *PoolMachine) { s.Marked = true }
	ill := func(s *PoolMachine) { s.Unhealthy = true }
	gone := func(s *PoolMachine) { s.Leaving = true }
	cases := map[string]struct {
		reason              string
		wanted, at, settled int
		present             []PoolMachine
		want                []string
	}{
		"Enough":      {"nobody goes for nothing", 3, 1, 3, []PoolMachine{a, b, c}, nil},
		"Youngest":    {"the youngest goes first", 2, 1, 3, []PoolMachine{a, b, c}, []string{"b"}},
		"SameAge":     {"of the same age the highest number", 1, 1, 2, []PoolMachine{a, c}, []string{"c"}},
		"Unhealthy":   {"an unhealthy one goes before the youngest", 2, 1, 2, []PoolMachine{with(a, ill), b, c}, []string{"a"}},
		"Named":       {"a named one goes before an unhealthy one", 1, 1, 1, []PoolMachine{with(a, named), with(b, ill), c}, []string{"a"}},
		"NamedWaits":  {"a named one that works waits for its substitute", 2, 1, 1, []PoolMachine{with(a, named), b}, nil},
		"NamedDead":   {"a named one that is dead does not", 2, 1, 1, []PoolMachine{with(with(a, named), ill), b}, []string{"a"}},
		"OneAtOnce":   {"while one leaves no other does", 1, 1, 2, []PoolMachine{with(a, gone), b, c}, nil},
		"SeveralGo":   {"workers may go together", 1, 10, 3, []PoolMachine{a, b, c}, []string{"b", "c"}},
		"PoolRemoved": {"of a pool that is no more everybody goes", 0, 10, 2, []PoolMachine{a, b}, []string{"b", "a"}},
	}
	for name, tc := range cases {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			if diff := cmp.Diff(tc.want, NextToLeave(tc.wanted, tc.at, tc.settled, tc.present), cmp.Transformer("empty", func(s []string) []string { return append([]string{}, s...) })); diff != "" {
				t.Errorf("%s (-want +got):\n%s", tc.reason, diff)
			}
		})
	}
}
