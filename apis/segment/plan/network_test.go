package plan

import (
	"testing"

	"github.com/vitistack/stack/apis/v1alpha2"
)

func TestProviderOf(t *testing.T) {
	t.Parallel()
	static := &v1alpha2.IPAllocationPolicy{Type: v1alpha2.AllocationStatic, Static: &v1alpha2.StaticPool{IPv4CIDR: "10.0.0.0/24", IPv4Gateway: "10.0.0.1"}}
	cases := map[string]struct {
		reason   string
		spec     v1alpha2.NetworkNamespaceSpec
		want     string
		inferred bool
	}{
		"Nothing":  {reason: "nam is the default", want: "nam", inferred: true},
		"Inline":   {reason: "a network that describes itself uses provider manual", spec: v1alpha2.NetworkNamespaceSpec{IPAllocation: static}, want: "manual", inferred: true},
		"Explicit": {reason: "an explicit provider takes precedence", spec: v1alpha2.NetworkNamespaceSpec{IPAllocation: static, NetworkProvisioning: &v1alpha2.NetworkProvisioning{Provider: "netbox"}}, want: "netbox"},
	}
	for name, tc := range cases {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			if got, inferred := ProviderOf(tc.spec); got != tc.want || inferred != tc.inferred {
				t.Errorf("%s: got %s, inferred %t", tc.reason, got, inferred)
			}
		})
	}
}
