package plan

import (
	"fmt"
	"net/netip"
	"slices"

	"github.com/vitistack/stack/apis/v1alpha1"
	"github.com/vitistack/stack/apis/v1alpha2"
	"github.com/vitistack/stack/functions/internal/reconcile"
)

// EndpointNode is a control plane, as far as it matters for who is the endpoint.
type EndpointNode struct {
	Address string
	// up has its configuration and runs, stays has not been told to go, and next is
	// the first of those that a new cluster will have.
	Running, Stays, First bool
}

// ChooseEndpointNode decides whose address is the endpoint of a cluster that has neither a
// virtual address nor a custom one:
//
//	who has it now stays                 the same, also while it is down
//	a new cluster                        its first control plane, once it has that
//	who had it leaves, or is gone        the first one that works and stays
//	and there is none                    the same: somebody has to come back
func ChooseEndpointNode(now string, planes []EndpointNode) string {
	for _, p := range planes {
		switch {
		case now != "" && p.Address == now && p.Stays:
			return now
		case now == "" && p.First:
			return p.Address
		}
	}
	if i := slices.IndexFunc(planes, func(p EndpointNode) bool { return p.Running && p.Stays }); now != "" && i >= 0 {
		return planes[i].Address
	}
	return now
}

// Prefixes of clusters that name none, which are Talos's own.
const (
	defaultPodCIDR     = "10.244.0.0/16"
	defaultServiceCIDR = "10.96.0.0/12"
)

// CheckOverlap refuses prefixes of pods and Services that overlap the machines' network:
// the nodes would not reach each other.
func CheckOverlap(n *v1alpha1.ClusterNetworking, nn *v1alpha2.NetworkNamespace) error {
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
				return reconcile.UserError{Reason: "NetworkOverlap", Message: fmt.Sprintf(
					"%s %s overlaps %s of NetworkNamespace %q, which the machines are in: write another prefix into spec.networking.%s", field, own, machines, nn.Name, field)}
			}
		}
	}
	return nil
}

// endpointOf is how the workload API is reached: as the spec says, or else by a
// virtual address where there is more than one control plane.
func endpointOf(kc *v1alpha1.KubernetesCluster) v1alpha1.ControlPlaneEndpoint {
	switch {
	case kc.Spec.ControlPlaneEndpoint != nil:
		return *kc.Spec.ControlPlaneEndpoint
	case kc.Spec.Topology.ControlPlane.Replicas > 1:
		return v1alpha1.ControlPlaneEndpoint{Mode: v1alpha1.EndpointVIP}
	default:
		return v1alpha1.ControlPlaneEndpoint{Mode: v1alpha1.EndpointNode}
	}
}

// LocalPort is where the API server of each control plane listens. What is in front of a
// custom endpoint leads its port there.
func (p Plan) LocalPort() int32 {
	return Pick(p.Endpoint.Mode == v1alpha1.EndpointCustom, DefaultPort, p.Port)
}
