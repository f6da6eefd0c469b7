package inventory

import (
	"cmp"
	"encoding/json"

	"github.com/vitistack/stack/apis/backend"
	"github.com/vitistack/stack/apis/v1alpha1"
)

// Operators are the names of all operators, in the order in which they are listed.
var Operators = namesOf(backend.Operators())

// OrphanBackends are the backends that functions check for orphans, in the order in which they are listed: hypervisors, other
// backends with a report of their own, and Leases.
var OrphanBackends = append(append(namesOf(backend.In(backend.LayerMachine)), orphanReports()...), v1alpha1.OrphansInLeases)

func namesOf(kinds []backend.Kind) (names []string) {
	for _, k := range kinds {
		names = append(names, k.Name)
	}
	return names
}

func orphanReports() (keys []string) {
	for _, k := range backend.All() {
		if k.OrphanReport != "" {
			keys = append(keys, k.OrphanReport)
		}
	}
	return keys
}

// Uses are the names of the operators that a cluster depends on. In JSON it has a field for each operator.
type Uses map[string]bool

// usesKeys are the fields of operators whose name in JSON differs from their name.
var usesKeys = map[string]string{string(v1alpha1.ProviderKubeVirt): "kubeVirt"}

// MarshalJSON implements json.Marshaler.
func (u Uses) MarshalJSON() ([]byte, error) {
	fields := map[string]bool{}
	for _, name := range Operators {
		fields[cmp.Or(usesKeys[name], name)] = u[name]
	}
	return json.Marshal(fields)
}

// Names returns the names of the operators in use.
func (u Uses) Names() []string {
	names := []string{}
	for _, name := range Operators {
		if u[name] {
			names = append(names, name)
		}
	}
	return names
}
