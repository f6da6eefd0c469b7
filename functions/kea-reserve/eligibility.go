package main

import (
	"fmt"
	"slices"
	"strconv"
	"strings"

	"k8s.io/apimachinery/pkg/api/meta"

	"github.com/vitistack/stack/apis/v1alpha1"
	"github.com/vitistack/stack/apis/v1alpha2"
	"github.com/vitistack/stack/functions/internal/network"
)

// Values of provider: the one that selects this function, and the one that
// selects static addresses.
const (
	keaProvider    = "kea"
	staticProvider = "static-ip-operator"
)

// isServed tells whether this function gives out the addresses of a network to a
// NetworkConfiguration. Where the two leave it open, or contradict each other
// without naming anybody else, problem says what to write.
//
//	ipAllocation        spec.provider       outcome
//	static              any                 not ours
//	dhcp by another     any                 not ours
//	dhcp                static-ip-operator  not ours: allocate-ip says so
//	dhcp                anything else       ours, ProviderMismatch
//	dhcp, absent        absent, kea         ours
//	the last, strict    one is absent       ours, ProviderNotExplicit
func isServed(nc *v1alpha1.NetworkConfiguration, nn *v1alpha2.NetworkNamespace, strict bool) (ours bool, p *problem) {
	policy, provider := nn.Spec.IPAllocation, nc.Spec.Provider
	switch {
	case policy != nil && policy.Type != v1alpha2.AllocationDHCP,
		policy != nil && policy.Provider != "" && !strings.EqualFold(policy.Provider, keaProvider),
		strings.EqualFold(provider, staticProvider):
		return false, nil
	case provider != "" && !strings.EqualFold(provider, keaProvider):
		return true, &problem{"ProviderMismatch", fmt.Sprintf(
			"NetworkNamespace %s gives addresses out by %s, but spec.provider is %s: leave spec.provider out", nn.Name, keaProvider, provider), true}
	case strict && provider == "":
		return true, &problem{"ProviderNotExplicit", "KEA_STRICT_DEFAULTS is set: write kea into spec.provider", true}
	case strict && policy == nil:
		return true, &problem{"ProviderNotExplicit", fmt.Sprintf(
			"KEA_STRICT_DEFAULTS is set: write dhcp into spec.ipAllocation.type of NetworkNamespace %s", nn.Name), true}
	default:
		return true, nil
	}
}

// hasStaticAddresses tells whether a NetworkConfiguration has been given static addresses, and
// nothing by this function, so that its network need not be looked at.
func hasStaticAddresses(nc *v1alpha1.NetworkConfiguration) bool {
	has := func(i v1alpha1.InterfaceStatus) bool { return i.AllocationMethod == v1alpha2.AllocationStatic }
	return slices.ContainsFunc(nc.Status.NetworkInterfaces, has) && !slices.Contains(nc.Finalizers, v1alpha1.FinalizerKea)
}

// checkNetworkReady says what a network waits for, and is nil if it is there.
func checkNetworkReady(nn *v1alpha2.NetworkNamespace) *problem {
	if network.Provisioned(nn) {
		return nil
	}
	message := fmt.Sprintf("waits for NetworkNamespace %s to be provisioned", nn.Name)
	if c := meta.FindStatusCondition(nn.Status.Conditions, v1alpha1.ConditionReady); c != nil {
		message = fmt.Sprintf("waits for NetworkNamespace %s: %s: %s", nn.Name, c.Reason, c.Message)
	}
	return &problem{reasonNotReady, message, false}
}

const reasonNotReady = "NetworkNotReady"

// isReady tells whether a NetworkConfiguration has what its spec asks for, which it keeps
// whatever becomes of its network.
func isReady(nc *v1alpha1.NetworkConfiguration) bool {
	return meta.IsStatusConditionTrue(nc.Status.Conditions, v1alpha1.ConditionReady) && nc.Status.ObservedGeneration == nc.Generation
}

// checkOpen says why a network does not take in an interface that has no address of it yet,
// and is nil where it does.
func checkOpen(nn *v1alpha2.NetworkNamespace, w request) *problem {
	message := network.Closed(nn)
	if message == "" || !slices.ContainsFunc(w.interfaces, func(n interfaceRequest) bool { return !n.current.IsValid() }) {
		return nil
	}
	return &problem{"NetworkDeleting", message, true}
}

// isReserved tells whether a NetworkConfiguration has been given on all servers what
// it needs now, by what its status says.
func isReserved(nc *v1alpha1.NetworkConfiguration, w request, nn *v1alpha2.NetworkNamespace) bool {
	s := &nc.Status
	return meta.IsStatusConditionTrue(s.Conditions, v1alpha1.ConditionReady) &&
		!meta.IsStatusConditionFalse(s.Conditions, conditionRedundant) &&
		s.ObservedGeneration == nc.Generation && statusMatches(nc, w, nn)
}

// statusMatches tells whether the status has a reservation for each interface on the
// terms of the network as it is now.
func statusMatches(nc *v1alpha1.NetworkConfiguration, w request, nn *v1alpha2.NetworkNamespace) bool {
	if len(nc.Status.NetworkInterfaces) != len(w.interfaces) {
		return false
	}
	for i, n := range w.interfaces {
		s := nc.Status.NetworkInterfaces[i]
		if !n.current.IsValid() || !s.DHCPReserved || (n.requested.IsValid() && n.requested != n.current) {
			return false
		}
		now := interfaceStatus(nc.Spec.NetworkInterfaces[i], n, w, nn, n.current)
		if !isSameInterface(s, now) {
			return false
		}
	}
	return true
}

func isSameInterface(a, b v1alpha1.InterfaceStatus) bool {
	return a.Name == b.Name && a.MACAddress == b.MACAddress && a.VLAN == b.VLAN && a.IPv4Subnet == b.IPv4Subnet &&
		a.IPv4Gateway == b.IPv4Gateway && slices.Equal(a.IPv4Addresses, b.IPv4Addresses) && slices.Equal(a.DNS, b.DNS)
}

func vlanOf(nn *v1alpha2.NetworkNamespace) string { return strconv.Itoa(int(nn.Status.VLANID)) }
