package main

import (
	"context"
	"errors"

	"k8s.io/apimachinery/pkg/api/resource"

	"github.com/vitistack/stack/apis/v1alpha1"
)

// hypervisor creates, changes and removes virtual machines. kubevirt and proxmox implement it.
// Whatever it creates bears the Machine's UID and is looked up before it is created, so that
// every method can be called again at any time, also by two callers at once.
type hypervisor interface {
	// Ensure makes the virtual machine if it does not exist, and otherwise brings it
	// a step towards what is wanted. It returns what it saw, without waiting for
	// what it began. It returns a fault where somebody has to change something; any
	// other error may be mended by another call.
	Ensure(ctx context.Context, m *v1alpha1.Machine, want wanted) (seen, error)
	// Remove takes away everything that was made for the machine, in order: the
	// virtual machine, then its disks. It returns what it still waits for, and
	// nothing once all is gone. It leaves alone what was made for another UID.
	// Where no event tells that what it waits for is gone, it writes what goes on
	// into m.Status.Task.
	Remove(ctx context.Context, m *v1alpha1.Machine) (waitsFor string, err error)
	// Inspect looks at the hypervisor itself.
	Inspect(ctx context.Context) (health, error)
}

// observer reads a virtual machine that exists.
type observer interface {
	// Observe returns what Ensure would see, without changing anything, or errGone
	// where somebody has deleted the virtual machine.
	Observe(ctx context.Context, m *v1alpha1.Machine) (seen, error)
}

// errGone says that a virtual machine that was created does not exist any more.
var errGone = errors.New("the virtual machine is gone")

// wanted is a machine in the terms of every hypervisor.
type wanted struct {
	size
	nics     []nic
	userData string
	// networkData is a network configuration of version 1 or 2, for the guest.
	networkData string
	// secretData is whether the user data comes out of a Secret, and so has to stay
	// in one.
	secretData bool
	// handover is what is done with the machine configuration of a node. To give it, it
	// is the user data.
	handover handover
	defaults v1alpha1.ProviderDefaults
}

// seen is the state of a virtual machine.
type seen struct {
	// phase is Creating, Running, Stopped or Failed.
	phase v1alpha1.MachinePhase
	// reason and message say why the machine is not Ready. Both are empty where it is.
	reason, message string
	// failed is whether the reason is a failure, which waiting does not mend.
	failed bool
	// restart says what of the spec waits for the next restart, and is empty where
	// the machine has all of it.
	restart string
	// silent is whether the hypervisor tells nobody when something changes, so that
	// the machine has to be looked at from time to time.
	silent          bool
	providerID      string
	vmName, vmiName string
	nodeName        string
	// reported are the addresses that the guest says it has, sorted, without those
	// that every link has.
	reported []string
	// storage says what the disks wait for, and is empty once all are there.
	storage      string
	restartToken string
	// task is what goes on at the hypervisor, or is claimed there, and no event
	// tells the end of: the machine is looked at again until there is none. It is
	// in m.Status.Task at the next call.
	task *v1alpha1.ProviderTask
	// handover is what has been done with the machine configuration of a node.
	handover handover
	// retried is whether an attempt has failed and another one has been begun. It counts
	// as a failure.
	retried bool
}

// health is the state of a hypervisor.
type health struct {
	version string
	nodes   []v1alpha1.ProviderNode
	// memoryAvailable is what machines may still take. Nil stands for the memory
	// that the hosts do not use.
	memoryAvailable *resource.Quantity
	// spoofing is what is done against machines that send from the MAC addresses of others.
	spoofing spoofing
	// missing are the privileges that the user lacks. Nil stands for a hypervisor whose
	// privileges are not looked up.
	missing []string
}
