package hypervisortest

import "github.com/vitistack/stack/apis/v1alpha1"

// Site is a hypervisor for the contract: how to reach it, and what exists there.
type Site struct {
	// Provider is a MachineProvider of the site.
	Provider string
	// VMs returns the IDs of the virtual machines that were created for a Machine.
	VMs func(m *v1alpha1.Machine) []string
	// Left returns everything at the site with a Machine's name or UID, in words.
	Left func(m *v1alpha1.Machine) []string
	// Foreign creates virtual machines of another user in the place that a Machine has claimed,
	// or would claim. untouched reports whether they exist unchanged.
	Foreign func(m *v1alpha1.Machine) (untouched func() bool)
	// Destroy destroys the virtual machine of a Machine, which is off, as an administrator of the hypervisor does.
	Destroy func(m *v1alpha1.Machine)
	// CreateRequest is the request that creates the first virtual machine, and OccupiedReason the
	// reason of the condition Ready of a Machine whose place is taken.
	CreateRequest, OccupiedReason string
	// Starts returns how often a Machine's virtual machine has been started.
	Starts func(m *v1alpha1.Machine) int
	// HoldsUserData reports whether the hypervisor stores the first configuration of a Machine's
	// guest.
	HoldsUserData func(m *v1alpha1.Machine) bool
	// FoundUserData returns the user data that the guest found at its last start.
	FoundUserData func(m *v1alpha1.Machine) string
	// Sizes returns the CPUs and the size of the disk root of a virtual machine.
	Sizes func(m *v1alpha1.Machine) (cpus int, root string)
}
