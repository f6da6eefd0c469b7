package main

import (
	"k8s.io/apimachinery/pkg/api/resource"

	"github.com/vitistack/stack/apis/v1alpha1"
)

// seen is the observed state of a virtual machine.
type seen struct {
	// phase is Creating, Running or Stopped.
	phase v1alpha1.MachinePhase
	// reason and message say why the Machine is not Ready. Both are empty if it is.
	reason, message string
	// failed is whether the reason is a failure that waiting does not resolve.
	failed bool
	// restart says which change of the spec takes effect at the next restart. It is empty if
	// all have taken effect.
	restart string
	// silent is whether changes of the virtual machine cause no event, so that every resync
	// has to observe it.
	silent bool
	// providerID identifies the virtual machine among all hypervisors.
	providerID      string
	vmName, vmiName string
	nodeName        string
	// reported are the addresses that the guest reports, sorted, without link-local ones.
	reported []string
	// storage says what the disks wait for. It is empty if all are bound.
	storage string
	// restartToken is the spec.restartToken that has been served.
	restartToken string
	// task is what the hypervisor works on, or an ID that is claimed there. No event follows its
	// end, so the delivery is repeated until there is none. The next call finds it in
	// m.Status.Task.
	task *v1alpha1.ProviderTask
	// handover is what was done with the machine configuration of a node.
	handover handover
	// retried is whether an attempt has failed and another one was started. It counts as a
	// failure.
	retried bool
}

// health is the observed state of a hypervisor.
type health struct {
	version string
	nodes   []v1alpha1.ProviderNode
	// memoryAvailable is the memory that new machines can have. Nil stands for the memory that
	// the nodes do not use.
	memoryAvailable *resource.Quantity
	// spoofing is the condition SpoofProtection. Nil leaves it out.
	spoofing *finding
	// missing are the privileges that the user lacks. Nil stands for a hypervisor without a
	// check of privileges.
	missing []string
}

// finding is a condition as a hypervisor reports it: its status, its reason in CamelCase, and
// a message that says what to change.
type finding struct {
	ok              bool
	reason, message string
}

// unnamedTask is the ID of a task without a known ID.
const unnamedTask = "none"

// localID returns the providerID of a virtual machine in the cluster of the function.
func localID(namespace, name string) string { return "kubevirt://" + namespace + "/" + name }
