package hypervisor

import (
	"net/netip"

	"github.com/vitistack/stack/apis/machine/plan"
	"github.com/vitistack/stack/apis/v1alpha1"
)

// Desired is the desired state of a virtual machine.
type Desired struct {
	Size
	NICs     []NIC
	UserData string
	// NetworkData is a network configuration of version 1 or 2, for the guest.
	NetworkData string
	// SecretUserData is whether the user data comes from a Secret, so that it has to stay in one.
	SecretUserData bool
	// UserDataError is why the user data of a virtual machine that existed cannot be read. A hypervisor returns it where it would
	// use the user data, and observes and changes a virtual machine that exists without it.
	UserDataError error
	// Handover is what to do with the machine configuration of a node, which is the user data.
	Handover Handover
	Defaults v1alpha1.ProviderDefaults
}

// Size is a machine's processors, memory and disks.
type Size = plan.Size

// Disk is a disk of a machine.
type Disk = plan.Disk

// DefaultClass as storage class means the default of the MachineProvider, or else of the hypervisor.
const DefaultClass = plan.DefaultClass

// NIC is a network interface of a machine with its addresses from layer 2.
type NIC struct {
	Name, MAC string
	Model     v1alpha1.NICModel
	// Network is the NetworkNamespace, and VLAN its VLAN; 0 is untagged.
	Network string
	VLAN    int32
	Bridge  string
	MTU     int32
	// Addresses have the length of the prefix of their network.
	Addresses []netip.Prefix
	Gateways  []netip.Addr
	// Secondary is whether another interface has the machine's default route.
	Secondary bool
	DNS       []string
	// Static is whether the guest has to configure its addresses itself, because no DHCP server does.
	Static bool
}

// Handover is what a hypervisor does with the machine configuration of a node.
type Handover string

const (
	// HandoverNone changes nothing.
	HandoverNone Handover = ""
	// HandoverProvide provides the configuration to the virtual machine at its next start.
	HandoverProvide Handover = "Give"
	// HandoverRemove deletes the configuration, and the keys in it, from the hypervisor.
	HandoverRemove Handover = "Take"
)

// EmptyUserData is a user-data file that configures nothing. KubeVirt writes an empty file if there is
// only network data. Talos reads an empty file as an invalid machine configuration, and ignores a file
// with this first line.
const EmptyUserData = "#cloud-config\n"
