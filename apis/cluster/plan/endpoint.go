package plan

import (
	"slices"

	"github.com/vitistack/stack/apis/v1alpha1"
)

// EndpointNode is a control plane that may be the endpoint.
type EndpointNode struct {
	Address string
	// Running is whether it runs with its configuration, Stays whether it is not being removed, and
	// First whether it is the first one of a new cluster.
	Running, Stays, First bool
}

// ChooseEndpointNode decides whose address is the endpoint of a cluster with neither a virtual
// address nor a custom endpoint. present is the one of the status:
//
//	present one stays                      the same, also while it is down
//	new cluster                            the first control plane, once it has an address
//	present one leaves or does not exist   the first one that runs and stays
//	and no other one does                  the same, because it may come back
func ChooseEndpointNode(present string, planes []EndpointNode) string {
	for _, p := range planes {
		switch {
		case present != "" && p.Address == present && p.Stays:
			return present
		case present == "" && p.First:
			return p.Address
		}
	}
	if i := slices.IndexFunc(planes, func(p EndpointNode) bool { return p.Running && p.Stays }); present != "" && i >= 0 {
		return planes[i].Address
	}
	return present
}

// endpointOf returns the endpoint of the spec, and without one a virtual address if there is
// more than one control plane.
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

// VirtualAddressRemedy says what to do about a virtual address that cannot be allocated. requested is what its IPAllocation requests, which
// without an address in the spec is the one that the nodes have.
func (p Plan) VirtualAddressRemedy(requested string) string {
	switch {
	case p.Endpoint.Address != "":
		return "the address is written in spec.controlPlaneEndpoint.address"
	case requested != "":
		return "the control planes have this address: have its holder release it, or the pool of the NetworkNamespace include it"
	default:
		return "write mode node into spec.controlPlaneEndpoint, or mode custom with the host of a load balancer"
	}
}

// LocalPort returns the port on which the API server of each control plane listens. A custom
// endpoint forwards its port to it.
func (p Plan) LocalPort() int32 {
	if p.Endpoint.Mode == v1alpha1.EndpointCustom {
		return DefaultPort
	}
	return p.Port
}
