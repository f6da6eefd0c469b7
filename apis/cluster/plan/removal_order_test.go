package plan

import (
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/vitistack/stack/apis/v1alpha1"
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
	outdated := func(s *PoolMachine) { s.Replace = v1alpha1.ReplaceOutdated }
	ill := func(s *PoolMachine) { s.Unhealthy = true }
	gone := func(s *PoolMachine) { s.Leaving = true }
	kept := func(s *PoolMachine) { s.Protected = true }
	cases := map[string]struct {
		reason              string
		wanted, at, working int
		present             []PoolMachine
		want, protected     []string
	}{
		"Enough":            {"a pool of the wanted size loses no machine", 3, 1, 3, []PoolMachine{a, b, c}, nil, nil},
		"Youngest":          {"the newest machine is removed first", 2, 1, 3, []PoolMachine{a, b, c}, []string{"b"}, nil},
		"SameAge":           {"at the same age, the highest ordinal is removed first", 1, 1, 2, []PoolMachine{a, c}, []string{"c"}, nil},
		"Unhealthy":         {"an unhealthy machine is removed before the newest", 2, 1, 2, []PoolMachine{with(a, ill), b, c}, []string{"a"}, nil},
		"Marked":            {"a marked machine is removed before an unhealthy one", 1, 1, 1, []PoolMachine{with(a, named), with(b, ill), c}, []string{"a"}, nil},
		"MarkedWaits":       {"a marked machine that works waits for its replacement", 2, 1, 1, []PoolMachine{with(a, named), b}, nil, nil},
		"Outdated":          {"an outdated machine may leave while maxUnavailable, here 1, are missing", 2, 1, 1, []PoolMachine{with(a, outdated), b}, []string{"a"}, nil},
		"OutdatedWaits":     {"one more missing machine is too many", 3, 1, 1, []PoolMachine{with(a, outdated), b, with(c, ill)}, nil, nil},
		"MarkedDead":        {"a marked machine that is dead does not wait", 2, 1, 1, []PoolMachine{with(with(a, named), ill), b}, []string{"a"}, nil},
		"OneAtOnce":         {"one removal at a time", 1, 1, 2, []PoolMachine{with(a, gone), b, c}, nil, nil},
		"Several":           {"several workers may be removed together", 1, 10, 3, []PoolMachine{a, b, c}, []string{"b", "c"}, nil},
		"PoolRemoved":       {"every machine of a removed pool is removed", 0, 10, 2, []PoolMachine{a, b}, []string{"b", "a"}, nil},
		"Protected":         {"a protected machine is last, whatever the others", 1, 10, 1, []PoolMachine{with(with(b, kept), ill), a, c}, []string{"c", "a"}, nil},
		"ProtectedExcess":   {"a protected machine above the wanted number stays", 0, 10, 1, []PoolMachine{with(a, kept), b}, []string{"b"}, []string{"a"}},
		"ProtectedMarked":   {"a protected machine that is marked stays, and no other is removed in its place", 2, 1, 2, []PoolMachine{with(with(a, named), kept), b}, nil, []string{"a"}},
		"ProtectedLimit":    {"a protected machine does not block the removal of others", 1, 1, 2, []PoolMachine{with(with(a, named), kept), b}, []string{"b"}, []string{"a"}},
		"ProtectedRemoving": {"a started removal counts, even if the machine is protected now", 0, 1, 0, []PoolMachine{with(with(a, gone), kept), b}, nil, nil},
	}
	for name, tc := range cases {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			leaving, protected := SelectMachinesToRemove(tc.wanted, tc.at, tc.working, 1, tc.present)
			empty := cmp.Transformer("empty", func(s []string) []string { return append([]string{}, s...) })
			if diff := cmp.Diff([2][]string{tc.want, tc.protected}, [2][]string{leaving, protected}, empty); diff != "" {
				t.Errorf("%s (-want +got, removed and protected):\n%s", tc.reason, diff)
			}
		})
	}
}
