// Package segment describes the network segment of a NetworkNamespace: as text, in a spec and in a status. It
// checks that machines can be in a segment, and whether two segments overlap.
package segment

import (
	"encoding"
	"fmt"
	"net/netip"
	"slices"
	"strings"

	"github.com/vitistack/stack/apis/network/ipam"
	"github.com/vitistack/stack/apis/v1alpha2"
)

// Segment is a network as its provider describes it. A prefix or an address that it does
// not have is the zero value.
type Segment struct {
	ID                       string
	IPv4, IPv6               netip.Prefix
	IPv4Gateway, IPv6Gateway netip.Addr
	IPv4Egress, IPv6Egress   netip.Addr
	VLAN                     int32
	DNS                      []string
	// ExclusiveVLAN is whether no other namespace may have a network in the VLAN.
	ExclusiveVLAN bool
}

// Description is a segment as text, as responses in JSON have it.
type Description struct {
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

const (
	// maxID and maxDNS bound what a provider can write into the status.
	maxID  = 253
	maxDNS = 8
	// maxVLAN is the last VLAN of IEEE 802.1Q that is not reserved.
	maxVLAN = 4094
)

// Segment parses and checks a description. The error names the field that is wrong.
func (d Description) Segment() (Segment, error) {
	s := Segment{ID: d.ID, VLAN: d.VLANID, DNS: d.DNS}
	err := Parse(
		Field{"ipv4Prefix", d.IPv4Prefix, &s.IPv4},
		Field{"ipv4Gateway", d.IPv4Gateway, &s.IPv4Gateway},
		Field{"ipv4EgressIp", d.IPv4EgressIP, &s.IPv4Egress},
		Field{"ipv6Prefix", d.IPv6Prefix, &s.IPv6},
		Field{"ipv6Gateway", d.IPv6Gateway, &s.IPv6Gateway},
		Field{"ipv6EgressIp", d.IPv6EgressIP, &s.IPv6Egress},
	)
	if err != nil {
		return Segment{}, err
	}
	return s, s.Check()
}

// FromStatus returns the segment in the status of nn, and an error if there is none.
func FromStatus(nn *v1alpha2.NetworkNamespace) (Segment, error) {
	s := nn.Status
	return Description{
		ID: s.NamespaceID, VLANID: s.VLANID, DNS: s.DNS,
		IPv4Prefix: s.IPv4Prefix, IPv4Gateway: s.IPv4Gateway, IPv4EgressIP: s.IPv4EgressIP,
		IPv6Prefix: s.IPv6Prefix, IPv6Gateway: s.IPv6Gateway, IPv6EgressIP: s.IPv6EgressIP,
	}.Segment()
}

// SetStatus copies a segment into the status of nn.
func SetStatus(nn *v1alpha2.NetworkNamespace, s Segment) {
	status := &nn.Status
	status.NamespaceID = s.ID
	status.IPv4Prefix, status.IPv4Gateway, status.IPv4EgressIP = Text(s.IPv4), Text(s.IPv4Gateway), Text(s.IPv4Egress)
	status.IPv6Prefix, status.IPv6Gateway, status.IPv6EgressIP = Text(s.IPv6), Text(s.IPv6Gateway), Text(s.IPv6Egress)
	status.VLANID = s.VLAN
	status.DNS = s.DNS
}

// Field is a prefix or an address as text, and the value that it is parsed into.
type Field struct {
	Name, Text string
	Into       encoding.TextUnmarshaler
}

// Parse parses fields. An empty text is the zero value. The error names the field.
func Parse(fields ...Field) error {
	for _, f := range fields {
		if err := f.Into.UnmarshalText([]byte(f.Text)); err != nil {
			return fmt.Errorf("%s: %w", f.Name, err)
		}
	}
	return nil
}

// Text formats a prefix or an address. The zero value is the empty text.
func Text[T interface {
	netip.Prefix | netip.Addr
	IsValid() bool
	String() string
}](v T) string {
	if !v.IsValid() {
		return ""
	}
	return v.String()
}

// Check returns an error that says why machines cannot be in the segment. Every segment of
// a provider is checked before it is used, because a provider can be wrong.
func (s Segment) Check() error {
	switch {
	case !s.IPv4.IsValid() && !s.IPv6.IsValid():
		return fmt.Errorf("there is neither an IPv4 nor an IPv6 prefix")
	case s.VLAN < 0 || s.VLAN > maxVLAN:
		return fmt.Errorf("VLAN %d is not between 0 and %d", s.VLAN, maxVLAN)
	case len(s.ID) > maxID:
		return fmt.Errorf("its id is longer than %d characters", maxID)
	case len(s.DNS) > maxDNS:
		return fmt.Errorf("there are more than %d DNS servers", maxDNS)
	}
	for _, server := range s.DNS {
		if _, err := netip.ParseAddr(server); err != nil {
			return fmt.Errorf("dns: %w", err)
		}
	}
	if err := checkFamily(s.IPv4, s.IPv4Gateway, s.IPv4Egress, true); err != nil {
		return err
	}
	return checkFamily(s.IPv6, s.IPv6Gateway, s.IPv6Egress, false)
}

// unusablePrefixes are prefixes whose addresses are never those of another machine on a
// routed network: the host itself, and its link, where clouds serve credentials.
var unusablePrefixes = []netip.Prefix{
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
	case prefix.Bits() == 0 || prefix.Addr().IsMulticast() || slices.ContainsFunc(unusablePrefixes, prefix.Overlaps):
		return fmt.Errorf("prefix %s is not one of a network with machines", prefix)
	case !gateway.IsValid():
		return nil
	default:
		return ipam.CheckGateway(prefix, gateway)
	}
}

// CheckRequest returns an error that says which prefix of a request the segment lacks.
// Without families the request is for IPv4.
func (s Segment) CheckRequest(r v1alpha2.SegmentRequest) error {
	if len(r.IPFamilies) == 0 {
		r.IPFamilies = []v1alpha2.IPFamily{v1alpha2.IPv4}
	}
	for _, family := range r.IPFamilies {
		prefix, want := s.IPv4, int(r.IPv4PrefixLength)
		if family == v1alpha2.IPv6 {
			prefix, want = s.IPv6, int(r.IPv6PrefixLength)
		}
		switch {
		case !prefix.IsValid():
			return fmt.Errorf("the %s prefix that was requested is missing", family)
		case want > 0 && prefix.Bits() != want:
			return fmt.Errorf("prefix %s is not a /%d", prefix, want)
		}
	}
	return nil
}

// Contains reports whether an address is inside one of the segment's prefixes.
func (s Segment) Contains(a netip.Addr) bool { return s.IPv4.Contains(a) || s.IPv6.Contains(a) }

// Prefixes formats the prefixes for messages.
func (s Segment) Prefixes() string {
	var all []string
	for _, p := range []netip.Prefix{s.IPv4, s.IPv6} {
		if p.IsValid() {
			all = append(all, p.String())
		}
	}
	return strings.Join(all, " and ")
}

// String describes the segment for messages, for example
// 192.168.10.0/24 (gateway 192.168.10.1, VLAN 200).
func (s Segment) String() string {
	text := ""
	for _, g := range []netip.Addr{s.IPv4Gateway, s.IPv6Gateway} {
		if g.IsValid() {
			text += fmt.Sprintf("gateway %s, ", g)
		}
	}
	return fmt.Sprintf("%s (%sVLAN %d)", s.Prefixes(), text, s.VLAN)
}
