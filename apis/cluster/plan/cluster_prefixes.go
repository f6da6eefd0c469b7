package plan

import (
	"fmt"
	"net/netip"

	"github.com/vitistack/stack/apis/usererror"
	"github.com/vitistack/stack/apis/v1alpha1"
	"github.com/vitistack/stack/apis/v1alpha2"
)

// Prefixes of clusters that name none. They are the defaults of Talos.
const (
	defaultPodCIDR     = "10.244.0.0/16"
	defaultServiceCIDR = "10.96.0.0/12"
)

// CheckClusterPrefixes returns a UserError if the prefixes of pods or Services overlap the machines'
// network: the nodes could not reach each other.
func CheckClusterPrefixes(n *v1alpha1.ClusterNetworking, nn *v1alpha2.NetworkNamespace) error {
	inside := map[string]string{"podCIDR": defaultPodCIDR, "serviceCIDR": defaultServiceCIDR}
	if n != nil && n.PodCIDR != "" {
		inside["podCIDR"] = n.PodCIDR
	}
	if n != nil && n.ServiceCIDR != "" {
		inside["serviceCIDR"] = n.ServiceCIDR
	}
	for _, field := range []string{"podCIDR", "serviceCIDR"} {
		for _, text := range []string{nn.Status.IPv4Prefix, nn.Status.IPv6Prefix} {
			own, ownErr := netip.ParsePrefix(inside[field])
			machines, err := netip.ParsePrefix(text)
			if ownErr == nil && err == nil && own.Overlaps(machines) {
				return usererror.Error{Reason: "NetworkOverlap", Message: fmt.Sprintf(
					"%s %s overlaps %s of NetworkNamespace %q, which the machines are in: write another prefix into spec.networking.%s", field, own, machines, nn.Name, field)}
			}
		}
	}
	return nil
}
