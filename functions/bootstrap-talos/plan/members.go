package plan

import (
	"fmt"
	"slices"

	"github.com/vitistack/stack/apis/v1alpha1"
)

const FunctionName = "bootstrap-talos"

// MaxConcurrentNodes is how many nodes a delivery talks to at the same time.
const MaxConcurrentNodes = 8

// Plan is what a cluster's spec comes to.
type Plan struct {
	Versions
	// Groups are the control plane and the pools, members the machines that they
	// have, control planes first. While a group shrinks it has more members than
	// replicas.
	Groups   []Group
	Members  []Member
	Endpoint v1alpha1.ControlPlaneEndpoint
	Port     int32
}

// Group is the control plane or a pool.
type Group struct {
	Pool, Role string
	Replicas   int
	// version is the Kubernetes version of its machines, without v.
	version    string
	Properties v1alpha1.MachineProperties
}

// Member is one machine of a cluster.
type Member struct {
	Name, Role, Pool string
	// Version is the Kubernetes version of the machine, without v.
	Version    string
	Properties v1alpha1.MachineProperties
}

// ControlPlanePool is what the names of control planes have in the place of a
// pool's.
const ControlPlanePool = "cp"

func (p Plan) CountRole(role string) (n int) {
	for _, m := range p.Members {
		if m.Role == role {
			n++
		}
	}
	return n
}

// ControlPlanes are the members that run the control plane.
func (p Plan) ControlPlanes() []Member {
	return slices.DeleteFunc(slices.Clone(p.Members), func(m Member) bool { return m.Role != v1alpha1.RoleControlPlane })
}

func Pick[T any](ok bool, yes, no T) T {
	if ok {
		return yes
	}
	return no
}

func Quantity(n int, noun string) string {
	if n == 1 {
		return "1 " + noun
	}
	return fmt.Sprintf("%d %ss", n, noun)
}

// ClusterID is the name of a cluster for people and other systems.
func ClusterID(kc *v1alpha1.KubernetesCluster) string {
	if kc.Spec.Data.ClusterID != "" {
		return kc.Spec.Data.ClusterID
	}
	return kc.Name
}

// DefaultPort is where the API server of a cluster listens unless its spec names another port.
const DefaultPort = int32(6443)
