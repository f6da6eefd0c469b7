package main

import (
	"errors"
	"fmt"
	"slices"
	"strconv"
	"strings"

	"k8s.io/apimachinery/pkg/api/meta"

	networkplan "github.com/vitistack/stack/apis/network/plan"
	"github.com/vitistack/stack/apis/v1alpha1"
	"github.com/vitistack/stack/apis/v1alpha2"
	"github.com/vitistack/stack/functions/internal/network"
	"github.com/vitistack/stack/functions/internal/reconcile"
)

// Values of provider: the one that selects this function, and the one that
// selects static addresses.
const (
	keaProvider    = "kea"
	staticProvider = "static-ip-operator"
)

// isServed reports whether this function allocates the addresses of a NetworkConfiguration.
// Its error is a UserError if the network and the NetworkConfiguration contradict each other
// without naming another function:
//
//	ipAllocation        spec.provider       result
//	static              any                 not served
//	dhcp by another     any                 not served
//	dhcp                static-ip-operator  not served: allocate-ip reports it
//	dhcp                anything else       served, ProviderMismatch
//	dhcp, absent        absent, kea         served
//	the last, strict    one is absent       served, ProviderNotExplicit
func isServed(nc *v1alpha1.NetworkConfiguration, nn *v1alpha2.NetworkNamespace, strict bool) (bool, error) {
	policy, provider := nn.Spec.IPAllocation, nc.Spec.Provider
	switch {
	case policy != nil && policy.Type != v1alpha2.AllocationDHCP,
		policy != nil && policy.Provider != "" && !strings.EqualFold(policy.Provider, keaProvider),
		strings.EqualFold(provider, staticProvider):
		return false, nil
	case provider != "" && !strings.EqualFold(provider, keaProvider):
		return true, reconcile.UserError{Reason: "ProviderMismatch", Message: fmt.Sprintf(
			"NetworkNamespace %s allocates addresses by %s, but spec.provider is %s: leave spec.provider out", nn.Name, keaProvider, provider)}
	case strict && provider == "":
		return true, reconcile.UserError{Reason: "ProviderNotExplicit", Message: "KEA_STRICT_DEFAULTS is set: write kea into spec.provider"}
	case strict && policy == nil:
		return true, reconcile.UserError{Reason: "ProviderNotExplicit", Message: fmt.Sprintf(
			"KEA_STRICT_DEFAULTS is set: write dhcp into spec.ipAllocation.type of NetworkNamespace %s", nn.Name)}
	default:
		return true, nil
	}
}

// hasStaticAddresses reports whether allocate-ip has allocated addresses to a
// NetworkConfiguration, and Kea has no reservation for it. Its network need not be read then.
func hasStaticAddresses(nc *v1alpha1.NetworkConfiguration) bool {
	has := func(i v1alpha1.InterfaceStatus) bool { return i.AllocationMethod == v1alpha2.AllocationStatic }
	return slices.ContainsFunc(nc.Status.NetworkInterfaces, has) && !slices.Contains(nc.Finalizers, v1alpha1.FinalizerKea)
}

// checkNetworkReady returns a WaitError if a network is not provisioned.
func checkNetworkReady(nn *v1alpha2.NetworkNamespace) error {
	if network.IsProvisioned(nn) {
		return nil
	}
	message := fmt.Sprintf("waiting for NetworkNamespace %s to be provisioned", nn.Name)
	if c := meta.FindStatusCondition(nn.Status.Conditions, v1alpha1.ConditionReady); c != nil {
		message = fmt.Sprintf("waiting for NetworkNamespace %s: %s: %s", nn.Name, c.Reason, c.Message)
	}
	return reconcile.WaitError{Reason: reasonNotReady, Message: message}
}

const reasonNotReady = "NetworkNotReady"

func isNetworkNotReady(err error) bool {
	var wait reconcile.WaitError
	return errors.As(err, &wait) && wait.Reason == reasonNotReady
}

// checkOpen returns a UserError if a network is being deleted and an interface has no address
// of it yet.
func checkOpen(nn *v1alpha2.NetworkNamespace, r request) error {
	message := networkplan.CheckOpen(nn)
	if message == "" || !slices.ContainsFunc(r.interfaces, func(i interfaceRequest) bool { return !i.current.IsValid() }) {
		return nil
	}
	return reconcile.UserError{Reason: "NetworkDeleting", Message: message}
}

// isReserved reports whether every Kea server has the reservations that a request asks for,
// according to the status.
func isReserved(nc *v1alpha1.NetworkConfiguration, req request, nn *v1alpha2.NetworkNamespace) bool {
	s := &nc.Status
	return meta.IsStatusConditionTrue(s.Conditions, v1alpha1.ConditionReady) &&
		!meta.IsStatusConditionFalse(s.Conditions, conditionRedundant) &&
		s.ObservedGeneration == nc.Generation && statusMatches(nc, req, nn)
}

// statusMatches reports whether the status has a reservation for each interface, with the
// prefix, gateway and DNS servers that the network has now.
func statusMatches(nc *v1alpha1.NetworkConfiguration, req request, nn *v1alpha2.NetworkNamespace) bool {
	if len(nc.Status.NetworkInterfaces) != len(req.interfaces) {
		return false
	}
	for i, nic := range req.interfaces {
		s := nc.Status.NetworkInterfaces[i]
		if !nic.current.IsValid() || !s.DHCPReserved || (nic.requested.IsValid() && nic.requested != nic.current) {
			return false
		}
		now := interfaceStatus(nc.Spec.NetworkInterfaces[i], nic, req, nn, nic.current)
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
