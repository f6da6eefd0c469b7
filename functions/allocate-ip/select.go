package main

import (
	"context"
	"errors"
	"fmt"
	"math/bits"
	"net/netip"
	"strings"

	"github.com/vitistack/stack/apis/network/ipam"
	"github.com/vitistack/stack/apis/v1alpha2"
	"github.com/vitistack/stack/functions/internal/network"
)

// errExhausted says that a pool has no free address.
var errExhausted = errors.New("the pool has no free address")

// errClaimConflict says that other deliveries claimed the addresses that were free.
var errClaimConflict = errors.New("concurrent deliveries claimed each address that was free")

const (
	// maxListings limits the lists of the taken addresses in an allocation, and maxRaces the claims that
	// may fail after one list because another delivery was faster.
	maxListings, maxRaces = 5, 8
	// nearlyFull is a number of free addresses. If at most so many are free, or a twentieth of the
	// pool, older IPAllocations are served first.
	nearlyFull = 16
)

// claimFromPool claims an address of the pool for an IPAllocation: the one that it holds
// already, or else one of the places that derive from its name, or else the first free one
// after the first of these. It returns errExhausted while at most as many addresses are free as
// IPAllocations have waited longer.
//
// Whatever the size of the pool, it sends one request if the first place is free, as it mostly
// is in a pool that is half empty, two for each place that is not, and otherwise one listing
// and rarely more than one further request.
func (r allocationReconciler) claimFromPool(ctx context.Context, nn *v1alpha2.NetworkNamespace, p ipam.Pool, a *v1alpha2.IPAllocation, h holder) (netip.Addr, error) {
	kept, err := network.ControlPlanes(ctx, r.kube, a.Namespace)
	if err != nil {
		return netip.Addr{}, err
	}
	p = p.Without(kept).Without(network.Servers(nn))
	if p.Size() > nearlyFull && !isPoolExhausted(a) && len(h.former) == 0 {
		for i := range probeCount(p) {
			got := p.At(probePlace(p, h, i))
			if err := r.leases.claimAddress(ctx, nn.Name, got, h); !errors.As(err, new(errAddressTaken)) {
				return got, err
			}
		}
	}
	for range maxListings {
		got, err := r.selectFree(ctx, nn, p, a, h)
		if !errors.Is(err, errClaimConflict) {
			return got, err
		}
	}
	return netip.Addr{}, fmt.Errorf("choose an address of %s: %w", nn.Name, errClaimConflict)
}

// probeCount returns how many places of its own an IPAllocation tries before it lists the
// Leases: two of 500, five of 4,000, eight of 30,000 and more, because a listing takes longer
// the more there are.
func probeCount(p ipam.Pool) int {
	const fewest, most, digits = 2, 8, 7
	return min(max(fewest, bits.Len64(p.Size())-digits), most)
}

// probePlace returns the place of a pool that a holder tries at the i-th attempt.
func probePlace(p ipam.Pool, h holder, i int) uint64 {
	return p.Start(strings.Repeat("+", i) + h.namespace + "/" + h.name)
}

// selectFree claims the first free address after the place where the search of the
// IPAllocation begins.
func (r allocationReconciler) selectFree(ctx context.Context, nn *v1alpha2.NetworkNamespace, p ipam.Pool, a *v1alpha2.IPAllocation, h holder) (netip.Addr, error) {
	known, err := r.leases.listShared(ctx, h.namespace, nn.Name)
	if mine, ok := known.heldBy(h); ok || err != nil {
		if err == nil && len(h.former) > 0 {
			err = r.leases.adopt(ctx, nn.Name, mine, h)
		}
		return mine, err
	}
	free := known.free(p)
	if free > 0 && free <= max(nearlyFull, p.Size()/20) {
		ahead, err := r.countOlderWaiting(ctx, nn, a)
		if err != nil {
			return netip.Addr{}, err
		}
		free -= min(free, ahead)
	}
	if free == 0 {
		return netip.Addr{}, errExhausted
	}
	return r.leases.claimFirstFree(ctx, nn.Name, p, h, known)
}

// claimFirstFree claims the first free address. Another delivery may do so at the same time.
func (l *leaseStore) claimFirstFree(ctx context.Context, network string, p ipam.Pool, h holder, known listing) (netip.Addr, error) {
	start, lost := probePlace(p, h, 0), map[netip.Addr]bool{}
	for range maxRaces {
		got, ok := p.FirstFree(start, func(a netip.Addr) bool { return known.taken[a] || lost[a] })
		if !ok {
			return netip.Addr{}, errExhausted
		}
		if err := l.claimAddress(ctx, network, got, h); !errors.As(err, new(errAddressTaken)) {
			return got, err
		}
		lost[got] = true
	}
	return netip.Addr{}, errClaimConflict
}

// countOlderWaiting returns the number of IPAllocations that have waited longer for an address
// of the same pool.
func (r allocationReconciler) countOlderWaiting(ctx context.Context, nn *v1alpha2.NetworkNamespace, a *v1alpha2.IPAllocation) (uint64, error) {
	waiting, err := r.waitingAllocations(ctx, a.Namespace)
	if err != nil {
		return 0, err
	}
	n := uint64(0)
	for _, w := range waiting {
		if compareAge(w, a) < 0 && isPoolExhausted(w) && w.Spec.NetworkNamespaceName == nn.Name && ipam.FamilyOf(w, nn) == ipam.FamilyOf(a, nn) {
			n++
		}
	}
	return n, nil
}
