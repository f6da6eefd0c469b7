package main

import (
	"fmt"
	"net/netip"
)

// segment is a network as its source describes it. Prefixes and addresses that it
// does not have are the zero value.
type segment struct {
	id                       string
	ipv4, ipv6               netip.Prefix
	ipv4Gateway, ipv6Gateway netip.Addr
	ipv4Egress, ipv6Egress   netip.Addr
	vlan                     int32
	dns                      []string
}

// maxVLAN is the last VLAN of IEEE 802.1Q that is not reserved.
const maxVLAN = 4094

// check tells what is wrong with a segment, for the owner of the network. A
// source may be mistaken, so what it says is checked before anybody builds on it.
func (s segment) check() error {
	switch {
	case !s.ipv4.IsValid() && !s.ipv6.IsValid():
		return fmt.Errorf("there is neither an IPv4 nor an IPv6 prefix")
	case s.vlan < 0 || s.vlan > maxVLAN:
		return fmt.Errorf("VLAN %d is not between 0 and %d", s.vlan, maxVLAN)
	}
	if err := checkFamily(s.ipv4, s.ipv4Gateway, true); err != nil {
		return err
	}
	return checkFamily(s.ipv6, s.ipv6Gateway, false)
}

func checkFamily(prefix netip.Prefix, gateway netip.Addr, ipv4 bool) error {
	switch {
	case !prefix.IsValid() && gateway.IsValid():
		return fmt.Errorf("gateway %s has no prefix", gateway)
	case !prefix.IsValid():
		return nil
	case prefix.Addr().Is4() != ipv4:
		return fmt.Errorf("prefix %s is of the other family", prefix)
	case prefix != prefix.Masked():
		return fmt.Errorf("prefix %s has host bits set: write %s", prefix, prefix.Masked())
	case gateway.IsValid() && !prefix.Contains(gateway):
		return fmt.Errorf("gateway %s is outside of %s", gateway, prefix)
	default:
		return nil
	}
}
