package segment

import (
	"errors"
	"net/netip"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/vitistack/stack/apis/usererror"
	"github.com/vitistack/stack/apis/v1alpha2"
)

func TestFromSpec(t *testing.T) {
	t.Parallel()
	block := func(m v1alpha2.ManualSegment) v1alpha2.NetworkNamespaceSpec {
		return v1alpha2.NetworkNamespaceSpec{NetworkProvisioning: &v1alpha2.NetworkProvisioning{Provider: "manual", Manual: &m}}
	}
	cases := map[string]struct {
		reason  string
		spec    v1alpha2.NetworkNamespaceSpec
		want    Segment
		wantErr string
	}{
		"IPv4": {
			reason: "prefix, gateway and VLAN are copied",
			spec:   block(v1alpha2.ManualSegment{IPv4CIDR: "192.168.10.0/24", IPv4Gateway: "192.168.10.1", VLANID: 200}),
			want:   Segment{IPv4: netip.MustParsePrefix("192.168.10.0/24"), IPv4Gateway: netip.MustParseAddr("192.168.10.1"), VLAN: 200},
		},
		"LinkLocal": {
			reason:  "machines could reach the cloud's metadata service",
			spec:    block(v1alpha2.ManualSegment{IPv4CIDR: "169.254.169.0/24"}),
			wantErr: "spec.networkProvisioning.manual: prefix 169.254.169.0/24 is not one of a network with machines",
		},
		"AroundLinkLocal": {
			reason:  "the prefix includes the metadata service",
			spec:    block(v1alpha2.ManualSegment{IPv4CIDR: "168.0.0.0/6"}),
			wantErr: "spec.networkProvisioning.manual: prefix 168.0.0.0/6 is not one of a network with machines",
		},
		"DualStack": {
			reason: "both families are served",
			spec:   block(v1alpha2.ManualSegment{IPv4CIDR: "10.0.0.0/30", IPv6CIDR: "2001:db8::/64", IPv6Gateway: "2001:db8::1"}),
			want:   Segment{IPv4: netip.MustParsePrefix("10.0.0.0/30"), IPv6: netip.MustParsePrefix("2001:db8::/64"), IPv6Gateway: netip.MustParseAddr("2001:db8::1")},
		},
		"Inferred": {
			reason: "a network without networkProvisioning is described in its pool",
			spec: v1alpha2.NetworkNamespaceSpec{IPAllocation: &v1alpha2.IPAllocationPolicy{Type: "static",
				Static: &v1alpha2.StaticPool{IPv4CIDR: "10.0.0.0/24", IPv4Gateway: "10.0.0.1", VLANID: 7}}},
			want: Segment{IPv4: netip.MustParsePrefix("10.0.0.0/24"), IPv4Gateway: netip.MustParseAddr("10.0.0.1"), VLAN: 7},
		},
		"Empty":              {reason: "there is nothing to copy", wantErr: "spec.networkProvisioning.manual: there is neither an IPv4 nor an IPv6 prefix"},
		"NoPrefix":           {reason: "the prefix must parse", spec: block(v1alpha2.ManualSegment{IPv4CIDR: "10.0.0/24"}), wantErr: `spec.networkProvisioning.manual.ipv4CIDR: netip.ParsePrefix("10.0.0/24"): ParseAddr("10.0.0"): IPv4 address too short`},
		"HostBits":           {reason: "host bits in a prefix are most likely a mistake", spec: block(v1alpha2.ManualSegment{IPv4CIDR: "10.0.0.7/24"}), wantErr: "spec.networkProvisioning.manual: prefix 10.0.0.7/24 has host bits set: write 10.0.0.0/24"},
		"GatewayOutside":     {reason: "machines could not reach the gateway", spec: block(v1alpha2.ManualSegment{IPv4CIDR: "10.0.0.0/24", IPv4Gateway: "10.0.1.1"}), wantErr: "spec.networkProvisioning.manual: gateway 10.0.1.1 is outside of 10.0.0.0/24"},
		"NetworkAsGateway":   {reason: "no host can have the network address", spec: block(v1alpha2.ManualSegment{IPv4CIDR: "10.0.0.0/24", IPv4Gateway: "10.0.0.0"}), wantErr: "spec.networkProvisioning.manual: gateway 10.0.0.0 is the network address of 10.0.0.0/24, which no host can have"},
		"BroadcastAsGateway": {reason: "no host can have the broadcast address", spec: block(v1alpha2.ManualSegment{IPv4CIDR: "10.0.0.0/24", IPv4Gateway: "10.0.0.255"}), wantErr: "spec.networkProvisioning.manual: gateway 10.0.0.255 is the broadcast address of 10.0.0.0/24, which no host can have"},
		"LinkLocalGateway": {
			reason: "an IPv6 router announces a link-local address",
			spec:   block(v1alpha2.ManualSegment{IPv6CIDR: "2001:db8::/64", IPv6Gateway: "fe80::1"}),
			want:   Segment{IPv6: netip.MustParsePrefix("2001:db8::/64"), IPv6Gateway: netip.MustParseAddr("fe80::1")},
		},
		"WrongFamily": {reason: "an IPv6 prefix is no IPv4 prefix", spec: block(v1alpha2.ManualSegment{IPv4CIDR: "2001:db8::/64"}), wantErr: "spec.networkProvisioning.manual: prefix 2001:db8::/64 is of the other family"},
		"VLAN":        {reason: "4095 is reserved", spec: block(v1alpha2.ManualSegment{IPv4CIDR: "10.0.0.0/24", VLANID: 4095}), wantErr: "spec.networkProvisioning.manual: VLAN 4095 is not between 0 and 4094"},
	}
	for name, tc := range cases {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			got, err := FromSpec(&v1alpha2.NetworkNamespace{Spec: tc.spec})
			var problem usererror.Error
			if errors.As(err, &problem); problem.Message != tc.wantErr {
				t.Errorf("%s: got error %v, want %q", tc.reason, err, tc.wantErr)
			}
			if diff := cmp.Diff(tc.want, got, cmp.Comparer(func(a, b netip.Prefix) bool { return a == b }), cmp.Comparer(func(a, b netip.Addr) bool { return a == b })); err == nil && diff != "" {
				t.Errorf("%s (-want +got):\n%s", tc.reason, diff)
			}
		})
	}
}
