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
	"github.com/vitistack/stack/functions/internal/kube"
	"github.com/vitistack/stack/functions/internal/pool"
)

// errLapsed says that an allocation has lost its address because nobody renewed it.
var errLapsed = errors.New("the address lapsed: its NetworkConfiguration has been gone for longer than ttlSeconds: delete the IPAllocation, so that it can be made anew")

// errOutside says that an address that was asked for cannot be given out.
type errOutside struct{ address string }

func (e errOutside) Error() string {
	return fmt.Sprintf("address %s is outside of the pool, or kept out of it: ask for another, or change the NetworkNamespace's ipAllocation.static", e.address)
}

// errInvalidPool says what to change in a network that cannot give anything out.
type errInvalidPool struct{ error }

// errClosed says that a network gives out no more addresses.
type errClosed struct{ message string }

func (e errClosed) Error() string { return e.message }

// isVerdict tells whether an error is an answer to the allocation, and not a
// failure to find one.
func isVerdict(err error) bool {
	return errors.Is(err, errExhausted) || errors.Is(err, errLapsed) ||
		errors.As(err, new(errTaken)) || errors.As(err, new(errTwin)) || errors.As(err, new(errClosed)) || errors.As(err, new(errOutside)) || errors.As(err, new(errInvalidPool))
}

// conclude writes into a's status what became of asking for its address:
//
//	err                  phase      Ready
//	nil                  Allocated  True   Allocated
//	nil, being deleted   Allocated  True   InUse
//	nil, not of p        Allocated  True   OutsidePool
//	errExhausted         Pending    False  PoolExhausted
//	errInvalidPool       Pending    False  InvalidPool
//	errClosed            Pending    False  NetworkDeleting
//	errTwin              Error      False  DuplicateMACAddress
//	errTaken             Error      False  AddressTaken
//	errOutside           Error      False  AddressOutsidePool
//	errLapsed            Released   False  Lapsed
//
// An address that the pool does not have any more stays, since a machine uses it;
// one that is outside of the whole segment also keeps the terms of the earlier one.
func conclude(a *v1alpha2.IPAllocation, nn *v1alpha2.NetworkNamespace, p pool.Pool, address netip.Addr, until term, err error) story {
	switch {
	case errors.Is(err, errExhausted):
		return pending(a, "PoolExhausted", fmt.Sprintf("NetworkNamespace %s has no free address: release one, or enlarge its pool", nn.Name))
	case errors.Is(err, errLapsed):
		return released(a, "Lapsed", err.Error())
	case errors.As(err, new(errInvalidPool)):
		return pending(a, "InvalidPool", err.Error())
	case errors.As(err, new(errClosed)):
		return pending(a, "NetworkDeleting", err.Error())
	case errors.As(err, new(errTwin)):
		return failed(a, reasonTwin, err.Error())
	case errors.As(err, new(errOutside)):
		return failed(a, "AddressOutsidePool", err.Error())
	case err != nil:
		return failed(a, "AddressTaken", fmt.Sprintf("%s: ask for another", err))
	}
	s := &a.Status
	s.Address = address.String()
	if p.Prefix.Contains(address) {
		s.Prefix, s.Gateway = int32(p.Prefix.Bits()), gatewayOf(nn, familyOf(a, nn))
		s.VLANID, s.DNS = nn.Status.VLANID, dnsOf(nn)
	}
	var told story
	switch {
	case p.Contains(address) && a.DeletionTimestamp != nil:
		told = mark(a, v1alpha2.IPAllocationAllocated, reasonInUse, fmt.Sprintf(
			"address %s is given back once NetworkConfiguration %s is gone, or asks for another", s.Address, a.Spec.NetworkConfigurationName))
	case p.Contains(address):
		told = mark(a, v1alpha2.IPAllocationAllocated, reasonAllocated, "address "+s.Address+" is allocated")
	default:
		told = mark(a, v1alpha2.IPAllocationAllocated, reasonOutside, fmt.Sprintf(
			"address %s is kept for as long as this IPAllocation exists, although NetworkNamespace %s does not give it out any more", s.Address, nn.Name))
		told.warning = true
	}
	s.ExpiresAt, s.NextCheckTime = until.expires, until.check
	return told
}

// outdated tells whether an allocation that has its address repeats terms of its
// network that are no longer true.
func outdated(a *v1alpha2.IPAllocation, nn *v1alpha2.NetworkNamespace) bool {
	p, _ := pool.New(nn, familyOf(a, nn)) // one that cannot be contains nothing
	address, err := netip.ParseAddr(a.Status.Address)
	if err != nil {
		return false
	}
	now := a.DeepCopy()
	conclude(now, nn, p, address, term{}, nil)
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

func pending(a *v1alpha2.IPAllocation, reason, message string) story {
	return mark(a, v1alpha2.IPAllocationPending, reason, message)
}

func released(a *v1alpha2.IPAllocation, reason, message string) story {
	a.Status.Address, a.Status.ExpiresAt = "", nil
	return mark(a, v1alpha2.IPAllocationReleased, reason, message)
}

func failed(a *v1alpha2.IPAllocation, reason, message string) story {
	return mark(a, v1alpha2.IPAllocationError, reason, message)
}

func mark(a *v1alpha2.IPAllocation, phase v1alpha2.IPAllocationPhase, reason, message string) story {
	s := &a.Status
	s.Phase, s.Message, s.ObservedGeneration, s.NextCheckTime = phase, message, a.Generation, nil
	news := kube.SetReady(&s.Conditions, a.Generation, phase == v1alpha2.IPAllocationAllocated, reason, message)
	return story{reason: reason, message: message, news: news, warning: phase == v1alpha2.IPAllocationError}
}

// exhausted tells whether an allocation waits for an address to become free.
func exhausted(a *v1alpha2.IPAllocation) bool {
	return reasonOf(a.Status.Conditions) == "PoolExhausted"
}

// reasonOf is the reason of the condition Ready.
func reasonOf(conditions []metav1.Condition) string {
	if c := meta.FindStatusCondition(conditions, v1alpha1.ConditionReady); c != nil {
		return c.Reason
	}
	return ""
}
