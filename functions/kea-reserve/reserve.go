package main

import (
	"context"
	"errors"
	"fmt"
	"net/netip"
	"reflect"
	"slices"
)

// granted is what became of a wish.
type granted struct {
	// addresses are those of the interfaces, which every server that is up holds
	// and will hold after a restart.
	addresses []netip.Addr
	// down are the servers that could not be given the reservations.
	down outage
	// changed is whether anything had to be changed.
	changed bool
}

// reserve grants a wish on all Kea servers that can be reached, and reads back
// that it is granted. known says that every server was seen to have kept it
// before, so that there is nothing to persist unless something has to be changed.
//
// It returns a refusal where a wish cannot be granted, an outage where no server
// can grant it, and any other error for what another delivery may mend.
func (f *function) reserve(ctx context.Context, w wish, known bool) (granted, error) {
	all := meet(ctx, f.controls, looker(w.prefix, true))
	d, err := f.judge(w, all)
	if err != nil {
		return granted{}, err
	}
	changed := !d.done()
	if changed {
		known = false
		if d, err = f.change(ctx, w, all, d); err != nil {
			return granted{}, err
		}
	}
	if !known {
		all.up().each(func(s *standing) { s.err = s.server.Persist(ctx) })
	}
	if len(all.up()) == 0 {
		return granted{}, all.outage()
	}
	g := granted{addresses: d.addresses, down: all.outage(), changed: changed}
	if !known && all[0].err != nil {
		failedOver()
	}
	return g, nil
}

// judge decides by what the servers that are up have.
func (f *function) judge(w wish, all peers) (decision, error) {
	if err := all.verdict(); err != nil {
		return decision{}, err
	}
	if len(all.up()) == 0 {
		return decision{}, all.outage()
	}
	return decide(w, all.up().views())
}

// change does what a decision says, the primary server first, and reads back what
// became of it. A server that fails is left behind, one that refuses is not: what
// it has by then tells why.
func (f *function) change(ctx context.Context, w wish, all peers, d decision) (decision, error) {
	if all.up().exclusive() {
		release, err := f.lock.take(ctx)
		if err != nil {
			return decision{}, err
		}
		defer release()
		all.look(ctx, looker(w.prefix, true))
		if d, err = f.judge(w, all); err != nil {
			return decision{}, err
		}
	}
	up := all.up()
	if err := f.permit(ctx, up, w, d.changes); err != nil {
		return decision{}, err
	}
	var (
		no    refused
		why   error
		by    *standing
		tried change
	)
	for i, s := range up {
		if d.changes[i].empty() || s.err != nil {
			continue
		}
		err := s.server.Change(ctx, s.view, d.changes[i])
		if errors.Is(err, errMoved) {
			return decision{}, err
		}
		if errors.As(err, &no) {
			why, by, tried = err, s, d.changes[i]
			break // the servers after this one must not get what it does not have
		}
		s.err = err
	}
	all.look(ctx, looker(w.prefix, false))
	after, err := f.judge(w, all)
	if err != nil || after.done() {
		return after, err
	}
	if i := slices.Index(all.up(), by); i >= 0 && final(no, tried, after.changes[i]) {
		return decision{}, outage{faultOf(why)}
	}
	return decision{}, errMoved
}

// permit returns a refusal where a change would reserve addresses in a subnet that neither this
// stack has made nor the platform team has listed: a tenant's prefix may lie in the subnet of
// somebody else. Reservations that exist may be kept and removed there.
func (f *function) permit(ctx context.Context, up peers, w wish, changes []change) error {
	for i, s := range up {
		c := changes[i]
		if c.create != nil || len(c.add)+len(c.update) == 0 || f.allowed.contain(s.view.subnet) {
			continue
		}
		made, err := s.server.Made(ctx, s.view)
		switch {
		case err != nil:
			s.err = err
		case !made:
			return refusal{"SubnetNotAllowed", fmt.Sprintf(
				"%s lies in subnet %s (id %d) of Kea, which this stack has not made: use a network with another prefix, or have the platform team add %d or %s to %s (kea.allowedSubnets of the chart)",
				w.prefix, s.view.subnet.prefix, s.view.subnet.id, s.view.subnet.id, s.view.subnet.prefix, allowedVariable)}
		}
	}
	return nil
}

// final tells whether a server that refused a change will refuse it again: what
// it lacks is what was tried. Otherwise it was changed meanwhile, and has refused
// what is out of date by now.
func final(no refused, tried, lacks change) bool {
	if no.command == addReservation {
		tried.create = nil // is done by then
	}
	return reflect.DeepEqual(tried, lacks)
}
