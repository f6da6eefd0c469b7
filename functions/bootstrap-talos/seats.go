package main

import (
	"cmp"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/vitistack/stack/apis/v1alpha1"
)

// seat is a machine that a pool has, as far as it matters for who stays.
type seat struct {
	name string
	// number is what the name ends in.
	number int
	made   time.Time
	// leaving has been told to go, named is to go because somebody said so, and
	// unhealthy is no working node.
	leaving, named, unhealthy bool
}

// seats decides which machines a pool of so many has: those that are there and
// stay, in the order of their numbers, then those that are being added, and then new
// ones with the lowest numbers that nobody has. It may return more than wanted: who
// of them goes is decided by surplus, once their nodes are known.
func seats(prefix string, wanted int, present []seat, adding []string) []string {
	slices.SortFunc(present, func(a, b seat) int { return cmp.Compare(a.number, b.number) })
	taken := map[int]bool{}
	var names []string
	for _, s := range present {
		taken[s.number] = true
		if !s.leaving && !s.named {
			names = append(names, s.name)
		}
	}
	for _, name := range adding {
		number, ok := numberOf(name, prefix)
		if ok && !taken[number] && len(names) < wanted {
			taken[number] = true
			names = append(names, name)
		}
	}
	for i := 0; len(names) < wanted; i++ {
		if !taken[i] {
			names = append(names, fmt.Sprintf("%s%d", prefix, i))
		}
	}
	return names
}

// surplus decides which machines of a pool are to go next: those that somebody
// named, then of the rest, while they are more than wanted, the unhealthy before
// the youngest. at is how many may leave at the same time, with those that
// already do. Somebody named who still works waits for who takes the place:
// settled is how many others work.
func surplus(wanted, at, settled int, present []seat) []string {
	var rest []seat
	var going []string
	for _, s := range present {
		switch {
		case s.leaving:
			at--
		case s.named && (s.unhealthy || settled >= wanted):
			going = append(going, s.name)
		case !s.named:
			rest = append(rest, s)
		}
	}
	slices.Sort(going)
	slices.SortFunc(rest, func(a, b seat) int {
		if a.unhealthy != b.unhealthy {
			return pick(a.unhealthy, -1, 1)
		}
		return cmp.Or(b.made.Compare(a.made), cmp.Compare(b.number, a.number))
	})
	for i := 0; len(rest)-i > wanted; i++ {
		going = append(going, rest[i].name)
	}
	return going[:max(0, min(len(going), at))]
}

// seatsOf are the machines of a pool, whose names begin with prefix.
func seatsOf(machines map[string]*v1alpha1.Machine, pool, prefix string, healthy func(name string) bool) []seat {
	var found []seat
	for name, m := range machines {
		number, ok := numberOf(name, prefix)
		if !ok || poolOf(m) != pool {
			continue
		}
		found = append(found, seat{
			name: name, number: number, made: m.CreationTimestamp.Time,
			leaving: leaving(m), named: m.Annotations[v1alpha1.AnnotationRemove] == "true", unhealthy: !healthy(name),
		})
	}
	return found
}

// numberOf is what the name of a machine ends in, after the prefix of its pool.
func numberOf(name, prefix string) (int, bool) {
	tail, ok := strings.CutPrefix(name, prefix)
	number, err := strconv.Atoi(tail)
	return number, ok && err == nil
}

// poolOf is the pool of a machine, cp for the control plane.
func poolOf(m *v1alpha1.Machine) string {
	if m.Labels[v1alpha1.LabelClusterRole] == v1alpha1.RoleControlPlane {
		return controlPlanePool
	}
	return m.Labels[v1alpha1.LabelWorkerGroup]
}

// leaving tells whether a machine has been told to go.
func leaving(m *v1alpha1.Machine) bool {
	return m.DeletionTimestamp != nil || m.Annotations[v1alpha1.AnnotationRemoving] != ""
}
