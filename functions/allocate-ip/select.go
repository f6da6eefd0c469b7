package main

import (
	"context"
	"errors"
	"fmt"
	"math/bits"
	"net/netip"
	"strings"

	"github.com/vitistack/stack/apis/v1alpha2"
	"github.com/vitistack/stack/functions/internal/network"
	"github.com/vitistack/stack/functions/internal/pool"
)

// errExhausted says that a pool has no address left.
var errExhausted = errors.New("the pool has no free address")

// errFaster says that others took addresses that had been free.
var errFaster = errors.New("others were faster each time")

const (
	// looks is how often an allocation reads which addresses are taken, and races how
	// many others may be faster each time.
	looks, races = 5, 8
	// crowded is the number of free addresses from which down those who wait longer
	// are asked for first. So is one of twenty, whichever is more.
	crowded = 16
)

// choose gives an allocation an address of the pool: the one that it holds already,
// or else one of the places that its name gives, or else the first free one after
// the first of those. While free addresses are as few as those who wait longer for
// one, it is errExhausted.
//
// Whatever the size of the pool, it makes one request where the first place is free,
// which it mostly is in a pool that is half empty, two for each place that is not,
// and otherwise one listing, and rarely more than one further request.
func (f *function) choose(ctx context.Context, nn *v1alpha2.NetworkNamespace, p pool.Pool, a *v1alpha2.IPAllocation, h holder) (netip.Addr, error) {
	kept, err := network.ControlPlanes(ctx, f.kube, a.Namespace)
	if err != nil {
		return netip.Addr{}, err
	}
	p = p.Without(kept)
	if p.Size() > crowded && !exhausted(a) {
		for i := range placesIn(p) {
			got := p.At(placeOf(p, h, i))
			if err := f.ledger.take(ctx, nn.Name, got, h); !errors.As(err, new(errTaken)) {
				return got, err
			}
		}
	}
	for range looks {
		got, err := f.pick(ctx, nn, p, a, h)
		if !errors.Is(err, errFaster) {
			return got, err
		}
	}
	return netip.Addr{}, fmt.Errorf("choose an address of %s: %w", nn.Name, errFaster)
}

// placesIn is how many places of its own an allocation tries before it reads which
// are taken: two of 500, five of 4,000, eight of 30,000 and more, as reading takes the
// longer the more there are.
func placesIn(p pool.Pool) int {
	const fewest, most, digits = 2, 8, 7
	return min(max(fewest, bits.Len64(p.Size())-digits), most)
}

// placeOf is the place of a pool that a holder tries at the i-th try.
func placeOf(p pool.Pool, h holder, i int) uint64 {
	return p.Start(strings.Repeat("+", i) + h.namespace + "/" + h.name)
}

// pick takes the first free address after the place where the allocation's search
// begins.
func (f *function) pick(ctx context.Context, nn *v1alpha2.NetworkNamespace, p pool.Pool, a *v1alpha2.IPAllocation, h holder) (netip.Addr, error) {
	known, err := f.ledger.read(ctx, h.namespace, nn.Name)
	if mine, ok := known.held[h.uid]; ok || err != nil {
		return mine, err
	}
	free := known.free(p)
	if free > 0 && free <= max(crowded, p.Size()/20) {
		ahead, err := f.ahead(ctx, nn, a)
		if err != nil {
			return netip.Addr{}, err
		}
		free -= min(free, ahead)
	}
	if free == 0 {
		return netip.Addr{}, errExhausted
	}
	return f.ledger.search(ctx, nn.Name, p, h, known)
}

// search takes the first free address, which somebody else may do at the same time.
func (l *ledger) search(ctx context.Context, network string, p pool.Pool, h holder, known listing) (netip.Addr, error) {
	start, lost := placeOf(p, h, 0), map[netip.Addr]bool{}
	for range races {
		got, ok := p.FirstFree(start, func(a netip.Addr) bool { return known.taken[a] || lost[a] })
		if !ok {
			return netip.Addr{}, errExhausted
		}
		if err := l.take(ctx, network, got, h); !errors.As(err, new(errTaken)) {
			return got, err
		}
		lost[got] = true
	}
	return netip.Addr{}, errFaster
}

// ahead is the number of those who have waited longer for an address of the same
// pool.
func (f *function) ahead(ctx context.Context, nn *v1alpha2.NetworkNamespace, a *v1alpha2.IPAllocation) (uint64, error) {
	waiting, err := f.waiters(ctx, a.Namespace)
	if err != nil {
		return 0, err
	}
	n := uint64(0)
	for _, w := range waiting {
		if older(w, a) < 0 && exhausted(w) && w.Spec.NetworkNamespaceName == nn.Name && familyOf(w, nn) == familyOf(a, nn) {
			n++
		}
	}
	return n, nil
}
