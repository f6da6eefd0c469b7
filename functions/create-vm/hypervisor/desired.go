package hypervisor

import (
	"net/netip"

	"k8s.io/apimachinery/pkg/api/resource"

	"github.com/vitistack/stack/apis/v1alpha1"
)

// Desired is a machine in the terms of every hypervisor.
type Desired struct {
	Size
	NICs     []NIC
	UserData string
	// NetworkData is a network configuration of version 1 or 2, for the guest.
	NetworkData string
	// SecretUserData is whether the user data comes out of a Secret, and so has to stay
	// in one.
	SecretUserData bool
	// Handover is what is done with the machine configuration of a node. To give it, it
	// is the user data.
	Handover Handover
	Defaults v1alpha1.ProviderDefaults
}

// Size is a machine's processors, memory and disks.
type Size struct {
	Cores, Threads, Sockets int32
	Memory                  resource.Quantity
	Disks                   []Disk
}

// Disk is a disk of a machine.
type Disk struct {
	Name         string
	Size         resource.Quantity
	StorageClass string
	AccessMode   v1alpha1.DiskAccessMode
	VolumeMode   v1alpha1.DiskVolumeMode
}

// DefaultClass is the storage class that stands for whatever the default is.
const DefaultClass = "default"

// NIC is a network interface of a machine with its addresses from layer 2.
type NIC struct {
	Name, MAC string
	Model     v1alpha1.NICModel
	// Network is the NetworkNamespace, vlan its VLAN with 0 meaning untagged.
	Network string
	VLAN    int32
	Bridge  string
	MTU     int32
	// Addresses have the length of the prefix that they are in.
	Addresses []netip.Prefix
	Gateways  []netip.Addr
	// Secondary is whether another interface has the machine's default route.
	Secondary bool
	DNS       []string
	// Static is whether the guest has to be told its addresses.
	Static bool
}

// Handover is what a hypervisor does with the machine configuration of a node.
type Handover string

const (
	// HandoverNone leaves everything as it is.
	HandoverNone Handover = ""
	// HandoverGive has the virtual machine find the configuration at its next start.
	HandoverGive Handover = "Give"
	// HandoverTake takes the configuration, and the keys in it, away from the hypervisor.
	HandoverTake Handover = "Take"
)

// EmptyUserData is a user-data file that configures nothing. KubeVirt writes an empty
// file where there is network data alone; Talos takes that for a machine configuration
// which it cannot read, and ignores a file with this first line.
const EmptyUserData = "#cloud-config\n"
