// Package changes says what a change of each field of a spec does to an object that is Ready. The tests
// in tests/e2e/changes make each of these changes, and docs/changes.md shows them.
package changes

import "slices"

// Outcome is what a change of a field leads to. There is no other.
type Outcome string

// Outcomes of a change.
const (
	// Applied changes what the field is about, while everything keeps running.
	Applied Outcome = "applied"
	// AtRestart is applied at the next start of the machine. A condition says so until then.
	AtRestart Outcome = "at restart"
	// Refused is a change that the API server refuses, with a message that says what to write.
	Refused Outcome = "refused"
	// InitialOnly is refused, because the field has an effect at the creation only.
	InitialOnly Outcome = "initial only"
)

// IsRefusal reports whether the API server refuses the change.
func (o Outcome) IsRefusal() bool { return o == Refused || o == InitialOnly }

// Effect is what a change of one field does.
type Effect struct {
	// Field is a path in the spec, with [] after a list of objects.
	Field string
	// On says which objects it is about, where a field has more than one effect: a hypervisor, a provider
	// of networks, or the object of the tests.
	On      string
	Outcome Outcome
	// Text says what happens and why. For a refusal it is a part of the message.
	Text string
}

// Kinds are the kinds with effects, in alphabetical order.
var Kinds = []string{
	"ClusterTemplate", "EtcdBackup", "IPAllocation", "KubernetesCluster", "Machine", "MachineClass", "MachineProvider", "NetworkConfiguration", "NetworkNamespace", "NetworkPool",
}

// Of returns the effects of a kind, in the order of their fields. It is empty for an unknown kind.
func Of(kind string) []Effect {
	switch kind {
	case "ClusterTemplate":
		return clusterTemplateEffects
	case "EtcdBackup":
		return etcdBackupEffects
	case "IPAllocation":
		return ipAllocationEffects
	case "KubernetesCluster":
		return kubernetesClusterEffects
	case "Machine":
		return machineEffects
	case "MachineClass":
		return machineClassEffects
	case "MachineProvider":
		return machineProviderEffects
	case "NetworkConfiguration":
		return networkConfigurationEffects
	case "NetworkNamespace":
		return networkNamespaceEffects
	case "NetworkPool":
		return networkPoolEffects
	}
	return nil
}

// Find returns the effect of a field on an object: the one about on, and otherwise the first that is no
// refusal, or the first. It returns false for an unknown field.
func Find(kind, field, on string) (Effect, bool) {
	var all []Effect
	for _, e := range Of(kind) {
		if e.Field == field {
			all = append(all, e)
		}
	}
	for _, fits := range []func(Effect) bool{
		func(e Effect) bool { return e.On == on },
		func(e Effect) bool { return !e.Outcome.IsRefusal() },
		func(Effect) bool { return true },
	} {
		if i := slices.IndexFunc(all, fits); i >= 0 {
			return all[i], true
		}
	}
	return Effect{}, false
}
