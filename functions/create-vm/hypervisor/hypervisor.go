// Package hypervisor defines what create-vm needs of a hypervisor: the interface, the desired and
// the observed state of a virtual machine, and how a backend connects.
package hypervisor

import (
	"context"

	"github.com/vitistack/stack/apis/v1alpha1"
)

// Interface creates, changes and removes virtual machines at one hypervisor. Each delivery
// connects again, so an implementation keeps no state between calls. Everything that it creates
// is marked with the Machine's UID and is looked up before it is created, so every method can be called
// again at any time, also by two callers at once.
//
// A method returns a reconcile.UserError if a user or the platform team has to change
// something, and a RetriedUserError if that may also resolve itself. Another call may succeed
// after any other error.
type Interface interface {
	// Ensure creates the virtual machine of a Machine if it does not exist, and otherwise
	// takes at most one step that lasts towards the desired state. It returns the state that
	// it observed and waits for nothing that it started.
	// It writes the names of the disks that exist into m.Status.Disks, also if it returns an error afterwards.
	Ensure(ctx context.Context, m *v1alpha1.Machine, want Desired) (State, error)
	// Remove removes everything that was created for a Machine: the virtual machine, and then
	// its disks. It returns what it waits for, and nothing once everything is gone. It keeps
	// what was created for another UID. If no event follows the end of what it waits for, it
	// writes the task into m.Status.Task.
	Remove(ctx context.Context, m *v1alpha1.Machine) (waitsFor string, err error)
	// Inspect reads the state of the hypervisor itself. It returns a NotInstalledError while
	// the hypervisor is being installed.
	Inspect(ctx context.Context) (Health, error)
}

// Observer is implemented by a hypervisor whose virtual machines are objects of the cluster of
// the function, so that their changes arrive as events.
type Observer interface {
	// Observe returns what Ensure would observe, and changes nothing. It returns ErrGone if
	// the virtual machine does not exist.
	Observe(ctx context.Context, m *v1alpha1.Machine) (State, error)
	// StateShown returns what Observe would return if nothing had changed since an event about a kind, whose object decode
	// decodes, and since the status of the Machine. It sends no request. It is false if the object shows too little, or there is none.
	StateShown(m *v1alpha1.Machine, kind string, decode func(into any) bool) (State, bool)
	// RemoveMachineConfig removes the machine configuration of a node that has it, as Ensure does for
	// HandoverRemove. A second call changes nothing.
	RemoveMachineConfig(ctx context.Context, m *v1alpha1.Machine) error
}

// Identifier is implemented by a hypervisor that can be distinguished from all others, so that nothing is created or deleted on
// another one by mistake.
type Identifier interface {
	// Endpoint returns where the requests go, without credentials. It is empty for the cluster of the function.
	Endpoint() string
	// Identity returns what the hypervisor keeps for its whole life, and does not share with any other, not even
	// with one that is reinstalled under its name. It is empty for a hypervisor that does not identify itself. It sends one request.
	Identity(ctx context.Context) (string, error)
}

// GuestLister is implemented by a hypervisor that can list its virtual machines, so that
// orphans are found.
type GuestLister interface {
	// Guests returns the ID and the name of each virtual machine that the stack created, and
	// the UID of its Machine. It omits virtual machines that are being deleted.
	Guests(ctx context.Context) ([]v1alpha1.Orphan, error)
	// RemovalCommand returns the command with which an administrator removes a virtual machine
	// with an ID from Guests, and says where to run it.
	RemovalCommand(id string) string
}
