package main

import (
	"context"
	"errors"
	"fmt"
	"net/netip"
	"reflect"
	"slices"
)

// result is what became of a wish.
type result struct {
	// addresses are those of the interfaces, which every server that is up holds
	// and will hold after a restart.
	addresses []netip.Addr
	// down are the servers that could not be given the reservations.
	down Outage
	// changed is whether anything had to be changed.
	changed bool
}

// reserve grants a wish on all Kea servers that can be reached, and reads back
// that it is granted. known says that every server was seen to have kept it
// before, so that there is nothing to persist unless something has to be changed.
//
// It returns a refusal where a wish cannot be granted, an outage where no server
// can grant it, and any other error for what another delivery may mend.
func (f *function) reserve(ctx context.Context, w request, known bool) (result, error) {
	all := Connect(ctx, f.clients, LookAt(w.prefix, true))
	d, err := f.makePlan(w, all)
	if err != nil {
		return result{}, err
	}
	changed := !d.isComplete()
	if changed {
		known = false
		if d, err = f.applyPlan(ctx, w, all, d); err != nil {
			return result{}, err
		}
	}
	if !known {
		all.Up().Each(func(s *Connection) { s.Err = s.Server.Persist(ctx) })
	}
	if len(all.Up()) == 0 {
		return result{}, all.Outage()
	}
	g := result{addresses: d.addresses, down: all.Outage(), changed: changed}
	if !known && all[0].Err != nil {
		CountFailover()
	}
	return g, nil
}

// makePlan decides by what the servers that are up have.
func (f *function) makePlan(w request, all Connections) (plan, error) {
	if err := all.Problem(); err != nil {
		return plan{}, err
	}
	if len(all.Up()) == 0 {
		return plan{}, all.Outage()
	}
	return makePlan(w, all.Up().Views())
}

// applyPlan does what a decision says, the primary server first, and reads back what
// became of it. A server that fails is left behind, one that refuses is not: what
// it has by then tells why.
func (f *function) applyPlan(ctx context.Context, w request, all Connections, d plan) (plan, error) {
	if all.Up().NeedLock() {
		release, err := f.lock.Acquire(ctx)
		if err != nil {
			return plan{}, err
		}
		defer release()
		all.Refresh(ctx, LookAt(w.prefix, true))
		if d, err = f.makePlan(w, all); err != nil {
			return plan{}, err
		}
	}
	up := all.Up()
	if err := f.checkSubnetsAllowed(ctx, up, w, d.changes); err != nil {
		return plan{}, err
	}
	var (
		no    CommandError
		why   error
		by    *Connection
		tried Change
	)
	for i, s := range up {
		if d.changes[i].IsEmpty() || s.Err != nil {
			continue
		}
		err := s.Server.Change(ctx, s.View, d.changes[i])
		if errors.Is(err, ErrChanged) {
			return plan{}, err
		}
		if errors.As(err, &no) {
			why, by, tried = err, s, d.changes[i]
			break // the servers after this one must not get what it does not have
		}
		s.Err = err
	}
	all.Refresh(ctx, LookAt(w.prefix, false))
	after, err := f.makePlan(w, all)
	if err != nil || after.isComplete() {
		return after, err
	}
	if i := slices.Index(all.Up(), by); i >= 0 && isFinal(no, tried, after.changes[i]) {
		return plan{}, Outage{Classify(why)}
	}
	return plan{}, ErrChanged
}

// checkSubnetsAllowed returns a refusal where a change would reserve addresses in a subnet that neither this
// stack has made nor the platform team has listed: a tenant's prefix may lie in the subnet of
// somebody else. Reservations that exist may be kept and removed there.
func (f *function) checkSubnetsAllowed(ctx context.Context, up Connections, w request, changes []Change) error {
	for i, s := range up {
		c := changes[i]
		if c.Create != nil || len(c.Add)+len(c.Update) == 0 || f.allowed.contain(s.View.Subnet) {
			continue
		}
		made, err := s.Server.Made(ctx, s.View)
		switch {
		case err != nil:
			s.Err = err
		case !made:
			return refusal{"SubnetNotAllowed", fmt.Sprintf(
				"%s lies in subnet %s (id %d) of Kea, which this stack has not made: use a network with another prefix, or have the platform team add %d or %s to %s (kea.allowedSubnets of the chart)",
				w.prefix, s.View.Subnet.Prefix, s.View.Subnet.ID, s.View.Subnet.ID, s.View.Subnet.Prefix, allowedVariable)}
		}
	}
	return nil
}

// isFinal tells whether a server that refused a change will refuse it again: what
// it lacks is what was tried. Otherwise it was changed meanwhile, and has refused
// what is out of date by now.
func isFinal(no CommandError, tried, lacks Change) bool {
	if no.Command == addReservation {
		tried.Create = nil // is done by then
	}
	return reflect.DeepEqual(tried, lacks)
}
