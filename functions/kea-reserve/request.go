package main

import (
	"fmt"
	"net/netip"
	"slices"
	"strings"

	networkplan "github.com/vitistack/stack/apis/network/plan"
	"github.com/vitistack/stack/apis/v1alpha1"
	"github.com/vitistack/stack/apis/v1alpha2"
	"github.com/vitistack/stack/functions/internal/network"
	"github.com/vitistack/stack/functions/internal/reconcile"
	"github.com/vitistack/stack/functions/kea-reserve/kea"
)

// request is what a NetworkConfiguration needs of Kea.
type request struct {
	uid, name string
	// network is the UID of the NetworkNamespace, prefix and gateway are its own.
	network string
	// former and formerNetworks are the UIDs that both had before they were created again, and unmarked is whether
	// reservations without a mark are adopted.
	former, formerNetworks []string
	unmarked               bool
	prefix                 netip.Prefix
	gateway                netip.Addr
	dns                    []string
	classes                []string
	// reserved are the control-plane addresses of clusters, which an interface gets only if it
	// asks for one.
	reserved map[netip.Addr]bool
	// servers are the DNS servers and the egress addresses of the network, which an interface gets only if it asks for
	// one, or has it already.
	servers    map[netip.Addr]bool
	interfaces []interfaceRequest
}

// interfaceRequest is one interface with the address that it asks for and the one that its
// status has. Either may be the zero Addr.
type interfaceRequest struct {
	name, mac          string
	requested, current netip.Addr
}

// newRequest returns the request of a NetworkConfiguration whose network is provisioned.
// classes are the client classes of a network that names none. Its error is a UserError or a
// WaitError.
func newRequest(nc *v1alpha1.NetworkConfiguration, nn *v1alpha2.NetworkNamespace, classes []string) (request, error) {
	if message := networkplan.CheckVLAN(nc, nn); message != "" {
		return request{}, reconcile.UserError{Reason: "VLANMismatch", Message: message}
	}
	req := request{
		uid: string(nc.UID), name: nc.Namespace + "/" + nc.Name, network: string(nn.UID),
		former: v1alpha1.FormerUIDs(nc), formerNetworks: v1alpha1.FormerUIDs(nn), unmarked: v1alpha1.AdoptsUnmarked(nc),
		dns: dnsOf(nn), classes: classesOf(nn, classes), servers: network.Servers(nn),
	}
	var err error
	if req.prefix, err = netip.ParsePrefix(nn.Status.IPv4Prefix); err != nil || !req.prefix.Addr().Is4() {
		return request{}, reconcile.UserError{Reason: "NoIPv4Prefix", Message: fmt.Sprintf(
			"NetworkNamespace %s has no IPv4 prefix, and Kea allocates IPv4 addresses only: use a network with one, or set its ipAllocation.type to static", nn.Name)}
	}
	req.prefix = req.prefix.Masked()
	// A network without a gateway has an empty one.
	req.gateway, _ = netip.ParseAddr(nn.Status.IPv4Gateway)
	var without []string
	seen := map[string]string{}
	for i, spec := range nc.Spec.NetworkInterfaces {
		nic, p := newInterfaceRequest(nc, i)
		if p != nil {
			return request{}, p
		}
		if nic.mac == "" {
			without = append(without, spec.Name)
			continue
		}
		if twin, ok := seen[nic.mac]; ok {
			return request{}, reconcile.UserError{Reason: "DuplicateMACAddress", Message: fmt.Sprintf(
				"interfaces %s and %s have the same MAC address %s: give each its own", twin, nic.name, nic.mac)}
		}
		seen[nic.mac] = nic.name
		req.interfaces = append(req.interfaces, nic)
	}
	switch {
	case len(nc.Spec.NetworkInterfaces) == 0:
		return request{}, reconcile.WaitError{Reason: "NoInterfaces", Message: "waiting for an interface: a Machine adds its own; without a Machine, write it into spec.networkInterfaces"}
	case len(without) > 0:
		return request{}, reconcile.WaitError{Reason: "WaitingForMAC", Message: fmt.Sprintf(
			"waiting for the MAC address of %s: a Machine sets its own; without a Machine, write it into spec.networkInterfaces", strings.Join(without, ", "))}
	}
	return req, nil
}

// newInterfaceRequest returns the request of the i-th interface, or a UserError.
func newInterfaceRequest(nc *v1alpha1.NetworkConfiguration, i int) (interfaceRequest, error) {
	spec := nc.Spec.NetworkInterfaces[i]
	nic := interfaceRequest{name: spec.Name, mac: kea.CanonicalMAC(string(spec.MACAddress))}
	if len(spec.IPv6Addresses) > 0 {
		return interfaceRequest{}, reconcile.UserError{Reason: "IPv6NotServed", Message: fmt.Sprintf(
			"interface %s requests %s, but Kea allocates IPv4 addresses only: remove ipv6Addresses, or use a network whose ipAllocation.type is static", nic.name, spec.IPv6Addresses[0])}
	}
	if len(spec.IPv4Addresses) > 0 {
		// The API server's rules have refused what does not parse.
		nic.requested, _ = netip.ParseAddr(string(spec.IPv4Addresses[0]))
	}
	for _, s := range nc.Status.NetworkInterfaces {
		if s.Name == nic.name && len(s.IPv4Addresses) > 0 {
			nic.current, _ = netip.ParseAddr(s.IPv4Addresses[0])
		}
	}
	return nic, nil
}

// dnsOf returns the IPv4 DNS servers of a network. Kea announces no others.
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

func (req request) routers() string {
	if !req.gateway.IsValid() {
		return ""
	}
	return req.gateway.String()
}

// owns reports whether a reservation belongs to this NetworkConfiguration, to a deleted one
// of the same name, or to the one that this was before it was created again.
func (req request) owns(m kea.Owner) bool {
	ofNetwork := m.Network == req.network || slices.Contains(req.formerNetworks, m.Network)
	return m.UID != "" && (m.UID == req.uid || slices.Contains(req.former, m.UID) || ofNetwork && m.Name == req.name)
}

// isObsolete reports whether a reservation of this NetworkConfiguration has to be removed,
// because no interface has its MAC address, or because the interface asks for another address.
func (req request) isObsolete(r kea.Reservation) bool {
	if !req.owns(r.Owner) {
		return false
	}
	i := slices.IndexFunc(req.interfaces, func(nic interfaceRequest) bool { return nic.mac == r.Client.Value })
	return i < 0 || (req.interfaces[i].requested.IsValid() && req.interfaces[i].requested != r.Address)
}

// byRequestedAddress returns the indexes of the interfaces. Interfaces that request an
// address are first.
func (req request) byRequestedAddress() []int {
	var first, rest []int
	for i, nic := range req.interfaces {
		if nic.requested.IsValid() {
			first = append(first, i)
		} else {
			rest = append(rest, i)
		}
	}
	return append(first, rest...)
}

// reservation returns the reservation that Kea should have for an interface.
func (req request) reservation(nic interfaceRequest, subnet uint32, address netip.Addr) kea.Reservation {
	return kea.Reservation{
		Subnet: subnet, Client: kea.MACIdentifier(nic.mac), Address: address,
		Routers: req.routers(), DNS: strings.Join(req.dns, ", "),
		Owner: kea.Owner{UID: req.uid, Name: req.name, Interface: nic.name, Network: req.network},
	}
}
