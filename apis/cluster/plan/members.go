package plan

import (
	"slices"

	"github.com/vitistack/stack/apis/cluster/nodeconfig"
	"github.com/vitistack/stack/apis/v1alpha1"
)

// MaxConcurrentNodes is the number of nodes that a delivery talks to at the same time.
const MaxConcurrentNodes = 8

// Plan is what a spec asks for: machines, versions and an endpoint.
type Plan struct {
	Versions
	// Groups are the control plane and the pools, and Members their machines, control planes
	// first. A group that is scaled down has more members than replicas until they are removed.
	Groups   []Group
	Members  []Member
	Endpoint v1alpha1.ControlPlaneEndpoint
	// Port is the port of the endpoint.
	Port int32
}

// Group is the control plane or a pool of workers.
type Group struct {
	Pool, Role string
	Replicas   int
	// version is the Kubernetes version of its machines, without v.
	version    string
	Properties v1alpha1.MachineProperties
	// Rollout bounds how many of its machines are replaced at the same time.
	Rollout RolloutLimits
	// InPlace is whether its machines get another size in place if they can.
	InPlace bool
	// NodeConfig are the parts of the configurations of its nodes that only a new node gets, or nil if
	// they are not known.
	NodeConfig nodeconfig.Parts
}

// Member is one planned machine of a cluster.
type Member struct {
	Name, Role, Pool string
	// Version is the Kubernetes version of the machine, without v.
	Version    string
	Properties v1alpha1.MachineProperties
}

// CountRole returns the number of members with a role.
func (p Plan) CountRole(role string) (n int) {
	for _, m := range p.Members {
		if m.Role == role {
			n++
		}
	}
	return n
}

// ControlPlanes returns the members that run the control plane.
func (p Plan) ControlPlanes() []Member {
	return slices.DeleteFunc(slices.Clone(p.Members), func(m Member) bool { return m.Role != v1alpha1.RoleControlPlane })
}
