package v1alpha1

import "strconv"

// SetInterfaces writes the interfaces into the status, and with them their VLAN.
func (s *NetworkConfigurationStatus) SetInterfaces(all []InterfaceStatus) {
	s.NetworkInterfaces, s.VLANID = all, commonVLAN(all)
}

// IsVLANCurrent reports whether status.vlanId is the VLAN of the interfaces. An older version has not written it.
func (s *NetworkConfigurationStatus) IsVLANCurrent() bool {
	want := commonVLAN(s.NetworkInterfaces)
	return (want == nil) == (s.VLANID == nil) && (want == nil || *want == *s.VLANID)
}

// commonVLAN returns the VLAN that all interfaces have, or nil.
func commonVLAN(all []InterfaceStatus) *int32 {
	var common *int32
	for _, i := range all {
		vlan, err := strconv.ParseInt(i.VLAN, 10, 32)
		if err != nil || common != nil && *common != int32(vlan) {
			return nil
		}
		found := int32(vlan)
		common = &found
	}
	return common
}
