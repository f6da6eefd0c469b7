package main

import (
	"context"

	"github.com/vitistack/stack/functions/internal/kube"
)

// leasedAddresses has the addresses of a namespace that have a Lease, as leasedAddress writes them.
type leasedAddresses struct {
	namespace string
	leased    map[string]bool
}

// leasedAddress identifies an address and its holder within a namespace.
func leasedAddress(holder, address string) string { return holder + " " + address }

// isLeased reports whether an IPAllocation has the Lease of its address.
func (a *leasedAddresses) isLeased(o object) bool {
	for _, uid := range o.uids() {
		if a.leased[leasedAddress(uid, o.Status.Address)] {
			return true
		}
	}
	return false
}

// readUnleased sends an event for each IPAllocation that has an address and no Lease of it, because the address could be
// allocated a second time. If a round has read as many Leases as IPAllocations with an address, none is missing, and readUnleased
// sends no request.
func (p *round) readUnleased(ctx context.Context) (complete bool, err error) {
	if !p.full || p.progress.Leased == p.progress.Allocated {
		return true, nil
	}
	return forEach(ctx, p, allocationKind.resource, kube.Page{Limit: pageSize}, func(o object) error {
		if !o.isAllocated() {
			return nil
		}
		a, err := p.leasedAddressesOf(ctx, o.Metadata.Namespace)
		if err != nil || a.isLeased(o) {
			return err
		}
		return p.send(ctx, allocationKind, o)
	})
}

// leasedAddressesOf lists the addresses of a namespace that have a Lease. IPAllocations are in the order of namespaces, so a slice
// lists each namespace once.
func (p *round) leasedAddressesOf(ctx context.Context, namespace string) (*leasedAddresses, error) {
	if p.leasedRead != nil && p.leasedRead.namespace == namespace {
		return p.leasedRead, nil
	}
	a := &leasedAddresses{namespace: namespace, leased: map[string]bool{}}
	next := addressLeases
	next.Namespace = namespace
	for more := true; more; more = next.Continue != "" {
		var got list[lease]
		if err := p.api.ListInto(ctx, leases.resource, next, &got); err != nil {
			return nil, err
		}
		p.progress.Pages++
		for _, l := range got.Items {
			a.leased[leasedAddress(l.Metadata.Labels[labelHolder], l.Metadata.Annotations[annotationAddress])] = true
		}
		next.Continue = got.Metadata.Continue
	}
	p.leasedRead = a
	return a, nil
}
