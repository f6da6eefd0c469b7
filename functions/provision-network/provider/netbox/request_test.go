package netbox

import (
	"errors"
	"fmt"
	"testing"

	"github.com/vitistack/stack/apis/v1alpha1"
	"github.com/vitistack/stack/apis/v1alpha2"
	"github.com/vitistack/stack/functions/provision-network/provider"
	sim "github.com/vitistack/stack/tests/sim/netbox"
)

// TestRequestChanges changes the request of a network whose segment exists. The first call finds that the new request does not
// describe the segment, and the second call, after its release, creates another one.
func TestRequestChanges(t *testing.T) {
	t.Parallel()
	groups := append(shelves().Groups, sim.Group{Slug: "cores", Min: 400, Max: 402})
	both := []v1alpha2.IPFamily{v1alpha2.IPv4, v1alpha2.IPv6}
	for name, tc := range map[string]struct {
		reason string
		change func(*v1alpha2.NetBoxRequest)
		kept   bool
		refuse string
		left   string
	}{
		"Same":       {reason: "the request is the same", change: func(*v1alpha2.NetBoxRequest) {}, kept: true, left: "[10.51.0.0/26 2001:db8:50::/64] [300]"},
		"Families":   {reason: "the order of the families does not matter", change: func(r *v1alpha2.NetBoxRequest) { r.IPFamilies = []v1alpha2.IPFamily{"IPv6", "IPv4"} }, kept: true, left: "[10.51.0.0/26 2001:db8:50::/64] [300]"},
		"Default":    {reason: "the request names the default", change: func(r *v1alpha2.NetBoxRequest) { r.IPv6PrefixLength = 64 }, kept: true, left: "[10.51.0.0/26 2001:db8:50::/64] [300]"},
		"Length":     {reason: "the IPv4 prefix has another length", change: func(r *v1alpha2.NetBoxRequest) { r.IPv4PrefixLength = 25 }, left: "[10.52.0.0/25 2001:db8:50::/64] [300]"},
		"IPv6Length": {reason: "the IPv6 prefix has another length", change: func(r *v1alpha2.NetBoxRequest) { r.IPv6PrefixLength = 80 }, left: "[10.51.0.0/26 2001:db8:50::/80] [300]"},
		"Fewer":      {reason: "IPv6 is not requested", change: func(r *v1alpha2.NetBoxRequest) { r.IPFamilies = both[:1] }, left: "[10.51.0.0/26] [300]"},
		"Site":       {reason: "the prefix is of another site", change: func(r *v1alpha2.NetBoxRequest) { r.Site, r.IPFamilies = "az2", both[:1] }, left: "[10.53.0.0/26] [300]"},
		"Role":       {reason: "the role does not exist, and the prefixes stay until it is corrected", change: func(r *v1alpha2.NetBoxRequest) { r.Role = "guests" }, kept: true, refuse: "NoParentPrefix", left: "[10.51.0.0/26 2001:db8:50::/64] [300]"},
		"NoPrefix": {reason: "no prefix has the custom field, and the former ones are released", change: func(r *v1alpha2.NetBoxRequest) {
			r.CustomFields = map[string]string{"tier": "bronze"}
		}, refuse: "NoParentPrefix", left: "[] [300]"},
		"CustomField": {reason: "the prefix is of a parent without the custom field", change: func(r *v1alpha2.NetBoxRequest) {
			r.CustomFields, r.IPFamilies = map[string]string{"tier": "gold"}, both[:1]
		}, left: "[10.52.0.0/26] [300]"},
		"Group":   {reason: "the VLAN is of another group", change: func(r *v1alpha2.NetBoxRequest) { r.VLANGroup = "cores" }, left: "[10.51.0.0/26 2001:db8:50::/64] [400]"},
		"NoGroup": {reason: "no VLAN is requested", change: func(r *v1alpha2.NetBoxRequest) { r.VLANGroup = "" }, left: "[10.51.0.0/26 2001:db8:50::/64] []"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			l := newLibrary(t, sim.Options{Parents: shelves().Parents, Groups: groups})
			request := v1alpha2.NetBoxRequest{VLANGroup: "leafs", SegmentRequest: v1alpha2.SegmentRequest{IPv4PrefixLength: 26, IPFamilies: both}}
			nn := someNetwork(uidA, netboxSpec(request))
			if _, err := l.netbox.Provide(t.Context(), nn); err != nil {
				t.Fatal(err)
			}
			tc.change(nn.Spec.NetworkProvisioning.NetBox)
			_, err := l.netbox.Provide(t.Context(), nn)
			if !tc.kept {
				if reasonIn(err) != provider.ReasonWorking {
					t.Errorf("%s: the first call returns %v, want that it is working", tc.reason, err)
				}
				if e := (provider.Error{}); !errors.As(err, &e) || !e.Outdated {
					t.Errorf("%s: the first call returns %v, want that the segment is outdated", tc.reason, err)
				}
				if err := l.netbox.Release(t.Context(), nn); err != nil {
					t.Fatal(err)
				}
				_, err = l.netbox.Provide(t.Context(), nn)
			}
			if reasonIn(err) != tc.refuse || tc.refuse == "" && err != nil {
				t.Errorf("%s: got %v, want %q", tc.reason, err, tc.refuse)
			}
			prefixes, addresses, vlans := l.Taken()
			if left := fmt.Sprint(prefixes, vlans); left != tc.left || len(addresses) != len(prefixes) {
				t.Errorf("%s: NetBox has %s with %v, want %s", tc.reason, left, addresses, tc.left)
			}
		})
	}
}

// TestKeepsAdopted changes the request of a network that was created again and has lost its status. Machines may use its segment,
// so the segment stays.
func TestKeepsAdopted(t *testing.T) {
	t.Parallel()
	l := newLibrary(t, shelves())
	request := v1alpha2.NetBoxRequest{VLANGroup: "leafs", SegmentRequest: v1alpha2.SegmentRequest{IPv4PrefixLength: 26}}
	if _, err := l.netbox.Provide(t.Context(), someNetwork(uid(1), netboxSpec(request))); err != nil {
		t.Fatal(err)
	}
	request.IPv4PrefixLength = 25
	again := someNetwork(uid(2), netboxSpec(request))
	again.Annotations = map[string]string{v1alpha1.AnnotationFormerUIDs: uid(1)}
	for range 2 {
		if _, err := l.netbox.Provide(t.Context(), again); reasonIn(err) != "SourceUnexpectedAnswer" {
			t.Errorf("got %v, want an error about the length", err)
		}
	}
	if prefixes, _, vlans := l.Taken(); fmt.Sprint(prefixes, vlans) != "[10.51.0.0/26] [300]" {
		t.Errorf("NetBox has %v, %v", prefixes, vlans)
	}
}
