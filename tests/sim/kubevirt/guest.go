package kubevirt

import (
	"net/netip"
	"sync"

	"k8s.io/apimachinery/pkg/types"
	virtv1 "kubevirt.io/api/core/v1"
)

// AgentAnnotation with the value "false" on a VirtualMachine or in its template removes the guest
// agent from the guest. Its addresses on networks other than the pod network are then unknown.
const AgentAnnotation = "sim.vitistack.io/guest-agent"

// Guests runs what is inside of the virtual machines. Methods must return soon, so starts and stops
// continue in the background. They are called from several goroutines, but never concurrently for one
// guest.
type Guests interface {
	// PowerOn starts a guest. It is called again for a running guest with the same or newer settings,
	// and for each guest after a restart of the simulator. If it fails, the start of the machine is
	// retried.
	PowerOn(Guest) error
	// PowerOff stops a guest and keeps its disks. A guest that is off or unknown is no error.
	PowerOff(id string) error
	// Destroy removes the disks of a stopped guest. An unknown guest is no error.
	Destroy(id string) error
}

// Guest is a virtual machine from the point of view of its guest.
type Guest struct {
	// ID is the firmware UUID, which a restart does not change, or else the UID of the instance.
	ID              string
	Name, Namespace string
	Node            string
	NICs            []NIC
	// Image is the location that the first boot disk with content was imported from, or empty if all
	// disks are blank.
	Image    string
	Disks    []Disk
	CPUs     int64
	Memory   int64 // bytes
	UserData string
	// NetworkData is the cloud-init network configuration.
	NetworkData string
}

// NIC is a network interface of a guest.
type NIC struct {
	// Name is the name of the interface in the instance's spec.
	Name string
	MAC  string
	// Network is "pod", or "namespace/name" of the NetworkAttachmentDefinition.
	Network string
	// Addresses are the guest's addresses of the interface, from its network data or by DHCP. On the
	// pod network it is the address of the pod.
	Addresses []netip.Prefix
	// Gateway is the default route. It is invalid if there is none.
	Gateway netip.Addr
}

// Disk is a disk of a guest.
type Disk struct {
	Name string
	// Claim is the PersistentVolumeClaim of the disk, if any.
	Claim string
	// Bytes is the size of the disk, or 0 without a claim.
	Bytes int64
	// Image is the location that its content was imported from, or empty.
	Image string
}

// noGuests implements Guests without running anything.
type noGuests struct{}

func (noGuests) PowerOn(Guest) error   { return nil }
func (noGuests) PowerOff(string) error { return nil }
func (noGuests) Destroy(string) error  { return nil }

// guestSettings are the settings that a guest was started with.
type guestSettings struct {
	guest   Guest
	pod     netip.Prefix // the address on the pod network; may be invalid
	network networkData
	waiting bool // for a lease
}

// power records which guests this process has started, and with which settings, so that each instance
// is started once per process.
type power struct {
	guests Guests

	mu sync.Mutex
	on map[types.UID]guestSettings
}

func newPower(guests Guests) *power {
	return &power{guests: guests, on: map[types.UID]guestSettings{}}
}

// settings returns the settings that the instance's guest was started with, and whether it was.
func (p *power) settings(vmi *virtv1.VirtualMachineInstance) (guestSettings, bool) {
	p.mu.Lock()
	defer p.mu.Unlock()
	s, on := p.on[vmi.UID]
	return s, on
}

func (p *power) switchOn(vmi *virtv1.VirtualMachineInstance, s guestSettings) error {
	if err := p.guests.PowerOn(s.guest); err != nil {
		return err
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	p.on[vmi.UID] = s
	return nil
}

func (p *power) switchOff(vmi *virtv1.VirtualMachineInstance) error {
	if err := p.guests.PowerOff(guestID(vmi)); err != nil {
		return err
	}
	p.forget(vmi.UID)
	return nil
}

// forget removes the settings of a deleted instance.
func (p *power) forget(of types.UID) {
	p.mu.Lock()
	defer p.mu.Unlock()
	delete(p.on, of)
}
