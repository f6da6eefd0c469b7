package plan

import (
	"cmp"
	"slices"

	"github.com/vitistack/stack/apis/v1alpha1"
)

// maxConcurrentRemovals is the number of workers of a pool that are removed at the same time.
const maxConcurrentRemovals = 10

// RemovalLimit returns how many machines of a pool are removed at the same time. Control planes leave
// etcd one after the other.
func RemovalLimit(pool string) int {
	if pool == v1alpha1.ControlPlanePool {
		return 1
	}
	return maxConcurrentRemovals
}

// SelectMachinesToRemove decides which machines of a pool are removed next. Marked machines come first,
// then, while the pool has more machines than wanted, unhealthy ones and then the newest. limit
// is how many may be in removal at the same time, including earlier removals. A healthy
// marked machine is removed only when its replacement is healthy: working is the number of other
// healthy machines. For an outdated one, working may be up to maxUnavailable below wanted. Protected machines come
// last and stay: protected has the names of the machines that would be removed without their protection.
func SelectMachinesToRemove(wanted, limit, working, maxUnavailable int, present []PoolMachine) (leaving, protected []string) {
	var rest []PoolMachine
	for _, s := range present {
		needed := wanted
		if s.isOutdated() {
			needed -= maxUnavailable
		}
		switch {
		case s.Leaving:
			limit--
		case s.IsReplaced() && (s.Unhealthy || working >= needed):
			leaving = append(leaving, s.name)
		case !s.IsReplaced():
			rest = append(rest, s)
		}
	}
	slices.Sort(leaving)
	slices.SortFunc(rest, compareForRemoval)
	for i, s := range rest {
		excess := len(rest)-i > wanted
		switch {
		case s.Protected && (excess || s.Marked):
			protected = append(protected, s.name)
		case excess:
			leaving = append(leaving, s.name)
		}
	}
	slices.Sort(protected)
	return leaving[:max(0, min(len(leaving), limit))], protected
}

// compareForRemoval orders the machines of a pool by which is removed first.
func compareForRemoval(a, b PoolMachine) int {
	return cmp.Or(CompareBool(a.Protected, b.Protected), CompareBool(b.Unhealthy, a.Unhealthy), b.created.Compare(a.created), cmp.Compare(b.ordinal, a.ordinal))
}
