package plan

import (
	"cmp"
	"slices"
)

// NextToLeave decides which machines of a pool are to go next: those that somebody
// named, then of the rest, while they are more than wanted, the unhealthy before
// the youngest. at is how many may leave at the same time, with those that
// already do. Somebody named who still works waits for who takes the place:
// settled is how many others work.
func NextToLeave(wanted, at, settled int, present []PoolMachine) []string {
	var rest []PoolMachine
	var going []string
	for _, s := range present {
		switch {
		case s.Leaving:
			at--
		case s.Marked && (s.Unhealthy || settled >= wanted):
			going = append(going, s.name)
		case !s.Marked:
			rest = append(rest, s)
		}
	}
	slices.Sort(going)
	slices.SortFunc(rest, func(a, b PoolMachine) int {
		if a.Unhealthy != b.Unhealthy {
			return Pick(a.Unhealthy, -1, 1)
		}
		return cmp.Or(b.created.Compare(a.created), cmp.Compare(b.ordinal, a.ordinal))
	})
	for i := 0; len(rest)-i > wanted; i++ {
		going = append(going, rest[i].name)
	}
	return going[:max(0, min(len(going), at))]
}
