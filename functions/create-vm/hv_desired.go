package main

import (
	"net/netip"

	"k8s.io/apimachinery/pkg/api/resource"

	"github.com/vitistack/stack/apis/v1alpha1"
)

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

// size is a machine's processors, memory and disks.
type size struct {
	cores, threads, sockets int32
	memory                  resource.Quantity
	disks                   []disk
}

// disk is a disk of a machine.
type disk struct {
	name         string
	size         resource.Quantity
	storageClass string
	accessMode   v1alpha1.DiskAccessMode
	volumeMode   v1alpha1.DiskVolumeMode
}

// rootDisk is the disk of every template, which is booted from.
const rootDisk = "root"

// defaultClass is the storage class that stands for whatever the default is.
const defaultClass = "default"

// nic is a network interface of a machine with its addresses from layer 2.
type nic struct {
	name, mac string
	model     v1alpha1.NICModel
	// network is the NetworkNamespace, vlan its VLAN with 0 meaning untagged.
	network string
	vlan    int32
	bridge  string
	mtu     int32
	// addresses have the length of the prefix that they are in.
	addresses []netip.Prefix
	gateways  []netip.Addr
	// secondary is whether another interface has the machine's default route.
	secondary bool
	dns       []string
	// static is whether the guest has to be told its addresses.
	static bool
}

// handover is what a hypervisor does with the machine configuration of a node.
type handover string

const (
	// handoverNone leaves everything as it is.
	handoverNone handover = ""
	// handoverGive has the virtual machine find the configuration at its next start.
	handoverGive handover = "Give"
	// handoverTake takes the configuration, and the keys in it, away from the hypervisor.
	handoverTake handover = "Take"
)

// emptyUserData is a user-data file that configures nothing. KubeVirt writes an empty
// file where there is network data alone; Talos takes that for a machine configuration
// which it cannot read, and ignores a file with this first line.
const emptyUserData = "#cloud-config\n"
