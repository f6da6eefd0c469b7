package segment

// Same reports whether two segments have the same prefixes and VLAN.
func (s Segment) Same(o Segment) bool {
	return s.VLAN == o.VLAN && s.IPv4 == o.IPv4 && s.IPv6 == o.IPv6
}

// Overlaps reports whether two segments share addresses in the same VLAN.
func (s Segment) Overlaps(o Segment) bool {
	return s.VLAN == o.VLAN && (s.IPv4.IsValid() && o.IPv4.IsValid() && s.IPv4.Overlaps(o.IPv4) ||
		s.IPv6.IsValid() && o.IPv6.IsValid() && s.IPv6.Overlaps(o.IPv6))
}
