package main

import (
	"errors"
	"fmt"
	"net/netip"

	"k8s.io/apimachinery/pkg/api/meta"

	"github.com/vitistack/stack/apis/v1alpha1"
	"github.com/vitistack/stack/apis/v1alpha2"
	"github.com/vitistack/stack/functions/internal/kube"
	"github.com/vitistack/stack/functions/internal/pool"
)

// errLapsed says that an allocation has lost its address because nobody renewed it.
var errLapsed = errors.New("the address lapsed: its NetworkConfiguration has been gone for longer than ttlSeconds")

// errOutside says that an address that was asked for cannot be given out.
type errOutside struct{ address string }

func (e errOutside) Error() string {
	return fmt.Sprintf("address %s is outside of the pool, or kept out of it: ask for another, or change the NetworkNamespace's ipAllocation.static", e.address)
}

// isVerdict tells whether an error is an answer to the allocation, and not a
// failure to find one.
func isVerdict(err error) bool {
	return errors.Is(err, errExhausted) || errors.Is(err, errLapsed) || errors.As(err, new(errTaken)) || errors.As(err, new(errOutside))
}

// conclude writes into a's status what became of asking for its address:
//
//	err           phase      Ready
//	nil           Allocated  True   Allocated
//	errExhausted  Pending    False  PoolExhausted
//	errTaken      Error      False  AddressTaken
//	errOutside    Error      False  AddressOutsidePool
//	errLapsed     Released   False  Lapsed
func conclude(a *v1alpha2.IPAllocation, nn *v1alpha2.NetworkNamespace, p pool.Pool, address netip.Addr, until term, err error) story {
	switch {
	case errors.Is(err, errExhausted):
		return pending(a, "PoolExhausted", fmt.Sprintf("NetworkNamespace %s has no free address: release one, or enlarge its pool", nn.Name))
	case errors.Is(err, errLapsed):
		a.Status.Address, a.Status.ExpiresAt = "", nil
		return mark(a, v1alpha2.IPAllocationReleased, "Lapsed", err.Error())
	case errors.As(err, new(errOutside)):
		return failed(a, "AddressOutsidePool", err.Error())
	case err != nil:
		return failed(a, "AddressTaken", fmt.Sprintf("%s: ask for another", err))
	}
	s := &a.Status
	s.Address, s.Prefix = address.String(), int32(p.Prefix.Bits())
	s.Gateway = ""
	if p.Gateway.IsValid() {
		s.Gateway = p.Gateway.String()
	}
	s.VLANID, s.DNS = nn.Status.VLANID, dnsOf(nn)
	told := mark(a, v1alpha2.IPAllocationAllocated, "Allocated", "address "+s.Address+" is allocated")
	s.ExpiresAt, s.NextCheckTime = until.expires, until.check
	return told
}

func pending(a *v1alpha2.IPAllocation, reason, message string) story {
	return mark(a, v1alpha2.IPAllocationPending, reason, message)
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
	c := meta.FindStatusCondition(a.Status.Conditions, v1alpha1.ConditionReady)
	return c != nil && c.Reason == "PoolExhausted"
}
