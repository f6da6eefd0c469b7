package v1alpha1

import "testing"

func TestSetInterfaces(t *testing.T) {
	t.Parallel()
	in := func(vlans ...string) (all []InterfaceStatus) {
		for _, vlan := range vlans {
			all = append(all, InterfaceStatus{VLAN: vlan})
		}
		return all
	}
	number := func(n int32) *int32 { return &n }
	for name, tc := range map[string]struct {
		reason string
		all    []InterfaceStatus
		want   *int32
	}{
		"None":     {"no interface has an address", nil, nil},
		"One":      {"the usual case", in("100"), number(100)},
		"Untagged": {"0 is the VLAN of an untagged network, and differs from an absent one", in("0", "0"), number(0)},
		"Moved":    {"an interface keeps an address of the VLAN that its network had before", in("100", "200"), nil},
		"Waiting":  {"an interface has no address yet", in("100", ""), nil},
	} {
		s := NetworkConfigurationStatus{}
		s.SetInterfaces(tc.all)
		if (s.VLANID == nil) != (tc.want == nil) || tc.want != nil && *s.VLANID != *tc.want {
			t.Errorf("%s: %s: got %v", name, tc.reason, s.VLANID)
		}
		if !s.IsVLANCurrent() {
			t.Errorf("%s: it is not current after it was written", name)
		}
		s.VLANID = number(4000)
		if s.IsVLANCurrent() {
			t.Errorf("%s: another VLAN counts as current", name)
		}
	}
}
