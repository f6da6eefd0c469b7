package plan

import (
	"strings"
	"testing"

	"github.com/vitistack/stack/apis/v1alpha1"
	"github.com/vitistack/stack/apis/v1alpha2"
)

func TestCheckClusterPrefixes(t *testing.T) {
	t.Parallel()
	for name, tc := range map[string]struct {
		reason         string
		networking     v1alpha1.ClusterNetworking
		host           string
		ipv4, ipv6     string
		says           string
		pods, services string
	}{
		"IPv4":     {reason: "the defaults of Talos", ipv4: "10.0.0.0/24", pods: "10.244.0.0/16", services: "10.96.0.0/12"},
		"IPv6":     {reason: "nodes without IPv4 have no address of the family of the usual prefixes", ipv6: "fd00:7::/64", pods: "fc00:db8:10::/56", services: "fc00:db8:20::/112"},
		"Both":     {reason: "the endpoint is of IPv4", ipv4: "10.0.0.0/24", ipv6: "fd00:7::/64", pods: "10.244.0.0/16", services: "10.96.0.0/12"},
		"Own":      {reason: "a cluster in both families may use IPv6", networking: v1alpha1.ClusterNetworking{PodCIDR: "fd01::/56", ServiceCIDR: "fd02::/112"}, ipv4: "10.0.0.0/24", ipv6: "fd00:7::/64", pods: "fd01::/56", services: "fd02::/112"},
		"Mismatch": {reason: "Talos finds no address for the nodes", networking: v1alpha1.ClusterNetworking{ServiceCIDR: "fd02::/112"}, ipv4: "10.0.0.0/24", says: "serviceCIDR fd02::/112 is of IPv6, and NetworkNamespace \"lan\" has only 10.0.0.0/24: write a prefix of IPv4 into spec.networking.serviceCIDR"},
		"Balancer": {reason: "the name of a load balancer says nothing of its family", host: "api.example.com", ipv6: "fd00:7::/64", says: "write a prefix of IPv6 into spec.networking.podCIDR"},
		"Overlap":  {reason: "nodes could not reach each other", ipv4: "10.244.7.0/24", says: "podCIDR 10.244.0.0/16 overlaps 10.244.7.0/24"},
	} {
		nn := &v1alpha2.NetworkNamespace{}
		nn.Name, nn.Status.IPv4Prefix, nn.Status.IPv6Prefix = "lan", tc.ipv4, tc.ipv6
		endpoint := v1alpha1.ControlPlaneEndpoint{Host: tc.host}
		err := CheckClusterPrefixes(&tc.networking, endpoint, nn)
		if (err == nil) != (tc.says == "") || err != nil && !strings.Contains(err.Error(), tc.says) {
			t.Errorf("%s: %s: got %v, want %q", name, tc.reason, err, tc.says)
		}
		if got := WithDefaultPrefixes(tc.networking, hostIn(endpoint, nn)); tc.says == "" && (got.PodCIDR != tc.pods || got.ServiceCIDR != tc.services) {
			t.Errorf("%s: %s: got %s and %s", name, tc.reason, got.PodCIDR, got.ServiceCIDR)
		}
	}
}
