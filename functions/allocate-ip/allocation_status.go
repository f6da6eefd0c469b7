package main

import (
	"errors"
	"fmt"
	"net/netip"
	"slices"

	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/vitistack/stack/apis/v1alpha1"
	"github.com/vitistack/stack/apis/v1alpha2"
	"github.com/vitistack/stack/functions/internal/pool"
	"github.com/vitistack/stack/functions/internal/reconcile"
)

// errExpired says that an IPAllocation has lost its address because no delivery renewed it.
var errExpired = errors.New("the address lapsed: its NetworkConfiguration has been gone for longer than ttlSeconds: delete the IPAllocation, so that it can be made anew")

// errOutsidePool says that a requested address is not in the pool.
type errOutsidePool struct{ address string }

func (e errOutsidePool) Error() string {
	return fmt.Sprintf("address %s is outside of the pool, or kept out of it: ask for another, or change the NetworkNamespace's ipAllocation.static", e.address)
}

// errInvalidPool says what to change in a network that has no valid pool.
type errInvalidPool struct{ error }

// errNetworkClosed says that a network is being deleted and allocates no more addresses.
type errNetworkClosed struct{ message string }

func (e errNetworkClosed) Error() string { return e.message }

// isResult reports whether an error answers the IPAllocation, and is not a failure to find an
// answer.
func isResult(err error) bool {
	return errors.Is(err, errExhausted) || errors.Is(err, errExpired) ||
		errors.As(err, new(errAddressTaken)) || errors.As(err, new(errDuplicateMAC)) || errors.As(err, new(errNetworkClosed)) || errors.As(err, new(errOutsidePool)) || errors.As(err, new(errInvalidPool))
}

// setAllocationResult writes into a's status what became of asking for its address:
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
//	errOutsidePool       Error      False  AddressOutsidePool
//	errExpired            Released   False  Lapsed
//
// An address that the pool does not have any more stays, since a machine uses it;
// one that is outside of the whole segment also keeps the terms of the earlier one.
func setAllocationResult(a *v1alpha2.IPAllocation, nn *v1alpha2.NetworkNamespace, p pool.Pool, address netip.Addr, until validity, err error) reconcile.Outcome {
	switch {
	case errors.Is(err, errExhausted):
		return setPending(a, "PoolExhausted", fmt.Sprintf("NetworkNamespace %s has no free address: release one, or enlarge its pool", nn.Name))
	case errors.Is(err, errExpired):
		return setReleased(a, "Lapsed", err.Error())
	case errors.As(err, new(errInvalidPool)):
		return setPending(a, "InvalidPool", err.Error())
	case errors.As(err, new(errNetworkClosed)):
		return setPending(a, "NetworkDeleting", err.Error())
	case errors.As(err, new(errDuplicateMAC)):
		return setFailed(a, reasonDuplicateMAC, err.Error())
	case errors.As(err, new(errOutsidePool)):
		return setFailed(a, "AddressOutsidePool", err.Error())
	case err != nil:
		return setFailed(a, "AddressTaken", fmt.Sprintf("%s: ask for another", err))
	}
	s := &a.Status
	s.Address = address.String()
	if p.Prefix.Contains(address) {
		s.Prefix, s.Gateway = int32(p.Prefix.Bits()), gatewayOf(nn, familyOf(a, nn))
		s.VLANID, s.DNS = nn.Status.VLANID, dnsOf(nn)
	}
	var outcome reconcile.Outcome
	switch {
	case p.Contains(address) && a.DeletionTimestamp != nil:
		outcome = setAllocationStatus(a, v1alpha2.IPAllocationAllocated, reasonInUse, fmt.Sprintf(
			"address %s is given back once NetworkConfiguration %s is gone, or asks for another", s.Address, a.Spec.NetworkConfigurationName))
	case p.Contains(address):
		outcome = setAllocationStatus(a, v1alpha2.IPAllocationAllocated, reasonAllocated, "address "+s.Address+" is allocated")
	default:
		outcome = setAllocationStatus(a, v1alpha2.IPAllocationAllocated, reasonOutside, fmt.Sprintf(
			"address %s is kept for as long as this IPAllocation exists, although NetworkNamespace %s does not give it out any more", s.Address, nn.Name))
		outcome.Warning = true
	}
	s.ExpiresAt, s.NextCheckTime = until.expires, until.check
	return outcome
}

// isOutdated reports whether an IPAllocation that has its address shows a gateway, prefix or
// DNS server that its network no longer has.
func isOutdated(a *v1alpha2.IPAllocation, nn *v1alpha2.NetworkNamespace) bool {
	p, _ := pool.New(nn, familyOf(a, nn)) // one that cannot be contains nothing
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

// Reasons of an address that is given out, of one that cannot be given back yet, and of
// one that its pool does not have any more.
const (
	reasonAllocated = "Allocated"
	reasonInUse     = "InUse"
	reasonOutside   = "OutsidePool"
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
