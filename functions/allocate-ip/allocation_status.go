package main

import (
	"errors"
	"fmt"
	"net/netip"
	"slices"

	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/vitistack/stack/apis/network/ipam"
	"github.com/vitistack/stack/apis/v1alpha1"
	"github.com/vitistack/stack/apis/v1alpha2"
	"github.com/vitistack/stack/functions/internal/reconcile"
)

// errExpired says that an IPAllocation has lost its address because no delivery renewed it.
var errExpired = errors.New("the address expired, because its NetworkConfiguration has not existed for longer than ttlSeconds: delete the IPAllocation to have a new one created")

// errInvalidPool says what to change in a network that has no valid pool.
type errInvalidPool struct{ error }

// errRefused says that the API server refuses what an address needs, with its message.
type errRefused struct{ message string }

func (e errRefused) Error() string {
	return fmt.Sprintf("the API server refuses the IPAllocation or the Lease of the address (%s): release an address, or have the quota or the policy that the message names changed", e.message)
}

// errNotServed is the error of a network without a prefix of the family that an IPAllocation requests.
type errNotServed struct {
	family  v1alpha2.IPFamily
	network string
}

func (e errNotServed) Error() string {
	return fmt.Sprintf("NetworkNamespace %s has no %s prefix: delete the IPAllocation, and create it again for the other family, or in a network that has one", e.network, e.family)
}

// errNetworkClosed is the error of a network that is being deleted and allocates no addresses.
type errNetworkClosed struct{ message string }

func (e errNetworkClosed) Error() string { return e.message }

// isResult reports whether an error answers the IPAllocation, and is not a failure to find an
// answer.
func isResult(err error) bool {
	return errors.Is(err, errExhausted) || errors.Is(err, errExpired) ||
		errors.As(err, new(errAddressTaken)) || errors.As(err, new(errDuplicateMAC)) || errors.As(err, new(errNetworkClosed)) || errors.As(err, new(ipam.OutsidePool)) || errors.As(err, new(errInvalidPool)) || errors.As(err, new(errNotServed)) || errors.As(err, new(errRefused))
}

// setAllocationResult writes the result of an allocation into a's status:
//
//	err                  phase      Ready
//	nil                  Allocated  True   Allocated
//	nil, being deleted   Allocated  True   InUse
//	nil, not of p        Allocated  True   OutsidePool
//	errExhausted         Pending    False  PoolExhausted
//	errInvalidPool       Pending    False  InvalidPool
//	errNetworkClosed     Pending    False  NetworkDeleting
//	errDuplicateMAC      Error      False  DuplicateMACAddress
//	errAddressTaken      Error      False  AddressTaken
//	ipam.OutsidePool     Error      False  AddressOutsidePool
//	errRefused           Error      False  AllocationRefused
//	errNotServed         Error      False  IPv4NotServed, IPv6NotServed
//	errExpired           Released   False  Lapsed
//
// An address that is outside of the pool stays, because a machine uses it. If it is outside of
// the whole segment, it also keeps its gateway, VLAN and DNS servers.
func setAllocationResult(a *v1alpha2.IPAllocation, nn *v1alpha2.NetworkNamespace, p ipam.Pool, address netip.Addr, until validity, err error) reconcile.Outcome {
	notServed := errNotServed{}
	switch {
	case errors.Is(err, errExhausted):
		return setPending(a, "PoolExhausted", fmt.Sprintf("NetworkNamespace %s has no free address: release one, or enlarge its pool in spec.ipAllocation.static", nn.Name))
	case errors.Is(err, errExpired):
		return setReleased(a, "Lapsed", err.Error())
	case errors.As(err, new(errInvalidPool)):
		return setPending(a, "InvalidPool", err.Error())
	case errors.As(err, new(errNetworkClosed)):
		return setPending(a, "NetworkDeleting", err.Error())
	case errors.As(err, new(errDuplicateMAC)):
		return setFailed(a, reasonDuplicateMAC, err.Error())
	case errors.As(err, new(errRefused)):
		return setFailed(a, reasonRefused, err.Error())
	case errors.As(err, &notServed) && notServed.family == v1alpha2.IPv4:
		return setFailed(a, "IPv4NotServed", err.Error())
	case errors.As(err, &notServed):
		return setFailed(a, "IPv6NotServed", err.Error())
	case errors.As(err, new(ipam.OutsidePool)):
		return setFailed(a, "AddressOutsidePool", err.Error())
	case err != nil:
		return setFailed(a, "AddressTaken", fmt.Sprintf("%s: request another address", err))
	}
	s := &a.Status
	s.Address = address.String()
	if p.Prefix.Contains(address) {
		s.Prefix, s.Gateway = int32(p.Prefix.Bits()), gatewayOf(nn, ipam.FamilyOf(a, nn))
		s.VLANID, s.DNS = nn.Status.VLANID, dnsOf(nn)
	}
	var outcome reconcile.Outcome
	switch {
	case p.Contains(address) && a.DeletionTimestamp != nil:
		outcome = setAllocationStatus(a, v1alpha2.IPAllocationAllocated, reasonInUse, fmt.Sprintf(
			"address %s is released when NetworkConfiguration %s is deleted or requests another address", s.Address, a.Spec.NetworkConfigurationName))
	case p.Contains(address):
		outcome = setAllocationStatus(a, v1alpha2.IPAllocationAllocated, reasonAllocated, "address "+s.Address+" is allocated")
	default:
		outcome = setAllocationStatus(a, v1alpha2.IPAllocationAllocated, reasonOutside, fmt.Sprintf(
			"address %s is kept while this IPAllocation exists, although it is outside of the pool of NetworkNamespace %s", s.Address, nn.Name))
		outcome.Warning = true
	}
	s.ExpiresAt, s.NextCheckTime = until.expires, until.check
	return outcome
}

// isOutdated reports whether an IPAllocation that has its address shows a gateway, prefix or
// DNS server that its network no longer has.
func isOutdated(a *v1alpha2.IPAllocation, nn *v1alpha2.NetworkNamespace) bool {
	p, _ := ipam.New(nn, ipam.FamilyOf(a, nn)) // an invalid pool contains no addresses
	address, err := netip.ParseAddr(a.Status.Address)
	if err != nil {
		return false
	}
	now := a.DeepCopy()
	setAllocationResult(now, nn, p, address, validity{}, nil)
	was, is := a.Status, now.Status
	return was.Prefix != is.Prefix || was.Gateway != is.Gateway || was.VLANID != is.VLANID ||
		!slices.Equal(was.DNS, is.DNS) || reasonOf(was.Conditions) != reasonOf(is.Conditions)
}

// Reasons of an IPAllocation with an address: allocated, still in use during its deletion, or
// outside of its pool. reasonRefused is that of an address which the API server refuses.
const (
	reasonAllocated = "Allocated"
	reasonInUse     = "InUse"
	reasonOutside   = "OutsidePool"
	reasonRefused   = "AllocationRefused"
)

func setPending(a *v1alpha2.IPAllocation, reason, message string) reconcile.Outcome {
	return setAllocationStatus(a, v1alpha2.IPAllocationPending, reason, message)
}

func setReleased(a *v1alpha2.IPAllocation, reason, message string) reconcile.Outcome {
	a.Status.Address, a.Status.ExpiresAt = "", nil
	return setAllocationStatus(a, v1alpha2.IPAllocationReleased, reason, message)
}

func setFailed(a *v1alpha2.IPAllocation, reason, message string) reconcile.Outcome {
	return setAllocationStatus(a, v1alpha2.IPAllocationError, reason, message)
}

func setAllocationStatus(a *v1alpha2.IPAllocation, phase v1alpha2.IPAllocationPhase, reason, message string) reconcile.Outcome {
	s := &a.Status
	s.Phase, s.Message, s.ObservedGeneration, s.NextCheckTime = phase, message, a.Generation, nil
	outcome := reconcile.SetReady(&s.Conditions, a.Generation, phase == v1alpha2.IPAllocationAllocated, reason, message)
	outcome.Warning = phase == v1alpha2.IPAllocationError
	return outcome
}

// isPoolExhausted reports whether an IPAllocation waits for another one to release an address.
func isPoolExhausted(a *v1alpha2.IPAllocation) bool {
	return reasonOf(a.Status.Conditions) == "PoolExhausted"
}

// reasonOf returns the reason of the condition Ready.
func reasonOf(conditions []metav1.Condition) string {
	if c := meta.FindStatusCondition(conditions, v1alpha1.ConditionReady); c != nil {
		return c.Reason
	}
	return ""
}
