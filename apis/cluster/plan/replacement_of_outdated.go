package plan

import (
	"cmp"
	"fmt"
	"maps"
	"slices"
	"strings"

	"github.com/vitistack/stack/apis/v1alpha1"
)

// RolloutLimits bound how many outdated machines of a pool are replaced at the same time.
type RolloutLimits struct {
	// MaxSurge is how many machines the pool may have above its replicas meanwhile, and
	// MaxUnavailable how many it may miss.
	MaxSurge, MaxUnavailable int
}

// limitsOf returns the limits of a pool, with their defaults. The control plane has none, and is
// replaced one machine after the other, each after its replacement is Ready.
func limitsOf(r *v1alpha1.Rollout) RolloutLimits {
	limits := RolloutLimits{MaxSurge: 1}
	if r == nil {
		return limits
	}
	if r.MaxSurge != nil {
		limits.MaxSurge = int(*r.MaxSurge)
	}
	limits.MaxUnavailable = int(r.MaxUnavailable)
	return limits
}

// DifferenceFromPool returns how the template or the provider of a Machine differs from those of
// its pool, or an empty string. A Machine that a user has resized differs only from another
// template than the one it was created with.
func DifferenceFromPool(m *v1alpha1.Machine, g Group) string {
	var differences []string
	if created := m.Labels[v1alpha1.LabelMachineTemplate]; created != g.Properties.Template && m.Spec.Template != g.Properties.Template {
		differences = append(differences, fmt.Sprintf("template %s instead of %s", created, g.Properties.Template))
	}
	if differsInProvider(m, g) {
		has, wants := providerName(m.Spec.ProviderRef), providerName(g.Properties.ProviderRef)
		differences = append(differences, fmt.Sprintf("provider %s instead of %s", cmp.Or(m.Status.Provider, has), cmp.Or(wants, "the default")))
	}
	return strings.Join(differences, ", ")
}

func differsInProvider(m *v1alpha1.Machine, g Group) bool {
	has, wants := providerName(m.Spec.ProviderRef), providerName(g.Properties.ProviderRef)
	return has != wants && (wants == "" || m.Status.Provider != wants)
}

func providerName(ref *v1alpha1.ProviderReference) string {
	if ref == nil {
		return ""
	}
	return ref.Name
}

// Outdated has the Machines that differ from their pools, by name, and how they do.
type Outdated struct {
	// InPlace are the Machines that get the template of their pool in place, and Replaced the Machines
	// that are replaced.
	InPlace, Replaced map[string]string
}

// IsEmpty reports whether every Machine is as its pool says.
func (o Outdated) IsEmpty() bool { return len(o.InPlace)+len(o.Replaced) == 0 }

// Has reports whether a Machine differs from its pool.
func (o Outdated) Has(name string) bool { return o.InPlace[name]+o.Replaced[name] != "" }

// OutdatedMachines returns how Machines differ from their pools, and what happens to them. Machines of
// a pool that is not in the spec, and Machines in removal, are left out. classes are the
// MachineClasses that exist: see NeedsClasses.
func (p Plan) OutdatedMachines(machines map[string]*v1alpha1.Machine, classes []v1alpha1.MachineClass) Outdated {
	outdated := Outdated{InPlace: map[string]string{}, Replaced: map[string]string{}}
	for name, m := range machines {
		g, ok := p.groupOf(m)
		if !ok || IsLeaving(m) {
			continue
		}
		difference, patches := DifferenceFromPool(m, g), DifferenceFromPatches(m, g)
		switch {
		case difference+patches == "":
		case patches != "":
			outdated.Replaced[name] = strings.Trim(difference+", "+patches, ", ")
		case !g.InPlace:
			outdated.Replaced[name] = difference
		default:
			if objection := ResizeObjection(m, g, classes); objection != "" {
				outdated.Replaced[name] = difference + ", which is not possible in place: " + objection
			} else {
				outdated.InPlace[name] = difference
			}
		}
	}
	return outdated
}

// groupOf returns the group of a Machine, and false if that is not in the spec.
func (p Plan) groupOf(m *v1alpha1.Machine) (Group, bool) { return p.findGroup(PoolOf(m)) }

func (p Plan) findGroup(pool string) (Group, bool) {
	at := slices.IndexFunc(p.Groups, func(g Group) bool { return g.Pool == pool })
	if at < 0 {
		return Group{}, false
	}
	return p.Groups[at], true
}

// PropertiesOf returns the properties of the machines of a pool, empty for a pool that is not in the spec.
func (p Plan) PropertiesOf(pool string) v1alpha1.MachineProperties {
	g, _ := p.findGroup(pool)
	return g.Properties
}

// SelectOutdated returns the outdated machines of a pool that are replaced next: unhealthy ones
// first, and then the oldest. Protected machines stay. Together with machines whose replacement or
// removal has begun, there are at most maxSurge + maxUnavailable.
func SelectOutdated(present []PoolMachine, limits RolloutLimits, outdated map[string]string) []string {
	budget := limits.MaxSurge + limits.MaxUnavailable
	var candidates []PoolMachine
	for _, s := range present {
		switch {
		case s.Leaving || s.IsReplaced():
			budget--
		case !s.Protected && outdated[s.name] != "":
			candidates = append(candidates, s)
		}
	}
	slices.SortFunc(candidates, func(a, b PoolMachine) int {
		return cmp.Or(CompareBool(b.Unhealthy, a.Unhealthy), a.created.Compare(b.created), cmp.Compare(a.ordinal, b.ordinal))
	})
	var names []string
	for _, s := range candidates[:max(0, min(len(candidates), budget))] {
		names = append(names, s.name)
	}
	return names
}

// Describe returns how many machines are still to be resized in place and to be replaced, and how the
// first of each differ from their pools.
func (o Outdated) Describe() string {
	var parts []string
	if len(o.InPlace) > 0 {
		parts = append(parts, describeDifferences(o.InPlace, "to be resized in place"))
	}
	if len(o.Replaced) > 0 {
		parts = append(parts, describeDifferences(o.Replaced, "to be replaced"))
	}
	return strings.Join(parts, "; ")
}

// describeDifferences returns what happens to machines, with all names of each difference.
func describeDifferences(differences map[string]string, what string) string {
	names := slices.Sorted(maps.Keys(differences))
	first := names[0]
	message := fmt.Sprintf("%s still %s, the first is %s (%s)", Plural(len(names), "machine"), what, first, differences[first])
	for _, name := range names[1:] {
		if differences[name] != differences[first] {
			message += fmt.Sprintf(", %s (%s)", name, differences[name])
		}
	}
	return message
}
