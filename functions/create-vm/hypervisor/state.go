package hypervisor

import (
	"k8s.io/apimachinery/pkg/api/resource"

	"github.com/vitistack/stack/apis/v1alpha1"
)

// State is the observed state of a virtual machine.
type State struct {
	// Phase is Creating, Running or Stopped.
	Phase v1alpha1.MachinePhase
	// Reason and message say why the Machine is not Ready. Both are empty if it is.
	Reason, Message string
	// Failed is whether the reason is a failure that waiting does not resolve.
	Failed bool
	// RestartRequired says which change of the spec takes effect at the next restart. It is empty if
	// all have taken effect.
	RestartRequired string
	// Polled is whether changes of the virtual machine cause no event, so that every resync
	// has to observe it.
	Polled bool
	// ProviderID identifies the virtual machine among all hypervisors.
	ProviderID      string
	VMName, VMIName string
	NodeName        string
	// GuestAddresses are the addresses that the guest reports, sorted, without link-local ones.
	GuestAddresses []string
	// StoragePending says what the disks wait for. It is empty if all are bound.
	StoragePending string
	// RestartToken is the spec.restartToken that has been served.
	RestartToken string
	// Task is what the hypervisor works on, or an ID that is claimed there. No event follows its
	// end, so the delivery is repeated until there is none. The next call finds it in
	// m.Status.Task.
	Task *v1alpha1.ProviderTask
	// Handover is what was done with the machine configuration of a node.
	Handover Handover
	// Incomplete is whether a change of the spec waits for the virtual machine, so that the next event has to apply it.
	Incomplete bool
	// Refused is the UserError of a part of the spec that cannot be applied, such as a smaller disk. All
	// other changes have been applied.
	Refused error
	// Retried is whether an attempt has failed and another one was started. It counts as a
	// failure.
	Retried bool
}

// Health is the observed state of a hypervisor.
type Health struct {
	Version string
	Nodes   []v1alpha1.ProviderNode
	// MemoryAvailable is the memory that new machines can have. Nil stands for the memory that
	// the nodes do not use.
	MemoryAvailable *resource.Quantity
	// SpoofProtection is the condition SpoofProtection. Nil leaves it out.
	SpoofProtection *Finding
	// MissingPrivileges are the privileges that the user lacks. Nil stands for a hypervisor without a
	// check of privileges.
	MissingPrivileges []string
}

// Finding is a condition as a hypervisor reports it: its status, its reason in CamelCase, and
// a message that says what to change.
type Finding struct {
	OK              bool
	Reason, Message string
}

// UnnamedTask is the ID of a task without a known ID.
const UnnamedTask = "none"

// LocalID returns the providerID of a virtual machine in the cluster of the function.
func LocalID(namespace, name string) string { return "kubevirt://" + namespace + "/" + name }

// ReasonStopped and MessageStopped are those of a virtual machine that is off because the Machine
// wants it off.
const (
	ReasonStopped  = "Stopped"
	MessageStopped = "the machine is off because spec.powerState is Stopped"
)
