package plan

import (
	"cmp"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/vitistack/stack/apis/v1alpha1"
)

func NamePrefix(cluster, pool string) string { return cluster + "-" + pool + "-" }

func assumeHealthy(string) bool { return true }

// PoolMachine is a machine that a pool has, as far as it matters for who stays.
type PoolMachine struct {
	name string
	// ordinal is what the name ends in.
	ordinal int
	created time.Time
	// leaving has been told to go, Marked is to go because somebody said so, and
	// Unhealthy is no working node.
	Leaving, Marked, Unhealthy bool
}

// machineNames decides which machines a pool of so many has: those that are there and
// stay, in the order of their numbers, then those that are being added, and then new
// ones with the lowest numbers that nobody has. It may return more than wanted: who
// of them goes is decided by surplus, once their nodes are known.
func machineNames(prefix string, wanted int, present []PoolMachine, adding []string) []string {
	slices.SortFunc(present, func(a, b PoolMachine) int { return cmp.Compare(a.ordinal, b.ordinal) })
	taken := map[int]bool{}
	var names []string
	for _, s := range present {
		taken[s.ordinal] = true
		if !s.Leaving && !s.Marked {
			names = append(names, s.name)
		}
	}
	for _, name := range adding {
		number, ok := ordinalOf(name, prefix)
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

// PoolMachines are the machines of a pool, whose names begin with prefix.
func PoolMachines(machines map[string]*v1alpha1.Machine, pool, prefix string, healthy func(name string) bool) []PoolMachine {
	var found []PoolMachine
	for name, m := range machines {
		number, ok := ordinalOf(name, prefix)
		if !ok || PoolOf(m) != pool {
			continue
		}
		found = append(found, PoolMachine{
			name: name, ordinal: number, created: m.CreationTimestamp.Time,
			Leaving: IsLeaving(m), Marked: m.Annotations[v1alpha1.AnnotationRemove] == "true", Unhealthy: !healthy(name),
		})
	}
	return found
}

// ordinalOf is what the name of a machine ends in, after the prefix of its pool.
func ordinalOf(name, prefix string) (int, bool) {
	tail, ok := strings.CutPrefix(name, prefix)
	number, err := strconv.Atoi(tail)
	return number, ok && err == nil
}

// OrphanedNodes are the nodes whose names are those of machines of the cluster, but whose
// machines are gone. Nodes that somebody else has added bear other names.
func OrphanedNodes(cluster string, nodes []Node, exists func(name string) bool) []string {
	var found []string
	for _, n := range nodes {
		if _, _, ours := ParseMachineName(cluster, n.Name); ours && !exists(n.Name) {
			found = append(found, n.Name)
		}
	}
	slices.Sort(found)
	return found
}

// ParseMachineName returns the pool and the ordinal in the name of a machine, which is the
// cluster's name, the pool's and the ordinal, joined by dashes. ok is false for other names.
func ParseMachineName(cluster, name string) (pool string, ordinal int, ok bool) {
	tail, ok := strings.CutPrefix(name, cluster+"-")
	i := strings.LastIndex(tail, "-")
	if !ok || i < 0 {
		return "", 0, false
	}
	ordinal, err := strconv.Atoi(tail[i+1:])
	return tail[:i], ordinal, err == nil
}
