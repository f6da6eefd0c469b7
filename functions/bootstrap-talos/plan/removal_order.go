package plan

import (
	"cmp"
	"slices"
)

// NextToLeave decides which machines of a pool are removed next. Marked machines come first,
// then, while the pool has more machines than wanted, unhealthy ones and then the newest. limit
// is how many may be in removal at the same time, with those that already are. A marked machine
// that works stays until its replacement does: working is the number of other machines that
// work.
func NextToLeave(wanted, limit, working int, present []PoolMachine) []string {
	var rest []PoolMachine
	var leaving []string
	for _, s := range present {
		switch {
		case s.Leaving:
			limit--
		case s.Marked && (s.Unhealthy || working >= wanted):
			leaving = append(leaving, s.name)
		case !s.Marked:
			rest = append(rest, s)
		}
	}
	slices.Sort(leaving)
	slices.SortFunc(rest, func(a, b PoolMachine) int {
		if a.Unhealthy != b.Unhealthy {
			return Pick(a.Unhealthy, -1, 1)
		}
		return cmp.Or(b.created.Compare(a.created), cmp.Compare(b.ordinal, a.ordinal))
	})
	for i := 0; len(rest)-i > wanted; i++ {
		leaving = append(leaving, rest[i].name)
	}
	return leaving[:max(0, min(len(leaving), limit))]
}
