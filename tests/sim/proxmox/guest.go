package proxmox

import (
	"net/netip"
	"strconv"
	"strings"

	"github.com/vitistack/stack/tests/sim/kubevirt/cloudinit"
)

// Guests runs what is inside of the machines. Methods must return soon, because the cluster is locked
// during a call.
type Guests interface {
	// PowerOn starts a guest. If it fails, the start of the machine fails.
	PowerOn(Guest) error
	// PowerOff stops a guest and keeps its disks. A guest that is off or unknown is no error.
	PowerOff(id string) error
	// Destroy removes the disks of a stopped guest. An unknown guest is no error.
	Destroy(id string) error
}

// Guest is a machine from the point of view of its guest.
type Guest struct {
	// ID is the SMBIOS UUID.
	ID, Name, Node string
	VMID           int
	NICs           []NIC
	// Image is the URL of the first disk or CD that it boots from, or empty if all are blank.
	Image  string
	Disks  []Disk
	CPUs   int64
	Memory int64 // bytes
	// UserData is the user data on its cloud-init CD. It is empty if Proxmox VE generates the CD.
	UserData string
}

// NIC is a network interface of a guest.
type NIC struct {
	Name, MAC, Bridge string
	VLAN              int
	Addresses         []netip.Prefix
	Gateway           netip.Addr
}

// Disk is a disk of a guest.
type Disk struct {
	Name, Volume, Image string
	Bytes               int64
}

type noGuests struct{}

func (noGuests) PowerOn(Guest) error   { return nil }
func (noGuests) PowerOff(string) error { return nil }
func (noGuests) Destroy(string) error  { return nil }

func guestID(m *machine) string {
	smbios, err := smbiosFormat.parse("smbios1", m.Config["smbios1"])
	if err != nil {
		return strconv.Itoa(m.ID)
	}
	return smbios["uuid"]
}

// nicsOf returns the interfaces of a configuration, in their order.
func nicsOf(config map[string]string) []NIC {
	var nics []NIC
	for i := range maxNICs {
		n, err := nicFormat.parse("net", config["net"+strconv.Itoa(i)])
		if config["net"+strconv.Itoa(i)] == "" || err != nil {
			continue
		}
		vlan, _ := strconv.Atoi(n["tag"])
		nics = append(nics, NIC{Name: "eth" + strconv.Itoa(i), MAC: strings.ToLower(n["macaddr"]), Bridge: n["bridge"], VLAN: vlan})
	}
	return nics
}

// guestOf returns the guest of a machine.
func (s *Server) guestOf(m *machine) Guest {
	g := Guest{ID: guestID(m), Name: m.Config["name"], Node: m.Node, VMID: m.ID, NICs: nicsOf(m.Config), CPUs: cpusOf(m.Config), Memory: memoryOf(m.Config)}
	g.Image = s.bootImage(m)
	seed, generated := s.seedOf(m)
	generated = generated && noCloud(m.Config)
	g.UserData = seed.userData
	for _, name := range drives(m.Config) {
		d, err := parseDrive(name, m.Config[name])
		if err != nil || d.cdrom() || !bootForm.MatchString(name) {
			continue
		}
		if _, v, err := s.volume(d["file"], m.Node); err == nil {
			g.Disks = append(g.Disks, Disk{Name: name, Volume: d["file"], Image: v.Image, Bytes: v.Size})
		}
	}
	network, given := seed.network, seed.given
	for i := range g.NICs {
		nic := &g.NICs[i]
		settings, ok := cloudinit.For(network, nic.MAC, nic.Name)
		if generated {
			settings, ok = ipConfig(m.Config["ipconfig"+strconv.Itoa(i)]), true
		} else if !given {
			settings, ok = cloudinit.Interface{DHCP: true}, true
		}
		if !ok {
			continue
		}
		nic.Addresses, nic.Gateway = settings.Addresses, settings.Gateway
		if settings.DHCP && s.options.DHCP != nil {
			if address, gateway, leased := s.options.DHCP(nic.MAC, nic.Bridge, nic.VLAN); leased {
				nic.Addresses, nic.Gateway = append(nic.Addresses, address), gateway
			}
		}
	}
	return g
}

// noCloud reports whether Proxmox VE writes its drive as NoCloud, the only format that the simulated
// guests read. Without citype it writes a config drive for Windows (qemu-server,
// PVE/QemuServer/Cloudinit.pm).
func noCloud(config map[string]string) bool {
	if config["citype"] != "" {
		return config["citype"] == "nocloud"
	}
	return !strings.HasPrefix(config["ostype"], "w")
}

// ipConfig parses ipconfig0 and its like. An interface without one requests a lease.
func ipConfig(value string) cloudinit.Interface {
	found, err := ipFormat.parse("ipconfig", value)
	if err != nil || value == "" {
		return cloudinit.Interface{DHCP: true}
	}
	i := cloudinit.Interface{DHCP: found["ip"] == "dhcp" || found["ip6"] == "dhcp"}
	for _, key := range []string{"ip", "ip6"} {
		if p, err := netip.ParsePrefix(found[key]); err == nil {
			i.Addresses = append(i.Addresses, p)
		}
	}
	if gw, err := netip.ParseAddr(found["gw"]); err == nil {
		i.Gateway = gw
	}
	return i
}

// bootImage returns the image of the first device with content in the boot order.
func (s *Server) bootImage(m *machine) string {
	boot, err := bootFormat.parse("boot", m.Config["boot"])
	if err != nil {
		return ""
	}
	for _, device := range splitList(boot["order"]) {
		d, err := parseDrive(device, m.Config[device])
		if m.Config[device] == "" || strings.HasPrefix(device, "net") || err != nil {
			continue
		}
		if _, v, err := s.volume(d["file"], m.Node); err == nil && v.Image != "" {
			return v.Image
		}
	}
	return ""
}

// networkInterfaces returns the interfaces as the guest agent reports them.
func networkInterfaces(c *call) (any, error) {
	m, err := c.machineOf()
	if err != nil {
		return nil, err
	}
	agent, err := agentFormat.parse("agent", m.Config["agent"])
	switch {
	case err != nil || agent["enabled"] == "":
		return nil, die("No QEMU guest agent configured")
	case !m.Running:
		return nil, die("VM %d is not running", m.ID)
	case !m.booted || agent["enabled"] != "1" || m.guest == nil || m.frozen != "":
		return nil, die("QEMU guest agent is not running")
	}
	list := []any{map[string]any{"name": "lo", "hardware-address": "00:00:00:00:00:00", "ip-addresses": []any{address(netip.MustParsePrefix("127.0.0.1/8"))}}}
	for _, nic := range m.guest.NICs {
		addresses := []any{}
		for _, a := range nic.Addresses {
			addresses = append(addresses, address(a))
		}
		addresses = append(addresses, address(netip.MustParsePrefix("fe80::1/64")))
		list = append(list, map[string]any{"name": nic.Name, "hardware-address": nic.MAC, "ip-addresses": addresses})
	}
	return map[string]any{"result": list}, nil
}

func address(p netip.Prefix) map[string]any {
	kind := "ipv6"
	if p.Addr().Is4() {
		kind = "ipv4"
	}
	return map[string]any{"ip-address": p.Addr().String(), "ip-address-type": kind, "prefix": p.Bits()}
}
