package plan

import (
	"cmp"
	"fmt"
	"net/netip"

	"github.com/vitistack/stack/apis/usererror"
	"github.com/vitistack/stack/apis/v1alpha1"
	"github.com/vitistack/stack/apis/v1alpha2"
)

// Prefixes of clusters that name none. They are the defaults of Talos.
const (
	defaultPodCIDR         = "10.244.0.0/16"
	defaultServiceCIDR     = "10.96.0.0/12"
	defaultIPv6PodCIDR     = "fc00:db8:10::/56"
	defaultIPv6ServiceCIDR = "fc00:db8:20::/112"
)

// WithDefaultPrefixes returns the networking of a cluster with the prefixes of pods and Services that it does not name: those of IPv6
// if the host of its endpoint is an IPv6 address. Talos selects the addresses of nodes by the families of these prefixes.
func WithDefaultPrefixes(n v1alpha1.ClusterNetworking, host string) v1alpha1.ClusterNetworking {
	pods, services := defaultPodCIDR, defaultServiceCIDR
	if address, err := netip.ParseAddr(host); err == nil && address.Is6() {
		pods, services = defaultIPv6PodCIDR, defaultIPv6ServiceCIDR
	}
	n.PodCIDR, n.ServiceCIDR = cmp.Or(n.PodCIDR, pods), cmp.Or(n.ServiceCIDR, services)
	return n
}

// hostIn returns a host of the endpoint that a new cluster in a network will have: what its spec names, or any address of the network.
func hostIn(e v1alpha1.ControlPlaneEndpoint, nn *v1alpha2.NetworkNamespace) string {
	prefix, err := netip.ParsePrefix(cmp.Or(nn.Status.IPv4Prefix, nn.Status.IPv6Prefix))
	if e.Host != "" || err != nil {
		return e.Host
	}
	return prefix.Addr().String()
}

// CheckPrefixes returns a UserError if Kubernetes refuses the size of the prefix of Services, or if the prefixes of pods or Services
// overlap the machines' network, so that the nodes could not reach each other, or are of a family that the network has not, so that no
// node has an address.
func (p Plan) CheckPrefixes(n *v1alpha1.ClusterNetworking, nn *v1alpha2.NetworkNamespace) error {
	var wanted v1alpha1.ClusterNetworking
	if n != nil {
		wanted = *n
	}
	wanted = WithDefaultPrefixes(wanted, hostIn(p.Endpoint, nn))
	for _, inside := range []struct{ field, prefix string }{{"podCIDR", wanted.PodCIDR}, {"serviceCIDR", wanted.ServiceCIDR}} {
		own, err := netip.ParsePrefix(inside.prefix)
		if err != nil {
			continue // the API server's rules have refused it
		}
		family, same, other, otherFamily := "IPv4", nn.Status.IPv4Prefix, nn.Status.IPv6Prefix, "IPv6"
		if !own.Addr().Is4() {
			family, same, other, otherFamily = otherFamily, other, same, family
		}
		if same == "" && other != "" {
			return usererror.Error{Reason: "FamilyMismatch", Message: fmt.Sprintf(
				"%s %s is of %s, and NetworkNamespace %q has only %s: write a prefix of %s into spec.networking.%s", inside.field, own, family, nn.Name, other, otherFamily, inside.field)}
		}
		if machines, err := netip.ParsePrefix(same); err == nil && own.Overlaps(machines) {
			return usererror.Error{Reason: "NetworkOverlap", Message: fmt.Sprintf(
				"%s %s overlaps %s of NetworkNamespace %q, which the machines are in: write another prefix into spec.networking.%s", inside.field, own, machines, nn.Name, inside.field)}
		}
	}
	return p.checkServicePrefix(wanted.ServiceCIDR)
}

// maxServiceBits is how many bits of the prefix of Services kube-apiserver leaves to addresses before Kubernetes 1.34, and
// minServiceBits how many the address of the cluster's DNS needs, the tenth. The CRD has the rules of every version.
//
// Source: validateMaxCIDRRange in cmd/kube-apiserver/app/options/validation.go, which the feature DisableAllocatorDualWrite
// switches off (pkg/features/kube_features.go: on by default since 1.34).
const (
	maxServiceBits = 20
	minServiceBits = 4
)

// checkServicePrefix returns a UserError if the API server of the Kubernetes version does not start with a prefix of Services.
func (p Plan) checkServicePrefix(cidr string) error {
	prefix, err := netip.ParsePrefix(cidr)
	if err != nil || parseVersion(p.Kubernetes).Minor >= 34 || prefix.Addr().BitLen()-prefix.Bits() <= maxServiceBits {
		return nil
	}
	all := prefix.Addr().BitLen()
	return usererror.Error{Reason: "PrefixSize", Message: fmt.Sprintf(
		"serviceCIDR %s has more addresses than Kubernetes %s accepts: write a prefix of /%d to /%d into spec.networking.serviceCIDR", prefix, p.Kubernetes, all-maxServiceBits, all-minServiceBits)}
}
