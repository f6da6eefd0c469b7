package main

import (
	"context"
	"errors"
	"fmt"
	"net/netip"
	"slices"

	"github.com/vitistack/stack/apis/v1alpha1"
	"github.com/vitistack/stack/functions/internal/reconcile"
	"github.com/vitistack/stack/functions/kea-reserve/kea"
)

// result says what reserve has done.
type result struct {
	// addresses are those of the interfaces. Every server that answers has their reservations
	// and keeps them over a restart.
	addresses []netip.Addr
	// down are the servers that do not have the reservations.
	down kea.Outage
	// changed is whether any server had to be changed, and released whether an address has become free.
	changed, released bool
}

// reserve makes the reservations of a request on every Kea server that answers, and reads them
// back. known says that the status records them on every server, so that the servers have to
// write their configuration files only after a change.
//
// Its error is a UserError, an Outage if no server answers, or any other error, after which
// the event has to be redelivered. It is one for which kube.Conflict is true if the spec of nc, which the request is of, has been changed
// since it was read: then nothing is removed.
func (f *function) reserve(ctx context.Context, nc *v1alpha1.NetworkConfiguration, req request, known bool) (result, error) {
	all := kea.Connect(ctx, f.clients, kea.ReadSubnet(req.prefix, true))
	d, err := f.readPlan(req, all)
	if err != nil {
		return result{}, err
	}
	changed, released := !d.isComplete(), false
	if changed {
		known, released = false, req.isReleasing(all.Up().States(), d.addresses)
		if d, err = f.applyPlan(ctx, nc, req, all, d); err != nil {
			return result{}, err
		}
	}
	if !known {
		all.Up().Each(func(s *kea.Connection) { s.Err = s.Server.Persist(ctx) })
	}
	if len(all.Up()) == 0 {
		return result{}, all.Outage()
	}
	g := result{addresses: d.addresses, down: all.Outage(), changed: changed, released: released}
	if !known && all[0].Err != nil {
		kea.CountFailover()
	}
	return g, nil
}

// readPlan reads the servers that answer, and returns the plan for a request.
func (f *function) readPlan(req request, all kea.Connections) (plan, error) {
	if err := all.Problem(); err != nil {
		return plan{}, err
	}
	if len(all.Up()) == 0 {
		return plan{}, all.Outage()
	}
	return planReservations(req, all.Up().States())
}

// applyPlan changes the servers, the primary one first, and reads back the result. It returns an Outage, and changes nothing, if an address is released
// while a server is down, because another machine would get an address that this server still gives to the first one. It skips a
// server that fails from then on. If a server refuses its Change, applyPlan changes no further
// server, because the result explains the refusal.
func (f *function) applyPlan(ctx context.Context, nc *v1alpha1.NetworkConfiguration, req request, all kea.Connections, d plan) (plan, error) {
	if all.Up().NeedLock() {
		release, err := f.lock.Acquire(ctx)
		if err != nil {
			return plan{}, err
		}
		defer release()
		all.Refresh(ctx, kea.ReadSubnet(req.prefix, true))
		if d, err = f.readPlan(req, all); err != nil {
			return plan{}, err
		}
	}
	up := all.Up()
	if err := f.checkRemovals(ctx, nc, req, all, d); err != nil {
		return plan{}, err
	}
	if err := f.checkSubnetsAllowed(ctx, up, req, d.changes); err != nil {
		return plan{}, err
	}
	var (
		no    kea.CommandError
		why   error
		by    *kea.Connection
		tried kea.Change
	)
	for i, s := range up {
		if d.changes[i].IsEmpty() || s.Err != nil {
			continue
		}
		err := s.Server.Change(ctx, s.State, d.changes[i])
		if errors.Is(err, kea.ErrChanged) {
			return plan{}, err
		}
		if errors.As(err, &no) {
			why, by, tried = err, s, d.changes[i]
			break // the servers after this one must not get what it does not have
		}
		s.Err = err
	}
	all.Refresh(ctx, kea.ReadSubnet(req.prefix, false))
	after, err := f.readPlan(req, all)
	if err != nil || after.isComplete() {
		return after, err
	}
	if i := slices.Index(all.Up(), by); i >= 0 && no.IsFinal(tried, after.changes[i]) {
		return plan{}, kea.Outage{kea.Classify(why)}
	}
	return plan{}, kea.ErrChanged
}

// checkRemovals returns an error if what a plan removes has to stay: an Outage if an address is released while a server is down, and one for which
// kube.Conflict is true if the spec has changed since it was read. The servers were read before, so that what a changed spec adds later is not removed.
func (f *function) checkRemovals(ctx context.Context, nc *v1alpha1.NetworkConfiguration, req request, all kea.Connections, d plan) error {
	switch {
	case len(all.Down()) > 0 && req.isReleasing(all.Up().States(), d.addresses):
		return all.Outage()
	case d.isRemoving():
		return f.kube.CheckSpecCurrent(ctx, nc)
	default:
		return nil
	}
}

// checkSubnetsAllowed returns a UserError if a change adds reservations to a subnet that
// neither the stack has created for the prefix of the request nor the platform team allows: the prefix of a
// tenant may lie in a subnet of others, and Kea gives clients the mask of the subnet. Reservations that exist
// in such a subnet may be kept and removed.
func (f *function) checkSubnetsAllowed(ctx context.Context, up kea.Connections, req request, changes []kea.Change) error {
	for i, s := range up {
		c, subnet := changes[i], s.State.Subnet
		if c.Create != nil || len(c.Add)+len(c.Update) == 0 || f.allowed.contain(subnet) {
			continue
		}
		problem := "which is wider than the network, so that machines would get its mask"
		if subnet.Prefix == req.prefix {
			made, err := s.Server.IsManaged(ctx, s.State)
			if s.Err = err; err != nil || made {
				continue
			}
			problem = "which this stack has not made"
		}
		return reconcile.UserError{Reason: "SubnetNotAllowed", Message: fmt.Sprintf(
			"%s lies in subnet %s (id %d) of Kea, %s: use a network with another prefix, or have the platform team add %d or %s to %s (kea.allowedSubnets of the chart)",
			req.prefix, subnet.Prefix, subnet.ID, problem, subnet.ID, subnet.Prefix, allowedVariable)}
	}
	return nil
}
