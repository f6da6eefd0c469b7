package plan

import (
	"cmp"
	"strings"
	"testing"

	"github.com/vitistack/stack/apis/v1alpha1"
	"github.com/vitistack/stack/apis/v1alpha2"
)

func TestCheckPrefixes(t *testing.T) {
	t.Parallel()
	for name, tc := range map[string]struct {
		reason         string
		networking     v1alpha1.ClusterNetworking
		host           string
		kubernetes     string
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
		"Services": {reason: "kube-apiserver 1.33 does not start with more than 20 bits", kubernetes: "1.33.4", networking: v1alpha1.ClusterNetworking{PodCIDR: "fd01::/56", ServiceCIDR: "fd02::/107"}, ipv6: "fd00:7::/64", says: "PrefixSize: serviceCIDR fd02::/107 has more addresses than Kubernetes 1.33.4 accepts: write a prefix of /108 to /124 into spec.networking.serviceCIDR"},
		"Most":     {reason: "20 bits are accepted", kubernetes: "1.33.4", networking: v1alpha1.ClusterNetworking{PodCIDR: "fd01::/56", ServiceCIDR: "fd02::/108"}, ipv6: "fd00:7::/64", pods: "fd01::/56", services: "fd02::/108"},
		"IPv4Size": {reason: "the same for IPv4", kubernetes: "1.33.4", networking: v1alpha1.ClusterNetworking{ServiceCIDR: "172.0.0.0/11"}, ipv4: "10.0.0.0/24", says: "write a prefix of /12 to /28"},
		"Newer":    {reason: "kube-apiserver 1.34 keeps no bitmap of the addresses", networking: v1alpha1.ClusterNetworking{PodCIDR: "fd01::/56", ServiceCIDR: "fd02::/64"}, ipv6: "fd00:7::/64", pods: "fd01::/56", services: "fd02::/64"},
		"Overlap":  {reason: "nodes could not reach each other", ipv4: "10.244.7.0/24", says: "podCIDR 10.244.0.0/16 overlaps 10.244.7.0/24"},
	} {
		nn := &v1alpha2.NetworkNamespace{}
		nn.Name, nn.Status.IPv4Prefix, nn.Status.IPv6Prefix = "lan", tc.ipv4, tc.ipv6
		endpoint := v1alpha1.ControlPlaneEndpoint{Host: tc.host}
		err := Plan{Endpoint: endpoint, Versions: Versions{Kubernetes: cmp.Or(tc.kubernetes, "1.34.2")}}.CheckPrefixes(&tc.networking, nn)
		if (err == nil) != (tc.says == "") || err != nil && !strings.Contains(err.Error(), tc.says) {
			t.Errorf("%s: %s: got %v, want %q", name, tc.reason, err, tc.says)
		}
		if got := WithDefaultPrefixes(tc.networking, hostIn(endpoint, nn)); tc.says == "" && (got.PodCIDR != tc.pods || got.ServiceCIDR != tc.services) {
			t.Errorf("%s: %s: got %s and %s", name, tc.reason, got.PodCIDR, got.ServiceCIDR)
		}
	}
}
