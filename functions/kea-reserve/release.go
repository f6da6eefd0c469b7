package main

import (
	"context"
	"errors"
	"fmt"
	"slices"

	"github.com/vitistack/stack/apis/v1alpha1"
	"github.com/vitistack/stack/events"
	"github.com/vitistack/stack/functions/internal/kube"
	"github.com/vitistack/stack/functions/internal/network"
)

// releaseDeleted takes the reservations of a NetworkConfiguration that is being deleted
// back from every server, and then lets it go. While a machine uses it there is
// nothing to do.
func (f *function) releaseDeleted(ctx context.Context, nc *v1alpha1.NetworkConfiguration) error {
	if !slices.Contains(nc.Finalizers, v1alpha1.FinalizerKea) || len(network.Users(nc)) > 0 {
		return nil
	}
	before := nc.DeepCopy()
	err := f.removeReservations(ctx, nc)
	var out Outage
	if errors.As(err, &out) {
		scheduleCheck(nc, f.now(), checkOutage)
		told := setDeleting(nc, out.Reason(), "waits for every Kea server to give the reservations back: "+out.Error())
		if err := f.write(ctx, before, nc, told); err != nil {
			return err
		}
		if !out.IsTransient() {
			return nil
		}
	}
	if err != nil {
		return fmt.Errorf("release the reservations of %s/%s: %w", nc.Namespace, nc.Name, err)
	}
	if err := f.removeFinalizer(ctx, nc); err != nil {
		return err
	}
	events.Report(ctx, string(v1alpha1.NetworkConfigurationDeleting), "Released reservations")
	return f.afterRelease(ctx, nc)
}

// releaseUnserved takes the reservations of a NetworkConfiguration back that this function
// served once, and does not any more. Its status belongs to somebody else now.
func (f *function) releaseUnserved(ctx context.Context, nc *v1alpha1.NetworkConfiguration) error {
	if !slices.Contains(nc.Finalizers, v1alpha1.FinalizerKea) {
		return nil
	}
	if err := f.removeReservations(ctx, nc); err != nil {
		return fmt.Errorf("release the reservations of %s/%s: %w", nc.Namespace, nc.Name, err)
	}
	return f.removeFinalizer(ctx, nc)
}

func (f *function) removeFinalizer(ctx context.Context, nc *v1alpha1.NetworkConfiguration) error {
	before := nc.DeepCopy()
	kube.RemoveFinalizer(nc, v1alpha1.FinalizerKea)
	if _, err := f.kube.Patch(ctx, before, nc); err != nil && !kube.NotFound(err) {
		return err
	}
	return nil
}

// removeReservations removes the reservations of a NetworkConfiguration from every server,
// and sees that they are gone. All servers have to be there for that.
func (f *function) removeReservations(ctx context.Context, nc *v1alpha1.NetworkConfiguration) error {
	if len(f.clients) == 0 {
		return nil
	}
	macs, uid := macsOf(nc), string(nc.UID)
	find := func(ctx context.Context, s Server) (View, error) { return s.Find(ctx, macs) }
	return f.removeFromServers(ctx, find, func(r Reservation) bool { return r.Owner.UID == uid })
}

// removeFromServers removes the reservations that look shows and unwanted picks from every
// server, and sees that they are gone.
func (f *function) removeFromServers(ctx context.Context, look func(context.Context, Server) (View, error), unwanted func(Reservation) bool) error {
	all := Connect(ctx, f.clients, look)
	if len(all.Down()) > 0 {
		return all.Outage()
	}
	if all.NeedLock() && countRemovals(all, unwanted) > 0 {
		release, err := f.lock.Acquire(ctx)
		if err != nil {
			return err
		}
		defer release()
		all.Refresh(ctx, look)
	}
	for _, s := range all.Up() {
		if c := removalOf(s.View, unwanted); !c.IsEmpty() {
			s.Err = s.Server.Change(ctx, s.View, c)
		}
	}
	all.Refresh(ctx, look)
	all.Up().Each(func(s *Connection) { s.Err = s.Server.Persist(ctx) })
	if err := all.Problem(); err != nil {
		return err
	}
	if len(all.Down()) > 0 {
		return all.Outage()
	}
	if countRemovals(all, unwanted) > 0 {
		return ErrChanged
	}
	return nil
}

func countRemovals(all Connections, unwanted func(Reservation) bool) int {
	n := 0
	for _, s := range all.Up() {
		n += len(removalOf(s.View, unwanted).Remove)
	}
	return n
}

func removalOf(v View, unwanted func(Reservation) bool) Change {
	var c Change
	for _, r := range v.Reservations {
		if unwanted(r) {
			c.Remove = append(c.Remove, r)
		}
	}
	return c
}

// macsOf are the MAC addresses that a NetworkConfiguration may have reservations
// of: those of its spec, and those that its status still has.
func macsOf(nc *v1alpha1.NetworkConfiguration) []string {
	var macs []string
	for _, i := range nc.Spec.NetworkInterfaces {
		macs = append(macs, CanonicalMAC(string(i.MACAddress)))
	}
	for _, i := range nc.Status.NetworkInterfaces {
		macs = append(macs, CanonicalMAC(string(i.MACAddress)))
	}
	slices.Sort(macs)
	return slices.DeleteFunc(slices.Compact(macs), func(mac string) bool { return mac == "" })
}

// afterRelease looks after the network that addresses were given back to: whoever
// waits for one is woken, and the subnet of a network that goes, or has moved, goes too.
func (f *function) afterRelease(ctx context.Context, nc *v1alpha1.NetworkConfiguration) error {
	nn, err := network.Find(ctx, f.kube, nc.Namespace, network.NameFor(nc))
	if errors.As(err, new(network.Unresolved)) {
		return nil
	}
	if err != nil {
		return err
	}
	if nn.DeletionTimestamp != nil || moved(nc, nn) {
		if err := f.removeSubnets(ctx, nn); err != nil || nn.DeletionTimestamp != nil {
			return err
		}
	}
	return f.requeueNextWaiting(ctx, nn)
}
