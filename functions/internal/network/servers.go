package network

import (
	"net/netip"
	"slices"

	"github.com/vitistack/stack/apis/v1alpha2"
)

// Servers returns the addresses that a network names as those of other hosts: its DNS servers and its egress addresses, which may be inside
// its prefix. They are allocated only to machines that request them.
func Servers(nn *v1alpha2.NetworkNamespace) map[netip.Addr]bool {
	texts := slices.Concat(nn.Status.DNS, []string{nn.Status.IPv4EgressIP, nn.Status.IPv6EgressIP})
	if p := nn.Spec.IPAllocation; p != nil && p.Static != nil {
		texts = append(texts, p.Static.DNS...)
	}
	if p := nn.Spec.IPAllocation; p != nil && p.DHCP != nil {
		texts = append(texts, p.DHCP.DNS...)
	}
	addresses := map[netip.Addr]bool{}
	for _, text := range texts {
		if a, err := netip.ParseAddr(text); err == nil {
			addresses[a] = true
		}
	}
	return addresses
}
