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

// NamePrefix returns what the names of a pool's machines begin with. An ordinal follows.
func NamePrefix(cluster, pool string) string { return cluster + "-" + pool + "-" }

// assumeHealthy is for decisions that do not depend on the health of machines.
func assumeHealthy(string) bool { return true }

// PoolMachine is an existing machine of a pool.
type PoolMachine struct {
	name string
	// ordinal is the number at the end of the name.
	ordinal int
	created time.Time
	// Leaving is whether its removal has begun, Marked whether it is annotated with
	// vitistack.io/remove=true, and Unhealthy whether it is no working node.
	Leaving, Marked, Unhealthy bool
	// Protected is whether spec.protected is true, so that it cannot be deleted.
	Protected bool
	// Replace is why the cluster replaces it, empty if it does not.
	Replace v1alpha1.ReplaceReason
}

// Name returns the name of the machine.
func (s PoolMachine) Name() string { return s.name }

// IsReplaced reports whether another machine takes the place of this one, because a user has
// marked it or the cluster replaces it. A protected machine stays, and needs no replacement.
func (s PoolMachine) IsReplaced() bool { return (s.Marked || s.Replace != "") && !s.Protected }

// isOutdated reports whether the machine is replaced because its pool has changed.
func (s PoolMachine) isOutdated() bool {
	return s.IsReplaced() && s.Replace == v1alpha1.ReplaceOutdated
}

// machineNames returns the names of the machines of a pool: existing machines that stay, ordered
// by ordinal, then the names in adding, which an earlier delivery has recorded, and then new ones
// with the lowest free ordinals. There are more than wanted while the pool is scaled down:
// SelectMachinesToRemove decides which of them leave. There are fewer while more outdated machines
// are replaced than the pool may have above wanted.
func machineNames(prefix string, wanted int, present []PoolMachine, adding []string, rollout RolloutLimits) []string {
	slices.SortFunc(present, func(a, b PoolMachine) int { return cmp.Compare(a.ordinal, b.ordinal) })
	taken := map[int]bool{}
	var names []string
	outdated := 0
	for _, s := range present {
		taken[s.ordinal] = true
		if s.isOutdated() {
			outdated++
		}
		if !s.Leaving && !s.IsReplaced() {
			names = append(names, s.name)
		}
	}
	wanted -= max(0, outdated-rollout.MaxSurge)
	for _, name := range adding {
		ordinal, ok := ordinalOf(name, prefix)
		if ok && !taken[ordinal] && len(names) < wanted {
			taken[ordinal] = true
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

// PoolMachines returns the existing machines of a pool. Names that do not begin with prefix, as of machines that the cluster has adopted from the
// talos-operator (shop-x1-wrk0), have the number at their end as ordinal. isHealthy reports whether a machine is a working node.
func PoolMachines(machines map[string]*v1alpha1.Machine, pool, prefix string, isHealthy func(name string) bool) []PoolMachine {
	var found []PoolMachine
	for name, m := range machines {
		if PoolOf(m) != pool {
			continue
		}
		ordinal, ok := ordinalOf(name, prefix)
		if !ok {
			ordinal, _ = strconv.Atoi(name[len(strings.TrimRight(name, "0123456789")):]) // 0 without a number
		}
		found = append(found, PoolMachine{
			name: name, ordinal: ordinal, created: m.CreationTimestamp.Time,
			Leaving: IsLeaving(m), Marked: m.Annotations[v1alpha1.AnnotationRemove] == "true", Unhealthy: !isHealthy(name), Protected: m.Spec.Protected,
			Replace: v1alpha1.ReplaceReason(m.Annotations[v1alpha1.AnnotationReplace]),
		})
	}
	return found
}

// ordinalOf returns the number that follows the prefix of the pool in the name of a machine.
func ordinalOf(name, prefix string) (int, bool) {
	tail, ok := strings.CutPrefix(name, prefix)
	ordinal, err := strconv.Atoi(tail)
	return ordinal, ok && err == nil
}

// OrphanedNodes returns the Nodes named like machines of the cluster whose Machine does not
// exist, also machines that it has adopted from the talos-operator. Nodes that users have added have other names.
func OrphanedNodes(kc *v1alpha1.KubernetesCluster, nodes []Node, exists func(name string) bool) []Node {
	var found []Node
	for _, n := range nodes {
		if _, _, ours := ParseMachineName(kc.Name, n.Name); (ours || isOperatorName(ClusterID(kc), n.Name)) && !exists(n.Name) {
			found = append(found, n)
		}
	}
	slices.SortFunc(found, func(a, b Node) int { return strings.Compare(a.Name, b.Name) })
	return found
}

// isOperatorName reports whether a name is one that the talos-operator gives to the machines of a cluster: the ID of the cluster, a
// dash, ctp or wrk, and a number.
func isOperatorName(clusterID, name string) bool {
	for _, role := range []string{"-ctp", "-wrk"} {
		if _, ok := ordinalOf(name, clusterID+role); ok {
			return true
		}
	}
	return false
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
