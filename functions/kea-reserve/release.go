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
	"github.com/vitistack/stack/functions/kea-reserve/kea"
)

// releaseDeleted removes the reservations of a NetworkConfiguration that is being deleted from
// every server, and then its finalizer. It does nothing while a machine uses the
// NetworkConfiguration.
func (f *function) releaseDeleted(ctx context.Context, nc *v1alpha1.NetworkConfiguration) error {
	if !slices.Contains(nc.Finalizers, v1alpha1.FinalizerKea) || len(network.Users(nc)) > 0 {
		return nil
	}
	before := nc.DeepCopy()
	err := f.removeReservations(ctx, nc)
	var out kea.Outage
	if errors.As(err, &out) {
		scheduleCheck(nc, f.now(), outageCheckInterval)
		outcome := setDeleting(nc, out.Reason(), "waiting for every Kea server to remove the reservations: "+out.Error())
		if err := f.patchStatus(ctx, before, nc, outcome); err != nil {
			return err
		}
		if !out.Retried() {
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

// releaseUnserved removes the reservations of a NetworkConfiguration that this function no longer
// serves, because its spec.provider or its network says otherwise. It does nothing while a machine uses the
// NetworkConfiguration. allocate-ip writes its status.
func (f *function) releaseUnserved(ctx context.Context, nc *v1alpha1.NetworkConfiguration) error {
	if !slices.Contains(nc.Finalizers, v1alpha1.FinalizerKea) || len(network.Users(nc)) > 0 {
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

// removeReservations removes the reservations of a NetworkConfiguration and checks that they
// are gone. It returns an Outage if any server does not answer.
func (f *function) removeReservations(ctx context.Context, nc *v1alpha1.NetworkConfiguration) error {
	if len(f.clients) == 0 {
		return nil
	}
	macs, uid := macsOf(nc), string(nc.UID)
	find := func(ctx context.Context, s kea.Server) (kea.State, error) { return s.FindReservations(ctx, macs) }
	return f.removeFromServers(ctx, find, func(r kea.Reservation) bool {
		return r.Owner.UID != "" && (r.Owner.UID == uid || v1alpha1.HadUID(nc, r.Owner.UID))
	})
}

// removeFromServers removes the reservations that read shows and isUnwanted selects from every
// server, with the leases of their clients, and checks that they are gone. It returns an Outage if any server does not answer.
func (f *function) removeFromServers(ctx context.Context, read func(context.Context, kea.Server) (kea.State, error), isUnwanted func(kea.Reservation) bool) error {
	all := kea.Connect(ctx, f.clients, read)
	if len(all.Down()) > 0 {
		return all.Outage()
	}
	if all.NeedLock() && countRemovals(all, isUnwanted) > 0 {
		release, err := f.lock.Acquire(ctx)
		if err != nil {
			return err
		}
		defer release()
		all.Refresh(ctx, read)
	}
	for _, s := range all.Up() {
		c := removalOf(s.State, isUnwanted)
		if c.IsEmpty() {
			continue
		}
		// The leases come first: after an error, the next delivery finds their addresses by the reservations.
		if s.Err = s.Server.ReleaseLeases(ctx, c.Remove); s.Err == nil {
			s.Err = s.Server.Change(ctx, s.State, c)
		}
	}
	all.Refresh(ctx, read)
	all.Up().Each(func(s *kea.Connection) { s.Err = s.Server.Persist(ctx) })
	if err := all.Problem(); err != nil {
		return err
	}
	if len(all.Down()) > 0 {
		return all.Outage()
	}
	if countRemovals(all, isUnwanted) > 0 {
		return kea.ErrChanged
	}
	return nil
}

func countRemovals(all kea.Connections, isUnwanted func(kea.Reservation) bool) int {
	n := 0
	for _, s := range all.Up() {
		n += len(removalOf(s.State, isUnwanted).Remove)
	}
	return n
}

func removalOf(state kea.State, isUnwanted func(kea.Reservation) bool) kea.Change {
	var c kea.Change
	for _, r := range state.Reservations {
		if isUnwanted(r) {
			c.Remove = append(c.Remove, r)
		}
	}
	return c
}

// macsOf returns the MAC addresses for which Kea may have reservations: those of the spec and
// those of the status.
func macsOf(nc *v1alpha1.NetworkConfiguration) []string {
	var macs []string
	for _, i := range nc.Spec.NetworkInterfaces {
		macs = append(macs, kea.CanonicalMAC(string(i.MACAddress)))
	}
	for _, i := range nc.Status.NetworkInterfaces {
		macs = append(macs, kea.CanonicalMAC(string(i.MACAddress)))
	}
	slices.Sort(macs)
	return slices.DeleteFunc(slices.Compact(macs), func(mac string) bool { return mac == "" })
}

// afterRelease requeues the NetworkConfiguration that has waited longest for an address, and
// removes the subnets of a network that is being deleted or has another prefix.
func (f *function) afterRelease(ctx context.Context, nc *v1alpha1.NetworkConfiguration) error {
	nn, err := network.Find(ctx, f.kube, nc.Namespace, network.NameFor(nc))
	if errors.As(err, new(network.Unresolved)) {
		return nil
	}
	if err != nil {
		return err
	}
	if nn.DeletionTimestamp != nil || hasMoved(nc, nn) {
		if err := f.removeSubnets(ctx, nn); err != nil || nn.DeletionTimestamp != nil {
			return err
		}
	}
	return f.requeueNextWaiting(ctx, nn)
}
