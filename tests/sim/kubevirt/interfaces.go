package kubevirt

import (
	"crypto/sha256"
	"encoding/hex"
	"fmt"
	"net"
	"net/netip"
	"slices"

	virtv1 "kubevirt.io/api/core/v1"

	"github.com/vitistack/stack/tests/sim/kubevirt/cloudinit"
)

// podNetworkName is the name of the pod network for guests and DHCP.
const podNetworkName = "pod"

// Sources of information about an interface in KubeVirt's status.
const (
	sourceDomain = "domain"
	sourceAgent  = "domain, guest-agent"
	sourceMultus = ", multus-status"
)

// leases returns the lease of a guest that requests one.
type leases func(mac, network string) (netip.Prefix, netip.Addr, bool)

// nics returns the interfaces of an instance with the guest's addresses, and whether it waits for a
// lease.
func nics(vmi *virtv1.VirtualMachineInstance, pod netip.Prefix, network networkData, ask leases) (found []NIC, waiting bool) {
	attached := map[string]virtv1.Network{}
	for _, n := range vmi.Spec.Networks {
		attached[n.Name] = n
	}
	for i, spec := range vmi.Spec.Domain.Devices.Interfaces {
		nic := NIC{Name: spec.Name, MAC: macOf(vmi, spec), Network: podNetworkName}
		n := attached[spec.Name]
		if n.Multus == nil {
			if pod.IsValid() {
				nic.Addresses, nic.Gateway = []netip.Prefix{pod}, nth(pod.Masked().Addr(), 1)
			}
			found = append(found, nic)
			continue
		}
		nic.Network = attachmentName(vmi.Namespace, n.Multus.NetworkName).String()
		settings, ok := cloudinit.For(network.interfaces, nic.MAC, guestInterface(i))
		if !network.given {
			settings, ok = cloudinit.Interface{DHCP: true}, true
		}
		if ok {
			nic.Addresses, nic.Gateway = settings.Addresses, settings.Gateway
		}
		if ok && settings.DHCP {
			address, gateway, leased := netip.Prefix{}, netip.Addr{}, false
			if ask != nil {
				address, gateway, leased = ask(nic.MAC, nic.Network)
			}
			waiting = waiting || (ask != nil && !leased)
			if leased {
				nic.Addresses = append(slices.Clone(nic.Addresses), address)
			}
			if leased && !nic.Gateway.IsValid() {
				nic.Gateway = gateway
			}
		}
		found = append(found, nic)
	}
	return found, waiting
}

// interfaceStatus returns the interfaces in the instance's status, that of the pod network first.
// Without an agent only the pod's address is known.
func interfaceStatus(vmi *virtv1.VirtualMachineInstance, nics []NIC, agent bool) []virtv1.VirtualMachineInstanceNetworkInterface {
	var all []virtv1.VirtualMachineInstanceNetworkInterface
	for i, n := range nics {
		s := virtv1.VirtualMachineInstanceNetworkInterface{
			Name: n.Name, MAC: n.MAC, LinkState: "up", QueueCount: queues(vmi), InfoSource: sourceDomain,
		}
		if agent {
			s.InfoSource, s.InterfaceName = sourceAgent, guestInterface(i)
		}
		pod := n.Network == podNetworkName
		if pod || agent {
			for _, a := range n.Addresses {
				s.IPs = append(s.IPs, a.Addr().String())
			}
		}
		if local := linkLocal(n.MAC); agent && !pod && local.IsValid() {
			s.IPs = append(s.IPs, local.String())
		}
		slices.SortStableFunc(s.IPs, byFamily)
		if len(s.IPs) > 0 {
			s.IP = s.IPs[0]
		}
		if pod {
			s.PodInterfaceName = "eth0"
			all = slices.Insert(all, 0, s)
			continue
		}
		s.InfoSource += sourceMultus
		s.PodInterfaceName = podInterface(n.Name)
		all = append(all, s)
	}
	return all
}

// byFamily sorts IPv4 before IPv6, the order of the agent's answer in the status.
func byFamily(a, b string) int {
	four := func(s string) int {
		if p, err := netip.ParseAddr(s); err == nil && p.Is4() {
			return 0
		}
		return 1
	}
	return four(a) - four(b)
}

// queues returns one queue per virtual CPU if the instance requests multiqueue.
func queues(vmi *virtv1.VirtualMachineInstance) int32 {
	multi := vmi.Spec.Domain.Devices.NetworkInterfaceMultiQueue
	if multi == nil || !*multi {
		return 1
	}
	const most = 256
	return int32(min(vcpus(vmi.Spec.Domain.CPU), most))
}

// macOf returns the MAC address of an interface. A missing one is derived from the guest and the
// interface, so that it is stable.
func macOf(vmi *virtv1.VirtualMachineInstance, spec virtv1.Interface) string {
	if hw, err := net.ParseMAC(spec.MacAddress); err == nil {
		return hw.String()
	}
	sum := sha256.Sum256([]byte(guestID(vmi) + "/" + spec.Name))
	return net.HardwareAddr{0x02, sum[0], sum[1], sum[2], sum[3], sum[4]}.String()
}

// guestInterface returns the name of the n-th interface in the guest.
func guestInterface(n int) string { return fmt.Sprintf("eth%d", n) }

// podInterface returns the name of an interface in the pod, which is a hash of the network's.
func podInterface(network string) string {
	sum := sha256.Sum256([]byte(network))
	return "pod" + hex.EncodeToString(sum[:])[:11]
}

// linkLocal returns the link-local address that the guest's kernel gives an interface. It is invalid
// if the MAC address is no Ethernet address.
func linkLocal(mac string) netip.Addr {
	hw, err := net.ParseMAC(mac)
	if err != nil || len(hw) != 6 {
		return netip.Addr{}
	}
	return netip.AddrFrom16([16]byte{
		0xfe, 0x80, 0, 0, 0, 0, 0, 0, hw[0] ^ 2, hw[1], hw[2], 0xff, 0xfe, hw[3], hw[4], hw[5],
	})
}
