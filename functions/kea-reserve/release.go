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

// release takes the reservations of a NetworkConfiguration that is being deleted
// back from every server, and then lets it go. While a machine uses it there is
// nothing to do.
func (f *function) release(ctx context.Context, nc *v1alpha1.NetworkConfiguration) error {
	if !slices.Contains(nc.Finalizers, v1alpha1.FinalizerKea) || len(network.Users(nc)) > 0 {
		return nil
	}
	before := nc.DeepCopy()
	err := f.takeBack(ctx, nc)
	var out outage
	if errors.As(err, &out) {
		checkAgain(nc, f.now(), checkOutage)
		told := deleting(nc, out.reason(), "waits for every Kea server to give the reservations back: "+out.Error())
		if err := f.write(ctx, before, nc, told); err != nil {
			return err
		}
		if !out.transient() {
			return nil
		}
	}
	if err != nil {
		return fmt.Errorf("release the reservations of %s/%s: %w", nc.Namespace, nc.Name, err)
	}
	if err := f.letGo(ctx, nc); err != nil {
		return err
	}
	events.Report(ctx, string(v1alpha1.NetworkConfigurationDeleting), "Released reservations")
	return f.released(ctx, nc)
}

// abandon takes the reservations of a NetworkConfiguration back that this function
// served once, and does not any more. Its status belongs to somebody else now.
func (f *function) abandon(ctx context.Context, nc *v1alpha1.NetworkConfiguration) error {
	if !slices.Contains(nc.Finalizers, v1alpha1.FinalizerKea) {
		return nil
	}
	if err := f.takeBack(ctx, nc); err != nil {
		return fmt.Errorf("release the reservations of %s/%s: %w", nc.Namespace, nc.Name, err)
	}
	return f.letGo(ctx, nc)
}

func (f *function) letGo(ctx context.Context, nc *v1alpha1.NetworkConfiguration) error {
	before := nc.DeepCopy()
	kube.RemoveFinalizer(nc, v1alpha1.FinalizerKea)
	if _, err := f.kube.Patch(ctx, before, nc); err != nil && !kube.NotFound(err) {
		return err
	}
	return nil
}

// takeBack removes the reservations of a NetworkConfiguration from every server,
// and sees that they are gone. All servers have to be there for that.
func (f *function) takeBack(ctx context.Context, nc *v1alpha1.NetworkConfiguration) error {
	if len(f.controls) == 0 {
		return nil
	}
	macs, uid := macsOf(nc), string(nc.UID)
	find := func(ctx context.Context, s server) (view, error) { return s.Find(ctx, macs) }
	return f.clear(ctx, find, func(r reservation) bool { return r.mark.UID == uid })
}

// clear removes the reservations that look shows and unwanted picks from every
// server, and sees that they are gone.
func (f *function) clear(ctx context.Context, look func(context.Context, server) (view, error), unwanted func(reservation) bool) error {
	all := meet(ctx, f.controls, look)
	if len(all.down()) > 0 {
		return all.outage()
	}
	if all.exclusive() && surplus(all, unwanted) > 0 {
		release, err := f.lock.take(ctx)
		if err != nil {
			return err
		}
		defer release()
		all.look(ctx, look)
	}
	for _, s := range all.up() {
		if c := remainder(s.view, unwanted); !c.empty() {
			s.err = s.server.Change(ctx, s.view, c)
		}
	}
	all.look(ctx, look)
	all.up().each(func(s *standing) { s.err = s.server.Persist(ctx) })
	if err := all.verdict(); err != nil {
		return err
	}
	if len(all.down()) > 0 {
		return all.outage()
	}
	if surplus(all, unwanted) > 0 {
		return errMoved
	}
	return nil
}

func surplus(all peers, unwanted func(reservation) bool) int {
	n := 0
	for _, s := range all.up() {
		n += len(remainder(s.view, unwanted).remove)
	}
	return n
}

func remainder(v view, unwanted func(reservation) bool) change {
	var c change
	for _, r := range v.held {
		if unwanted(r) {
			c.remove = append(c.remove, r)
		}
	}
	return c
}

// macsOf are the MAC addresses that a NetworkConfiguration may have reservations
// of: those of its spec, and those that its status still has.
func macsOf(nc *v1alpha1.NetworkConfiguration) []string {
	var macs []string
	for _, i := range nc.Spec.NetworkInterfaces {
		macs = append(macs, canonicalMAC(string(i.MACAddress)))
	}
	for _, i := range nc.Status.NetworkInterfaces {
		macs = append(macs, canonicalMAC(string(i.MACAddress)))
	}
	slices.Sort(macs)
	return slices.DeleteFunc(slices.Compact(macs), func(mac string) bool { return mac == "" })
}

// released looks after the network that addresses were given back to: whoever
// waits for one is woken, and the subnet of a network that goes, or has moved, goes too.
func (f *function) released(ctx context.Context, nc *v1alpha1.NetworkConfiguration) error {
	nn, err := network.Find(ctx, f.kube, nc.Namespace, network.NameFor(nc))
	if errors.As(err, new(network.Unresolved)) {
		return nil
	}
	if err != nil {
		return err
	}
	if nn.DeletionTimestamp != nil || moved(nc, nn) {
		if err := f.retire(ctx, nn); err != nil || nn.DeletionTimestamp != nil {
			return err
		}
	}
	return f.wakeNext(ctx, nn)
}
