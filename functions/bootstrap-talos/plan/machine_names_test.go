package plan

import (
	"testing"

	"github.com/google/go-cmp/cmp"
)

func TestMachineNames(t *testing.T) {
	t.Parallel()
	cases := map[string]struct {
		reason  string
		wanted  int
		present []PoolMachine
		adding  []string
		want    []string
	}{
		"New":       {"numbers count from zero", 2, nil, nil, []string{"p-0", "p-1"}},
		"Grows":     {"who is there stays", 3, []PoolMachine{{name: "p-0", ordinal: 0}}, nil, []string{"p-0", "p-1", "p-2"}},
		"Gap":       {"the lowest free number is taken first", 3, []PoolMachine{{name: "p-1", ordinal: 1}, {name: "p-2", ordinal: 2}}, nil, []string{"p-1", "p-2", "p-0"}},
		"Order":     {"ten comes after two", 2, []PoolMachine{{name: "p-10", ordinal: 10}, {name: "p-2", ordinal: 2}}, nil, []string{"p-2", "p-10"}},
		"Shrinks":   {"who goes is decided later, with the nodes known", 1, []PoolMachine{{name: "p-0"}, {name: "p-1", ordinal: 1}}, nil, []string{"p-0", "p-1"}},
		"Leaving":   {"the name of one that leaves is not free yet", 1, []PoolMachine{{name: "p-0", Leaving: true}}, nil, []string{"p-1"}},
		"Named":     {"one that is to go gets a substitute", 2, []PoolMachine{{name: "p-0", Marked: true}, {name: "p-1", ordinal: 1}}, nil, []string{"p-1", "p-2"}},
		"Protected": {"a protected one that is to go stays, and gets no substitute", 2, []PoolMachine{{name: "p-0", Marked: true, Protected: true}, {name: "p-1", ordinal: 1}}, nil, []string{"p-0", "p-1"}},
		"Adding":    {"somebody else has begun to add it, and saw p-0 leave", 2, []PoolMachine{{name: "p-1", ordinal: 1}}, []string{"p-2"}, []string{"p-1", "p-2"}},
		"Added":     {"it is there by now", 2, []PoolMachine{{name: "p-1", ordinal: 1}, {name: "p-2", ordinal: 2}}, []string{"p-2"}, []string{"p-1", "p-2"}},
		"TooMany":   {"fewer are wanted by now", 1, []PoolMachine{{name: "p-1", ordinal: 1}}, []string{"p-2"}, []string{"p-1"}},
		"Others":    {"those of other pools are not counted", 1, nil, []string{"q-0", "p-x-0"}, []string{"p-0"}},
		"None":      {"a pool may be empty", 0, nil, nil, nil},
	}
	for name, tc := range cases {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			if diff := cmp.Diff(tc.want, machineNames("p-", tc.wanted, tc.present, tc.adding)); diff != "" {
				t.Errorf("%s (-want +got):\n%s", tc.reason, diff)
			}
		})
	}
}

func TestOrphanedNodes(t *testing.T) {
	t.Parallel()
	nodes := []Node{{Name: "shop-pool-1"}, {Name: "shop-cp-0"}, {Name: "bare-metal-1"}, {Name: "shop-front-door"}, {Name: "shop-pool-9"}}
	got := OrphanedNodes("shop", nodes, func(name string) bool { return name == "shop-cp-0" })
	if diff := cmp.Diff([]string{"shop-pool-1", "shop-pool-9"}, got); diff != "" {
		t.Errorf("only nodes with the names of machines go (-want +got):\n%s", diff)
	}
}
