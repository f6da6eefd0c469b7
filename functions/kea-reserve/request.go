package main

import (
	"fmt"
	"net/netip"
	"slices"
	"strings"

	"github.com/vitistack/stack/apis/v1alpha1"
	"github.com/vitistack/stack/apis/v1alpha2"
	"github.com/vitistack/stack/functions/internal/network"
)

// request is what a NetworkConfiguration needs of Kea.
type request struct {
	uid, name string
	// network is the UID of the NetworkNamespace, prefix and gateway are its own.
	network string
	prefix  netip.Prefix
	gateway netip.Addr
	dns     []string
	classes []string
	// reserved are addresses that a machine may have only if it asks for them.
	reserved   map[netip.Addr]bool
	interfaces []interfaceRequest
}

// interfaceRequest is one interface: the address that it asks for, and the one that it has
// had so far. Either may be not valid.
type interfaceRequest struct {
	name, mac          string
	requested, current netip.Addr
}

// problem says what a NetworkConfiguration waits for, or what to change in it.
type problem struct {
	reason, message string
	// mistake is whether only its owner can mend it.
	mistake bool
}

// newRequest reads a wish out of a NetworkConfiguration with a provisioned network.
// It returns the problem that is in its way where there is one.
func newRequest(nc *v1alpha1.NetworkConfiguration, nn *v1alpha2.NetworkNamespace, classes []string) (request, *problem) {
	if message := network.OtherVLAN(nc, nn); message != "" {
		return request{}, &problem{"VLANMismatch", message, true}
	}
	w := request{
		uid: string(nc.UID), name: nc.Namespace + "/" + nc.Name, network: string(nn.UID),
		dns: dnsOf(nn), classes: classesOf(nn, classes),
	}
	var err error
	if w.prefix, err = netip.ParsePrefix(nn.Status.IPv4Prefix); err != nil || !w.prefix.Addr().Is4() {
		return request{}, &problem{"NoIPv4Prefix", fmt.Sprintf(
			"NetworkNamespace %s has no IPv4 prefix, and Kea gives out IPv4 addresses: use a network with one, or set its ipAllocation.type to static", nn.Name), true}
	}
	w.prefix = w.prefix.Masked()
	// A network without a gateway has an empty one.
	w.gateway, _ = netip.ParseAddr(nn.Status.IPv4Gateway)
	var without []string
	seen := map[string]string{}
	for i, spec := range nc.Spec.NetworkInterfaces {
		n, p := newInterfaceRequest(nc, i)
		if p != nil {
			return request{}, p
		}
		if n.mac == "" {
			without = append(without, spec.Name)
			continue
		}
		if twin, ok := seen[n.mac]; ok {
			return request{}, &problem{"DuplicateMACAddress", fmt.Sprintf(
				"interfaces %s and %s have the same MAC address %s: give each its own", twin, n.name, n.mac), true}
		}
		seen[n.mac] = n.name
		w.interfaces = append(w.interfaces, n)
	}
	switch {
	case len(nc.Spec.NetworkInterfaces) == 0:
		return request{}, &problem{"NoInterfaces", "waits for an interface: a Machine brings its own, or write one into spec.networkInterfaces", false}
	case len(without) > 0:
		return request{}, &problem{"WaitingForMAC", fmt.Sprintf(
			"waits for the MAC address of %s: a Machine brings its own, or write it into spec.networkInterfaces", strings.Join(without, ", ")), false}
	}
	return w, nil
}

func newInterfaceRequest(nc *v1alpha1.NetworkConfiguration, i int) (interfaceRequest, *problem) {
	spec := nc.Spec.NetworkInterfaces[i]
	n := interfaceRequest{name: spec.Name, mac: CanonicalMAC(string(spec.MACAddress))}
	if len(spec.IPv6Addresses) > 0 {
		return interfaceRequest{}, &problem{"IPv6NotServed", fmt.Sprintf(
			"interface %s asks for %s, but Kea gives out IPv4 addresses only: remove ipv6Addresses, or use a network whose ipAllocation.type is static", n.name, spec.IPv6Addresses[0]), true}
	}
	if len(spec.IPv4Addresses) > 0 {
		// The API server's rules have refused what does not parse.
		n.requested, _ = netip.ParseAddr(string(spec.IPv4Addresses[0]))
	}
	for _, s := range nc.Status.NetworkInterfaces {
		if s.Name == n.name && len(s.IPv4Addresses) > 0 {
			n.current, _ = netip.ParseAddr(s.IPv4Addresses[0])
		}
	}
	return n, nil
}

// dnsOf are the DNS servers that Kea can announce: those of IPv4.
func dnsOf(nn *v1alpha2.NetworkNamespace) []string {
	servers := nn.Status.DNS
	if p := nn.Spec.IPAllocation; p != nil && p.DHCP != nil && len(p.DHCP.DNS) > 0 {
		servers = p.DHCP.DNS
	}
	var ipv4 []string
	for _, s := range servers {
		if a, err := netip.ParseAddr(s); err == nil && a.Is4() {
			ipv4 = append(ipv4, a.String())
		}
	}
	return ipv4
}

func classesOf(nn *v1alpha2.NetworkNamespace, standard []string) []string {
	if p := nn.Spec.IPAllocation; p != nil && p.DHCP != nil && len(p.DHCP.RequireClientClasses) > 0 {
		return p.DHCP.RequireClientClasses
	}
	return standard
}

func (w request) routers() string {
	if !w.gateway.IsValid() {
		return ""
	}
	return w.gateway.String()
}

// owns tells whether a reservation is the wish's own, or of an earlier
// NetworkConfiguration of the same name, which cannot exist any more.
func (w request) owns(m Owner) bool {
	return m.UID != "" && (m.UID == w.uid || (m.Network == w.network && m.Name == w.name))
}

// isObsolete tells whether a reservation is the wish's own, and will not stay: it is for
// a MAC address that no interface has any more, or whose interface asks for another
// address.
func (w request) isObsolete(r Reservation) bool {
	if !w.owns(r.Owner) {
		return false
	}
	i := slices.IndexFunc(w.interfaces, func(n interfaceRequest) bool { return n.mac == r.Client.Value })
	return i < 0 || (w.interfaces[i].requested.IsValid() && w.interfaces[i].requested != r.Address)
}

// byRequestedAddress is the places of the interfaces, those first that ask for an address.
func (w request) byRequestedAddress() []int {
	var first, rest []int
	for i, n := range w.interfaces {
		if n.requested.IsValid() {
			first = append(first, i)
		} else {
			rest = append(rest, i)
		}
	}
	return append(first, rest...)
}

// reservation is what Kea should have for an interface.
func (w request) reservation(n interfaceRequest, subnet uint32, address netip.Addr) Reservation {
	return Reservation{
		Subnet: subnet, Client: Identifier{HWAddress, n.mac}, Address: address,
		Routers: w.routers(), DNS: strings.Join(w.dns, ", "),
		Owner: Owner{UID: w.uid, Name: w.name, Interface: n.name, Network: w.network},
	}
}
