package talos

import (
	"errors"
	"fmt"
	"math/rand/v2"
	"net/netip"
	"time"

	"github.com/google/uuid"
	"github.com/siderolabs/talos/pkg/machinery/config"
)

// Machine is the hardware and the boot image, as the hypervisor configures it.
type Machine struct {
	// ID is the SMBIOS UUID.
	ID string `json:"id"`
	// Links are the network interfaces. The first one has Address.
	Links []Link `json:"links"`
	// Address is the address of the first link from DHCP or the platform's metadata, with its prefix
	// length.
	Address netip.Prefix `json:"address"`
	// Static is whether Address is from the platform's metadata. A configuration of the link removes
	// an address from DHCP, but not a static one.
	Static  bool       `json:"static,omitempty"`
	Gateway netip.Addr `json:"gateway,omitzero"`
	// Hostname is the name from DHCP or the platform's metadata, or empty.
	Hostname string `json:"hostname,omitempty"`
	// Version is the Talos version of the boot image, for example "v1.13.9".
	Version string `json:"version"`
	// Schematic is the image factory's schematic of the boot image, if it has one.
	Schematic string `json:"schematic,omitempty"`
	// Kind is the platform: "metal", "nocloud", "openstack" and so on.
	Kind string `json:"kind"`
	// Preinstalled is whether the machine boots a disk image, which needs no installation. A metal ISO
	// or a network boot installs to a disk.
	Preinstalled bool   `json:"preinstalled,omitempty"`
	Disks        []Disk `json:"disks"`
	// Seed is the user data of a nocloud seed that the machine reads at each start, or nil without
	// one.
	Seed []byte `json:"seed,omitempty"`
	// CPUs and Memory (bytes) default to 2 and 4 GiB.
	CPUs   int    `json:"cpus,omitempty"`
	Memory uint64 `json:"memory,omitempty"`
	// Skew is how far its clock is ahead of the right time. It reaches no time server.
	Skew time.Duration `json:"skew,omitempty"`
}

// Link is a network interface.
type Link struct {
	Name string `json:"name"`
	MAC  string `json:"mac"`
	// Temporary is whether the driver shows no permanent address, like veth and some paravirtual
	// drivers, so that no selector by address selects the link.
	Temporary bool `json:"temporary,omitempty"`
}

// Disk is a block device.
type Disk struct {
	// Device is its path, for example "/dev/vda".
	Device string `json:"device"`
	// Size is the size in bytes.
	Size   uint64 `json:"size"`
	Serial string `json:"serial,omitempty"`
}

func (m Machine) validate() error {
	_, idErr := uuid.Parse(m.ID)
	_, versionErr := parseVersion(m.Version)
	switch {
	case idErr != nil:
		return fmt.Errorf("ID %q is not a UUID: %w", m.ID, idErr)
	case len(m.Links) == 0:
		return errors.New("a machine needs a link")
	case !m.Address.IsValid():
		return errors.New("a machine needs an address with a prefix length, for example 127.128.0.2/24")
	case versionErr != nil:
		return versionErr
	case m.Kind == "":
		return errors.New(`a machine needs a kind, for example "metal" or "nocloud"`)
	}
	return nil
}

func (m Machine) cpus() int {
	if m.CPUs == 0 {
		return 2
	}
	return m.CPUs
}

func (m Machine) memory() uint64 {
	if m.Memory == 0 {
		return 4 << 30
	}
	return m.Memory
}

// mode is the platform mode with which Talos validates a configuration.
func (m Machine) mode() mode { return mode(m.Kind) }

type mode string

func (m mode) String() string {
	switch m {
	case "metal", "container":
		return string(m)
	}
	return "cloud"
}

func (m mode) RequiresInstall() bool { return m == "metal" }

func (m mode) InContainer() bool { return m == "container" }

// Timing has the durations of a machine's steps. The zero Timing is fast, and still has every
// intermediate state.
type Timing struct {
	// Boot is the time from power on to the API listening.
	Boot time.Duration
	// Services is the time from the API listening until a bootstrap is possible.
	Services time.Duration
	// Linger is how long the maintenance API still answers after it accepted a configuration. Default:
	// 20 ms. Negative: none.
	Linger time.Duration
	// Install is the duration of an installation or an upgrade.
	Install time.Duration
	// Reboot is the time without listeners between two boots. Default: 100 ms. Negative: none.
	Reboot time.Duration
	// EtcdPull is how long a bootstrap pulls etcd's image. Before its end the disk has no data of it.
	// Default: 10 ms. Negative: none.
	EtcdPull time.Duration
	// EtcdStart is how long a member takes to start, and again to be promoted.
	EtcdStart time.Duration
	// StaticPods is the time from a changed configuration to the end of the API server that runs, and
	// again to the start of the next one. Default: 10 ms. Negative: none.
	StaticPods time.Duration
	// StaticPodPull is how long a kubelet pulls the image of a changed API server that is not in the store. The API
	// server does not run meanwhile.
	StaticPodPull time.Duration
	// NodeReady is the time from a kubelet's start to its Node being ready.
	NodeReady time.Duration
	// NodeLost is the time from the end of a machine to its Node being unknown. Default: 100 ms.
	// Negative: none.
	NodeLost time.Duration
	// Spread is by which part of itself each Boot, Services and EtcdPull is longer or shorter at random. Default: 0.
	Spread float64
	// PodStop is the time from a pod's deletion to the end of its containers.
	PodStop time.Duration
}

// vary returns the duration of one step.
func (t Timing) vary(d time.Duration) time.Duration {
	return d + time.Duration(float64(d)*t.Spread*(2*rand.Float64()-1))
}

func (t Timing) withDefaults() Timing {
	t.Linger = orDefault(t.Linger, 20*time.Millisecond)
	t.Reboot = orDefault(t.Reboot, 100*time.Millisecond)
	t.EtcdPull = orDefault(t.EtcdPull, 10*time.Millisecond)
	t.StaticPods = orDefault(t.StaticPods, 10*time.Millisecond)
	t.NodeLost = orDefault(t.NodeLost, 100*time.Millisecond)
	return t
}

func orDefault(d, otherwise time.Duration) time.Duration {
	if d == 0 {
		return otherwise
	}
	return max(d, 0)
}

// oldest and newest are the supported Talos versions.
var oldest, newest = config.TalosVersion1_11, config.TalosVersion1_13

func parseVersion(version string) (*config.VersionContract, error) {
	contract, err := config.ParseContractFromVersion(version)
	switch {
	case err != nil:
		return nil, err
	case oldest.Greater(contract) || contract.Greater(newest):
		return nil, fmt.Errorf("talos %s is not simulated: use %s to %s", version, oldest, newest)
	}
	return contract, nil
}
