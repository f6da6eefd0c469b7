package plan

import (
	"fmt"
	"strings"

	"github.com/vitistack/stack/apis/v1alpha1"
	"github.com/vitistack/stack/apis/v1alpha2"
)

// StaticProvider is the provider of addresses that the stack allocates itself.
const StaticProvider = "static-ip-operator"

// CheckOpen returns why a network accepts no new users, or nothing if it does.
func CheckOpen(nn *v1alpha2.NetworkNamespace) string {
	if nn.DeletionTimestamp == nil {
		return ""
	}
	return fmt.Sprintf("NetworkNamespace %s is being deleted, and allocates no addresses: delete what you created in it (the KubernetesCluster, Machine, NetworkConfiguration or IPAllocation), and create it again in another network", nn.Name)
}

// CheckVLAN returns a message if a NetworkConfiguration names another VLAN than that of its
// network, and nothing otherwise. Other machines may use its addresses in another VLAN.
func CheckVLAN(nc *v1alpha1.NetworkConfiguration, nn *v1alpha2.NetworkNamespace) string {
	if nc.Spec.VLAN == nil || int32(*nc.Spec.VLAN) == nn.Status.VLANID {
		return ""
	}
	return fmt.Sprintf("spec.vlan is %d, but NetworkNamespace %s is in VLAN %d: leave spec.vlan out, or write %d", *nc.Spec.VLAN, nn.Name, nn.Status.VLANID, nn.Status.VLANID)
}

// ServesStatic reports whether the stack itself allocates the addresses of an object in a network. provider is the one
// that the object names, or empty. problem says how the two contradict each other, and is empty if they do not.
func ServesStatic(nn *v1alpha2.NetworkNamespace, provider string) (ours bool, problem string) {
	policy := nn.Spec.IPAllocation
	static := policy != nil && policy.Type == v1alpha2.AllocationStatic
	switch {
	case static && policy.Provider != "" && !strings.EqualFold(policy.Provider, StaticProvider):
		return false, ""
	case static && (provider == "" || strings.EqualFold(provider, StaticProvider)):
		return true, ""
	case static:
		return false, fmt.Sprintf("NetworkNamespace %s allocates addresses by %s, but spec.provider is %s: leave spec.provider out", nn.Name, StaticProvider, provider)
	case strings.EqualFold(provider, StaticProvider):
		return false, fmt.Sprintf("NetworkNamespace %s allocates addresses by dhcp, but spec.provider is %s: leave spec.provider out", nn.Name, provider)
	default:
		return false, ""
	}
}

// CheckStatic returns why users cannot reserve addresses of a network, or nothing if they can.
func CheckStatic(nn *v1alpha2.NetworkNamespace) string {
	if served, _ := ServesStatic(nn, ""); served {
		return ""
	}
	return fmt.Sprintf("NetworkNamespace %s allocates addresses by dhcp: name one whose ipAllocation.type is static", nn.Name)
}
