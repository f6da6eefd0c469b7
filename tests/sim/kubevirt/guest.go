package kubevirt

import (
	"net/netip"
	"sync"

	"k8s.io/apimachinery/pkg/types"
	virtv1 "kubevirt.io/api/core/v1"
)

// AgentAnnotation on a VirtualMachine or in its template, with the value "false",
// takes the guest agent out of the guest: its addresses on networks other than the
// pod network then stay unknown.
const AgentAnnotation = "sim.vitistack.io/guest-agent"

// Guests is what runs inside the virtual machines. Methods must return soon; the
// guest's own start and stop go on in the background. They are called from several
// goroutines, but never at once for one guest.
type Guests interface {
	// PowerOn switches a guest on. It is called again, with the same or newer
	// settings, for a guest that is on: after a restart of the simulator for each.
	// When it fails the machine's start is tried again.
	PowerOn(Guest) error
	// PowerOff switches a guest off; what is on its disks stays. A guest that is
	// off, or unknown, is not an error.
	PowerOff(id string) error
	// Destroy takes away the disks of a guest, which is off. A guest that is
	// unknown is not an error.
	Destroy(id string) error
}

// Guest is a virtual machine as what runs in it sees it.
type Guest struct {
	// ID is the firmware UUID, which a restart does not change, or else the UID of
	// the instance.
	ID              string
	Name, Namespace string
	Node            string
	NICs            []NIC
	// Image is where the first boot disk that has content was imported from, or
	// empty when all are blank.
	Image    string
	Disks    []Disk
	CPUs     int64
	Memory   int64 // bytes
	UserData string
	// NetworkData is the cloud-init network configuration as given.
	NetworkData string
}

// NIC is a network interface of a guest.
type NIC struct {
	// Name is the name of the interface in the instance's spec.
	Name string
	MAC  string
	// Network is "pod", or "namespace/name" of the NetworkAttachmentDefinition.
	Network string
	// Addresses are what the guest gives the interface, by its network data or by
	// DHCP; on the pod network it is the address of the pod.
	Addresses []netip.Prefix
	// Gateway is the default route; it is invalid when there is none.
	Gateway netip.Addr
}

// Disk is a disk of a guest.
type Disk struct {
	Name string
	// Claim is the PersistentVolumeClaim behind it, if any.
	Claim string
	// Bytes is its size; 0 when it has no claim.
	Bytes int64
	// Image is where its content was imported from, or empty.
	Image string
}

// nobody is in the guests when nothing else is.
type nobody struct{}

func (nobody) PowerOn(Guest) error   { return nil }
func (nobody) PowerOff(string) error { return nil }
func (nobody) Destroy(string) error  { return nil }

// guestSettings is what a guest was switched on with.
type guestSettings struct {
	guest   Guest
	pod     netip.Prefix // the address on the pod network; may be invalid
	network networkData
	waiting bool // for a lease
}

// power remembers which instances' guests this process has switched on, and how,
// so that each is switched on once per process and instance.
type power struct {
	guests Guests

	mu sync.Mutex
	on map[types.UID]guestSettings
}

func newPower(guests Guests) *power {
	return &power{guests: guests, on: map[types.UID]guestSettings{}}
}

// settings returns what the instance's guest was switched on with, and whether it was.
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

// forget drops the settings of an instance that is gone.
func (p *power) forget(of types.UID) {
	p.mu.Lock()
	defer p.mu.Unlock()
	delete(p.on, of)
}
