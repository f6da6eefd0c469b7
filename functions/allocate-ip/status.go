package main

import (
	"fmt"
	"net/netip"
	"slices"
	"strconv"
	"strings"

	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/vitistack/stack/apis/network/ipam"
	networkplan "github.com/vitistack/stack/apis/network/plan"
	"github.com/vitistack/stack/apis/v1alpha1"
	"github.com/vitistack/stack/apis/v1alpha2"
	"github.com/vitistack/stack/functions/internal/kube"
	"github.com/vitistack/stack/functions/internal/network"
	"github.com/vitistack/stack/functions/internal/reconcile"
)

// isComplete reports whether there is nothing to do for a NetworkConfiguration, unless a
// reconcile is requested.
func isComplete(nc *v1alpha1.NetworkConfiguration) bool {
	return nc.DeletionTimestamp != nil || (network.IsConfigured(nc) && !kube.ReconcileRequested(nc))
}

// isConfigurationOutdated reports whether a NetworkConfiguration that has its addresses shows
// settings that its network no longer has.
func isConfigurationOutdated(nc *v1alpha1.NetworkConfiguration, nn *v1alpha2.NetworkNamespace) bool {
	four, _ := ipam.New(nn, v1alpha2.IPv4) // an invalid pool contains no addresses
	six, _ := ipam.New(nn, v1alpha2.IPv6)
	var outside []string
	for _, i := range nc.Status.NetworkInterfaces {
		if i.AllocationMethod != v1alpha2.AllocationStatic {
			return false
		}
		now := i
		for _, text := range slices.Concat(i.IPv4Addresses, i.IPv6Addresses) {
			address, err := netip.ParseAddr(text)
			if err != nil || (!four.Contains(address) && !six.Contains(address)) {
				outside = append(outside, text)
			}
			setNetworkSettings(&now, nn, address)
		}
		if !hasSameSettings(i, now) {
			return true
		}
	}
	return nc.Status.Message != completedMessage(outside) || !nc.Status.IsVLANCurrent()
}

// completedMessage says that a NetworkConfiguration has what it needs. outside are addresses
// that its network no longer has.
func completedMessage(outside []string) string {
	if len(outside) == 0 {
		return "every interface has its addresses"
	}
	return "every interface has its addresses, but these are outside of the pool of the network: " + strings.Join(outside, ", ")
}

func hasSameSettings(a, b v1alpha1.InterfaceStatus) bool {
	return a.VLAN == b.VLAN && a.IPv4Gateway == b.IPv4Gateway && a.IPv6Gateway == b.IPv6Gateway &&
		a.IPv4Subnet == b.IPv4Subnet && a.IPv6Subnet == b.IPv6Subnet && slices.Equal(a.DNS, b.DNS)
}

// requiredAllocations returns the IPAllocations that a NetworkConfiguration needs: one for
// each interface with a MAC address and each family of the network.
func requiredAllocations(nc *v1alpha1.NetworkConfiguration, nn *v1alpha2.NetworkNamespace) []*v1alpha2.IPAllocation {
	var all []*v1alpha2.IPAllocation
	for _, i := range nc.Spec.NetworkInterfaces {
		if i.MACAddress == "" {
			continue
		}
		for _, family := range families(nn) {
			all = append(all, requiredAllocation(nc, nn, i, family))
		}
	}
	return all
}

func requiredAllocation(nc *v1alpha1.NetworkConfiguration, nn *v1alpha2.NetworkNamespace, i v1alpha1.InterfaceSpec, family v1alpha2.IPFamily) *v1alpha2.IPAllocation {
	a := &v1alpha2.IPAllocation{
		ObjectMeta: metav1.ObjectMeta{
			Namespace: nc.Namespace, Name: allocationName(nc.Name, i.Name, family),
			Labels: map[string]string{
				v1alpha2.LabelNetworkNamespace:     kube.LabelValue(nn.Name),
				v1alpha2.LabelNetworkConfiguration: kube.LabelValue(nc.Name),
			},
			OwnerReferences: kube.Owned(nc, v1alpha1.GroupVersion.String(), "NetworkConfiguration"),
			Finalizers:      []string{v1alpha1.FinalizerStaticIP},
		},
		Spec: v1alpha2.IPAllocationSpec{
			NetworkNamespaceName: nn.Name, NetworkConfigurationName: nc.Name, InterfaceName: i.Name, IPFamily: family,
		},
	}
	if family == v1alpha2.IPv4 && len(i.IPv4Addresses) > 0 {
		a.Spec.RequestedAddress = string(i.IPv4Addresses[0])
	}
	if family == v1alpha2.IPv6 && len(i.IPv6Addresses) > 0 {
		a.Spec.RequestedAddress = string(i.IPv6Addresses[0])
	}
	return a
}

// allocationName returns <networkconfiguration>-<interface>, with -v6 for IPv6.
func allocationName(nc, iface string, family v1alpha2.IPFamily) string {
	if family == v1alpha2.IPv6 {
		return kube.Name(nc, iface, "v6")
	}
	return kube.Name(nc, iface)
}

// obsoleteNames returns the names of the IPAllocations of interfaces that the status has and
// the spec does not.
func obsoleteNames(nc *v1alpha1.NetworkConfiguration, nn *v1alpha2.NetworkNamespace) []string {
	var names []string
	for _, had := range nc.Status.NetworkInterfaces {
		if !hasInterface(nc, had.Name) {
			for _, family := range families(nn) {
				names = append(names, allocationName(nc.Name, had.Name, family))
			}
		}
	}
	return names
}

// hasInterface reports whether the spec has an interface of a name with a MAC address.
func hasInterface(nc *v1alpha1.NetworkConfiguration, name string) bool {
	return slices.ContainsFunc(nc.Spec.NetworkInterfaces, func(i v1alpha1.InterfaceSpec) bool {
		return i.Name == name && i.MACAddress != ""
	})
}

// isOrphaned reports whether an IPAllocation belongs to a deleted NetworkConfiguration of the
// same name. The garbage collector deletes it.
func isOrphaned(a *v1alpha2.IPAllocation, nc *v1alpha1.NetworkConfiguration) bool {
	owner := metav1.GetControllerOf(a)
	return owner != nil && owner.Kind == "NetworkConfiguration" && owner.Name == nc.Name && owner.UID != nc.UID
}

// isForInterface reports whether an existing IPAllocation is the wanted one. A user may have
// created it before, to request an address.
func isForInterface(a, want *v1alpha2.IPAllocation) bool {
	s, w := a.Spec, want.Spec
	return s.NetworkNamespaceName == w.NetworkNamespaceName && s.NetworkConfigurationName == w.NetworkConfigurationName && s.InterfaceName == w.InterfaceName
}

// otherInterface names the interface that an existing IPAllocation is for, or is empty if that is the one of the wanted IPAllocation or none.
func otherInterface(a, want *v1alpha2.IPAllocation) string {
	s, w := a.Spec, want.Spec
	if s.NetworkConfigurationName == "" || s.NetworkConfigurationName == w.NetworkConfigurationName && s.InterfaceName == w.InterfaceName {
		return ""
	}
	return fmt.Sprintf("interface %s of NetworkConfiguration %s", s.InterfaceName, s.NetworkConfigurationName)
}

// needsOtherAddress reports whether an existing IPAllocation has another address than the
// required one requests, or waits for another. A user who created it may request an address that
// the interface does not.
func needsOtherAddress(a, want *v1alpha2.IPAllocation) bool {
	has, asks := a.Status.Address, want.Spec.RequestedAddress
	if has == "" && (asks != "" || metav1.GetControllerOf(a) != nil) {
		return !sameAddress(a.Spec.RequestedAddress, asks)
	}
	return has != "" && asks != "" && !sameAddress(has, asks)
}

// sameAddress reports whether two texts mean the same address, or both none.
func sameAddress(a, b string) bool {
	one, _ := netip.ParseAddr(a)
	other, _ := netip.ParseAddr(b)
	return one == other
}

// needsAddress reports whether a NetworkConfiguration needs the address of an IPAllocation.
// Its spec decides, because a delivery that would write the status for an older spec gets a
// conflict. A NetworkConfiguration that is being deleted needs it while machines use it.
func needsAddress(nc *v1alpha1.NetworkConfiguration, nn *v1alpha2.NetworkNamespace, a *v1alpha2.IPAllocation) bool {
	ours, _ := networkplan.ServesStatic(nn, nc.Spec.Provider)
	named := network.NameFor(nc)
	inOtherNetwork := named != "" && named != a.Spec.NetworkNamespaceName
	going := nc.DeletionTimestamp != nil && len(network.Users(nc)) == 0
	if a.Status.Phase != v1alpha2.IPAllocationAllocated || going || isOrphaned(a, nc) || !ours || inOtherNetwork {
		return false
	}
	return waitsForNetwork(nn) != "" || slices.ContainsFunc(requiredAllocations(nc, nn), func(want *v1alpha2.IPAllocation) bool {
		return want.Name == a.Name && isForInterface(a, want) && !needsOtherAddress(a, want)
	})
}

// checkFamilies returns a UserError if an interface requests an address of a family that the
// network does not have.
func checkFamilies(nc *v1alpha1.NetworkConfiguration, nn *v1alpha2.NetworkNamespace) error {
	const message = "interface %s requests %s, but NetworkNamespace %s has no %s prefix: remove the address of that family, or use a network that has one"
	served := families(nn)
	for _, i := range nc.Spec.NetworkInterfaces {
		switch {
		case len(i.IPv4Addresses) > 0 && !slices.Contains(served, v1alpha2.IPv4):
			return reconcile.UserError{Reason: "IPv4NotServed", Message: fmt.Sprintf(message, i.Name, i.IPv4Addresses[0], nn.Name, v1alpha2.IPv4)}
		case len(i.IPv6Addresses) > 0 && !slices.Contains(served, v1alpha2.IPv6):
			return reconcile.UserError{Reason: "IPv6NotServed", Message: fmt.Sprintf(message, i.Name, i.IPv6Addresses[0], nn.Name, v1alpha2.IPv6)}
		}
	}
	return nil
}

// setConfigurationResult writes into nc's status what its interfaces have:
//
//	interfaces without MAC  allocations          phase    Ready
//	all                     -                    Pending  False  WaitingForMAC
//	some                    -                    Pending  False  WaitingForMAC
//	none                    one not Allocated    Pending  False  the reason of that IPAllocation
//	none                    one in Error         Error    False  the reason of that IPAllocation
//	none                    all Allocated        Ready    True   NetworkConfigured
func setConfigurationResult(nc *v1alpha1.NetworkConfiguration, nn *v1alpha2.NetworkNamespace, held []v1alpha2.IPAllocation) reconcile.Outcome {
	nc.Status.SetInterfaces(interfaceStatuses(nc, nn, held))
	for _, i := range nc.Spec.NetworkInterfaces {
		if i.MACAddress == "" {
			return setWaiting(nc, "WaitingForMAC", fmt.Sprintf("interface %s has no macAddress: a Machine that uses it sets one; without a Machine, write it into spec.networkInterfaces", i.Name))
		}
	}
	if len(nc.Spec.NetworkInterfaces) == 0 {
		return setWaiting(nc, "WaitingForMAC", "there is no interface yet: wait for the Machine to add it, or write one into spec.networkInterfaces")
	}
	var outside []string
	for _, a := range held {
		if reasonOf(a.Status.Conditions) == reasonOutside {
			outside = append(outside, a.Status.Address)
		}
		if a.Status.Phase == v1alpha2.IPAllocationAllocated {
			continue
		}
		reason, message := "WaitingForAddress", "waiting for IPAllocation "+a.Name
		if c := meta.FindStatusCondition(a.Status.Conditions, v1alpha1.ConditionReady); c != nil {
			reason, message = c.Reason, fmt.Sprintf("IPAllocation %s: %s", a.Name, c.Message)
		}
		if a.Status.Phase == v1alpha2.IPAllocationError {
			return setRefused(nc, reason, message)
		}
		return setWaiting(nc, reason, message)
	}
	return setConfigurationStatus(nc, v1alpha1.NetworkConfigurationReady, "OK", "NetworkConfigured", completedMessage(outside))
}

// interfaceStatuses returns the interfaces with a MAC address, and the addresses of each.
func interfaceStatuses(nc *v1alpha1.NetworkConfiguration, nn *v1alpha2.NetworkNamespace, held []v1alpha2.IPAllocation) []v1alpha1.InterfaceStatus {
	var all []v1alpha1.InterfaceStatus
	for _, i := range nc.Spec.NetworkInterfaces {
		if i.MACAddress == "" {
			continue
		}
		s := v1alpha1.InterfaceStatus{
			Name: i.Name, MACAddress: i.MACAddress, AllocationMethod: v1alpha2.AllocationStatic, IPAllocated: true,
			VLAN: strconv.Itoa(int(nn.Status.VLANID)), DNS: dnsOf(nn),
		}
		for _, a := range held {
			if a.Spec.InterfaceName != i.Name {
				continue
			}
			if a.Status.Phase != v1alpha2.IPAllocationAllocated {
				s.IPAllocated = false
				continue
			}
			setAddress(&s, a.Status)
		}
		all = append(all, s)
	}
	return all
}

// setAddress writes an allocated address and its network settings into an interface.
func setAddress(s *v1alpha1.InterfaceStatus, a v1alpha2.IPAllocationStatus) {
	address, err := netip.ParseAddr(a.Address)
	if err != nil {
		return
	}
	subnet := netip.PrefixFrom(address, int(a.Prefix)).Masked().String()
	if address.Is6() {
		s.IPv6Addresses, s.IPv6Subnet, s.IPv6Gateway = []string{a.Address}, subnet, a.Gateway
	} else {
		s.IPv4Addresses, s.IPv4Subnet, s.IPv4Gateway = []string{a.Address}, subnet, a.Gateway
	}
	s.VLAN, s.DNS, s.AllocationExpiry = strconv.Itoa(int(a.VLANID)), a.DNS, a.ExpiresAt
}

// setNetworkSettings writes the settings of a network into an interface with an address of it.
// An address of another segment keeps its own.
func setNetworkSettings(s *v1alpha1.InterfaceStatus, nn *v1alpha2.NetworkNamespace, address netip.Addr) {
	family, prefix := v1alpha2.IPv4, nn.Status.IPv4Prefix
	if address.Is6() {
		family, prefix = v1alpha2.IPv6, nn.Status.IPv6Prefix
	}
	segment, err := netip.ParsePrefix(prefix)
	if err != nil || !segment.Contains(address) {
		return
	}
	if address.Is6() {
		s.IPv6Subnet, s.IPv6Gateway = prefix, gatewayOf(nn, family)
	} else {
		s.IPv4Subnet, s.IPv4Gateway = prefix, gatewayOf(nn, family)
	}
	s.VLAN, s.DNS = strconv.Itoa(int(nn.Status.VLANID)), dnsOf(nn)
}

func setWaiting(nc *v1alpha1.NetworkConfiguration, reason, message string) reconcile.Outcome {
	return setConfigurationStatus(nc, v1alpha1.NetworkConfigurationPending, reason, reason, message)
}

func setRefused(nc *v1alpha1.NetworkConfiguration, reason, message string) reconcile.Outcome {
	return setConfigurationStatus(nc, v1alpha1.NetworkConfigurationError, reason, reason, message)
}

func setConfigurationStatus(nc *v1alpha1.NetworkConfiguration, phase v1alpha1.NetworkConfigurationPhase, status, reason, message string) reconcile.Outcome {
	s := &nc.Status
	s.Phase, s.Status, s.Message = phase, status, message
	s.ObservedGeneration = nc.Generation
	outcome := reconcile.SetReady(&s.Conditions, nc.Generation, phase == v1alpha1.NetworkConfigurationReady, reason, message)
	outcome.Warning = phase == v1alpha1.NetworkConfigurationError
	return outcome
}
