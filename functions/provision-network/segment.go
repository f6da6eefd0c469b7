package main

import (
	"fmt"
	"net/netip"
	"slices"

	"github.com/vitistack/stack/apis/v1alpha2"
	"github.com/vitistack/stack/functions/internal/pool"
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
	// ownVLAN is whether no other namespace may have a network in the VLAN.
	ownVLAN bool
}

// description is a segment in the words of an answer, in JSON.
type description struct {
	ID           string   `json:"id"`
	IPv4Prefix   string   `json:"ipv4Prefix"`
	IPv4Gateway  string   `json:"ipv4Gateway"`
	IPv4EgressIP string   `json:"ipv4EgressIp"`
	IPv6Prefix   string   `json:"ipv6Prefix"`
	IPv6Gateway  string   `json:"ipv6Gateway"`
	IPv6EgressIP string   `json:"ipv6EgressIp"`
	VLANID       int32    `json:"vlanId"`
	DNS          []string `json:"dns"`
}

// maxID and maxDNS bound what a source may fill the status with.
const (
	maxID  = 253
	maxDNS = 8
	// maxVLAN is the last VLAN of IEEE 802.1Q that is not reserved.
	maxVLAN = 4094
)

// segment reads a description. It returns an error that names the field where that
// cannot be a segment.
func (d description) segment() (segment, error) {
	s := segment{id: d.ID, vlan: d.VLANID, dns: d.DNS}
	for _, field := range []struct {
		name, value string
		into        func(string) error
	}{
		{"ipv4Prefix", d.IPv4Prefix, prefixInto(&s.ipv4)},
		{"ipv4Gateway", d.IPv4Gateway, addrInto(&s.ipv4Gateway)},
		{"ipv4EgressIp", d.IPv4EgressIP, addrInto(&s.ipv4Egress)},
		{"ipv6Prefix", d.IPv6Prefix, prefixInto(&s.ipv6)},
		{"ipv6Gateway", d.IPv6Gateway, addrInto(&s.ipv6Gateway)},
		{"ipv6EgressIp", d.IPv6EgressIP, addrInto(&s.ipv6Egress)},
	} {
		if field.value == "" {
			continue
		}
		if err := field.into(field.value); err != nil {
			return segment{}, fmt.Errorf("%s: %w", field.name, err)
		}
	}
	return s, s.check()
}

// check tells what is wrong with a segment, for the owner of the network. A
// source may be mistaken, so what it says is checked before anybody builds on it.
func (s segment) check() error {
	switch {
	case !s.ipv4.IsValid() && !s.ipv6.IsValid():
		return fmt.Errorf("there is neither an IPv4 nor an IPv6 prefix")
	case s.vlan < 0 || s.vlan > maxVLAN:
		return fmt.Errorf("VLAN %d is not between 0 and %d", s.vlan, maxVLAN)
	case len(s.id) > maxID:
		return fmt.Errorf("its id is longer than %d characters", maxID)
	case len(s.dns) > maxDNS:
		return fmt.Errorf("there are more than %d DNS servers", maxDNS)
	}
	for _, server := range s.dns {
		if _, err := netip.ParseAddr(server); err != nil {
			return fmt.Errorf("dns: %w", err)
		}
	}
	if err := checkFamily(s.ipv4, s.ipv4Gateway, s.ipv4Egress, true); err != nil {
		return err
	}
	return checkFamily(s.ipv6, s.ipv6Gateway, s.ipv6Egress, false)
}

// ofNoNetwork are prefixes whose addresses mean another machine to everybody: itself,
// or on its link, where clouds keep credentials.
var ofNoNetwork = []netip.Prefix{
	netip.MustParsePrefix("0.0.0.0/8"), netip.MustParsePrefix("169.254.0.0/16"),
	netip.MustParsePrefix("::ffff:0:0/96"), netip.MustParsePrefix("fe80::/10"),
}

func checkFamily(prefix netip.Prefix, gateway, egress netip.Addr, ipv4 bool) error {
	switch {
	case !prefix.IsValid() && gateway.IsValid():
		return fmt.Errorf("gateway %s has no prefix", gateway)
	case egress.IsValid() && egress.Is4() != ipv4:
		return fmt.Errorf("egress address %s is of the other family", egress)
	case !prefix.IsValid():
		return nil
	case prefix.Addr().Is4() != ipv4:
		return fmt.Errorf("prefix %s is of the other family", prefix)
	case prefix != prefix.Masked():
		return fmt.Errorf("prefix %s has host bits set: write %s", prefix, prefix.Masked())
	case prefix.Bits() == 0 || prefix.Addr().IsMulticast() || slices.ContainsFunc(ofNoNetwork, prefix.Overlaps):
		return fmt.Errorf("prefix %s is not one of a network with machines", prefix)
	case !gateway.IsValid():
		return nil
	default:
		return pool.CheckGateway(prefix, gateway)
	}
}

// String describes a segment for people, for example
// 192.168.10.0/24 (gateway 192.168.10.1, VLAN 200).
func (s segment) String() string {
	text := ""
	for _, g := range []netip.Addr{s.ipv4Gateway, s.ipv6Gateway} {
		if g.IsValid() {
			text += fmt.Sprintf("gateway %s, ", g)
		}
	}
	return fmt.Sprintf("%s (%sVLAN %d)", s.prefixes(), text, s.vlan)
}

// answers tells what is missing in a segment that was asked for with a request.
func (s segment) answers(r v1alpha2.SegmentRequest) error {
	if len(r.IPFamilies) == 0 {
		r.IPFamilies = []v1alpha2.IPFamily{v1alpha2.IPv4}
	}
	for _, family := range r.IPFamilies {
		prefix, want := s.ipv4, int(r.IPv4PrefixLength)
		if family == v1alpha2.IPv6 {
			prefix, want = s.ipv6, int(r.IPv6PrefixLength)
		}
		switch {
		case !prefix.IsValid():
			return fmt.Errorf("the %s prefix that was asked for is missing", family)
		case want > 0 && prefix.Bits() != want:
			return fmt.Errorf("prefix %s is not a /%d", prefix, want)
		}
	}
	return nil
}

// answersExactly tells where a segment is not what NetBox was asked for, which gives
// no more than that.
func (s segment) answersExactly(r v1alpha2.NetBoxRequest) error {
	switch err := s.answers(r.SegmentRequest); {
	case err != nil:
		return err
	case s.ipv4.IsValid() && s.ipv6.IsValid() && len(r.IPFamilies) < 2:
		return fmt.Errorf("only one of %s is asked for", s.prefixes())
	case r.VLANGroup == "" && s.vlan != 0:
		return fmt.Errorf("VLAN %d is not asked for", s.vlan)
	case r.VLANGroup != "" && s.vlan == 0:
		return fmt.Errorf("it has no VLAN of group %s", r.VLANGroup)
	default:
		return nil
	}
}

// held is the segment that a network has by its status.
func held(nn *v1alpha2.NetworkNamespace) (segment, error) {
	s := nn.Status
	return description{
		ID: s.NamespaceID, VLANID: s.VLANID, DNS: s.DNS,
		IPv4Prefix: s.IPv4Prefix, IPv4Gateway: s.IPv4Gateway, IPv4EgressIP: s.IPv4EgressIP,
		IPv6Prefix: s.IPv6Prefix, IPv6Gateway: s.IPv6Gateway, IPv6EgressIP: s.IPv6EgressIP,
	}.segment()
}

func prefixInto(p *netip.Prefix) func(string) error {
	return func(s string) (err error) { *p, err = netip.ParsePrefix(s); return err }
}

func addrInto(a *netip.Addr) func(string) error {
	return func(s string) (err error) { *a, err = netip.ParseAddr(s); return err }
}

// text writes a prefix or an address, and nothing for one that is not there.
func text[T interface {
	netip.Prefix | netip.Addr
	IsValid() bool
	String() string
}](v T) string {
	if !v.IsValid() {
		return ""
	}
	return v.String()
}
