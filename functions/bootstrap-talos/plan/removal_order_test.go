package plan

import (
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
)

func TestSelectMachinesToRemove(t *testing.T) {
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
	kept := func(s *PoolMachine) { s.Protected = true }
	cases := map[string]struct {
		reason              string
		wanted, at, settled int
		present             []PoolMachine
		want, protected     []string
	}{
		"Enough":          {"nobody goes for nothing", 3, 1, 3, []PoolMachine{a, b, c}, nil, nil},
		"Youngest":        {"the youngest goes first", 2, 1, 3, []PoolMachine{a, b, c}, []string{"b"}, nil},
		"SameAge":         {"of the same age the highest number", 1, 1, 2, []PoolMachine{a, c}, []string{"c"}, nil},
		"Unhealthy":       {"an unhealthy one goes before the youngest", 2, 1, 2, []PoolMachine{with(a, ill), b, c}, []string{"a"}, nil},
		"Named":           {"a named one goes before an unhealthy one", 1, 1, 1, []PoolMachine{with(a, named), with(b, ill), c}, []string{"a"}, nil},
		"NamedWaits":      {"a named one that works waits for its substitute", 2, 1, 1, []PoolMachine{with(a, named), b}, nil, nil},
		"NamedDead":       {"a named one that is dead does not", 2, 1, 1, []PoolMachine{with(with(a, named), ill), b}, []string{"a"}, nil},
		"OneAtOnce":       {"while one leaves no other does", 1, 1, 2, []PoolMachine{with(a, gone), b, c}, nil, nil},
		"SeveralGo":       {"workers may go together", 1, 10, 3, []PoolMachine{a, b, c}, []string{"b", "c"}, nil},
		"PoolRemoved":     {"of a pool that is no more everybody goes", 0, 10, 2, []PoolMachine{a, b}, []string{"b", "a"}, nil},
		"Protected":       {"a protected one goes after all others, whatever they are", 1, 10, 1, []PoolMachine{with(with(b, kept), ill), a, c}, []string{"c", "a"}, nil},
		"ProtectedExcess": {"a protected one that is left over stays", 0, 10, 1, []PoolMachine{with(a, kept), b}, []string{"b"}, []string{"a"}},
		"ProtectedNamed":  {"a protected one that is named stays, and nobody goes in its place", 2, 1, 2, []PoolMachine{with(with(a, named), kept), b}, nil, []string{"a"}},
		"ProtectedLimit":  {"a protected one does not keep others from leaving", 1, 1, 2, []PoolMachine{with(with(a, named), kept), b}, []string{"b"}, []string{"a"}},
		"ProtectedGoes":   {"what has begun is counted, also while it is protected", 0, 1, 0, []PoolMachine{with(with(a, gone), kept), b}, nil, nil},
	}
	for name, tc := range cases {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			leaving, protected := SelectMachinesToRemove(tc.wanted, tc.at, tc.settled, tc.present)
			empty := cmp.Transformer("empty", func(s []string) []string { return append([]string{}, s...) })
			if diff := cmp.Diff([2][]string{tc.want, tc.protected}, [2][]string{leaving, protected}, empty); diff != "" {
				t.Errorf("%s (-want +got of those that leave and those that are protected):\n%s", tc.reason, diff)
			}
		})
	}
}
