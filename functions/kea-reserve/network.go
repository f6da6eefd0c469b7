package main

import (
	"context"
	"net/netip"
	"slices"
	"strings"

	"k8s.io/apimachinery/pkg/api/meta"

	"github.com/vitistack/stack/apis/v1alpha1"
	"github.com/vitistack/stack/apis/v1alpha2"
	"github.com/vitistack/stack/events"
	"github.com/vitistack/stack/functions/internal/kube"
	"github.com/vitistack/stack/functions/internal/network"
)

const source = "/functions/" + name

// settleNetwork has everything looked at that waits for a network, or has been
// reserved on terms that the network has changed since. Again, which resync sends
// from time to time, also removes reservations whose holder is gone, as the deletion
// of the network does, and has those looked at whose reservations a server has lost.
func (f *function) settleNetwork(ctx context.Context, namespace, name string, again bool) error {
	nn := &v1alpha2.NetworkNamespace{}
	if err := f.kube.Get(ctx, namespace, name, nn); err != nil {
		if kube.NotFound(err) {
			return nil
		}
		return err
	}
	if ours, _ := serves(&v1alpha1.NetworkConfiguration{}, nn, false); !ours || (notReady(nn) != nil && nn.DeletionTimestamp == nil) {
		return nil
	}
	var swept peers
	if again || nn.DeletionTimestamp != nil {
		var err error
		if swept, err = f.sweep(ctx, nn); err != nil {
			return err
		}
	}
	if nn.DeletionTimestamp != nil {
		return f.retire(ctx, nn)
	}
	waiting, err := f.users(ctx, nn, func(nc *v1alpha1.NetworkConfiguration) bool {
		w, p := newWish(nc, nn, f.classes)
		if p == nil && settled(nc, w, nn) {
			return lost(swept, w)
		}
		return p == nil && !network.Unseen(nn, nc.CreationTimestamp, nc.Status.Conditions)
	})
	if err != nil {
		return err
	}
	for i := range waiting {
		if err := f.wake(ctx, &waiting[i], nn.ResourceVersion); err != nil {
			return err
		}
	}
	return nil
}

// wakeNext has the one looked at that has waited longest for an address of a
// network. It is called when an address has become free, and again by each that
// was served, until none is left that waits.
func (f *function) wakeNext(ctx context.Context, nn *v1alpha2.NetworkNamespace) error {
	waiting, err := f.users(ctx, nn, exhausted)
	if err != nil || len(waiting) == 0 {
		return err
	}
	return f.wake(ctx, &waiting[0], waiting[0].ResourceVersion)
}

func (f *function) wake(ctx context.Context, nc *v1alpha1.NetworkConfiguration, cause string) error {
	ref := events.Ref{APIVersion: v1alpha1.GroupVersion.String(), Kind: "NetworkConfiguration", Namespace: nc.Namespace, Name: nc.Name}
	return f.sender.Send(ctx, events.LookAgain(source, ref, string(nc.UID), cause))
}

// users are the NetworkConfigurations of a network that are picked, the oldest
// first.
func (f *function) users(ctx context.Context, nn *v1alpha2.NetworkNamespace, picked func(*v1alpha1.NetworkConfiguration) bool) ([]v1alpha1.NetworkConfiguration, error) {
	list := &v1alpha1.NetworkConfigurationList{}
	if err := f.kube.List(ctx, nn.Namespace, "", list); err != nil {
		return nil, err
	}
	slices.SortFunc(list.Items, func(a, b v1alpha1.NetworkConfiguration) int {
		if c := a.CreationTimestamp.Compare(b.CreationTimestamp.Time); c != 0 {
			return c
		}
		return strings.Compare(a.Name, b.Name)
	})
	return slices.DeleteFunc(list.Items, func(nc v1alpha1.NetworkConfiguration) bool {
		in := nc.Spec.NetworkNamespaceName == nn.Name || nc.Spec.NetworkNamespaceName == ""
		ours, _ := serves(&nc, nn, f.strict)
		return !in || !ours || nc.DeletionTimestamp != nil || !picked(&nc)
	}), nil
}

// exhausted tells whether a NetworkConfiguration waits for an address to become
// free.
func exhausted(nc *v1alpha1.NetworkConfiguration) bool {
	c := meta.FindStatusCondition(nc.Status.Conditions, v1alpha1.ConditionReady)
	return c != nil && c.Reason == reasonExhausted
}

// sweep removes the reservations of a network whose NetworkConfiguration is gone,
// which happens where somebody removed its finalizer. They are read before the
// NetworkConfigurations, so that none is taken for gone that is just being made. It
// returns the servers as it has found them, or none where one of them is down.
func (f *function) sweep(ctx context.Context, nn *v1alpha2.NetworkNamespace) (peers, error) {
	prefix, err := netip.ParsePrefix(nn.Status.IPv4Prefix)
	if err != nil || len(f.controls) == 0 {
		return nil, nil
	}
	all := meet(ctx, f.controls, looker(prefix, false))
	ours := func(r reservation) bool { return r.mark.Network == string(nn.UID) }
	if len(all.down()) > 0 {
		return nil, nil // the next sweep comes
	}
	if surplus(all, ours) == 0 {
		return all, nil
	}
	list := &v1alpha1.NetworkConfigurationList{}
	if err := f.kube.List(ctx, nn.Namespace, "", list); err != nil {
		return nil, err
	}
	orphan := map[string]bool{}
	for _, s := range all {
		for _, r := range s.view.held {
			orphan[r.mark.UID] = ours(r)
		}
	}
	for _, nc := range list.Items {
		delete(orphan, string(nc.UID))
	}
	gone := func(r reservation) bool { return ours(r) && orphan[r.mark.UID] }
	if surplus(all, gone) == 0 {
		return all, nil
	}
	return all, f.clear(ctx, looker(prefix, false), gone)
}

// lost tells whether a server has no reservation of an interface, as one does that
// was brought back from a backup.
func lost(all peers, w wish) bool {
	return slices.ContainsFunc(all, func(s *standing) bool {
		return slices.ContainsFunc(w.interfaces, func(n need) bool {
			return !slices.ContainsFunc(s.view.held, func(r reservation) bool { return r.mark.UID == w.uid && r.client == identifier{hwAddress, n.mac} })
		})
	})
}

// leave takes back what a NetworkConfiguration has outside of its network's prefix,
// and the subnet that the network has there: after the network has moved, and again
// where a server was down meanwhile. Every server has to be there for that.
func (f *function) leave(ctx context.Context, nc *v1alpha1.NetworkConfiguration, nn *v1alpha2.NetworkNamespace, w wish) error {
	away, behind := moved(nc, nn), meta.IsStatusConditionFalse(nc.Status.Conditions, conditionRedundant)
	if !away && !behind {
		return nil
	}
	macs := macsOf(nc)
	find := func(ctx context.Context, s server) (view, error) { return s.Find(ctx, macs) }
	stray := func(r reservation) bool { return w.mine(r.mark) && !w.prefix.Contains(r.address) }
	if !away {
		all := meet(ctx, f.controls, find)
		if len(all.down()) > 0 {
			return all.outage()
		}
		if surplus(all, stray) == 0 {
			return nil
		}
	}
	if err := f.clear(ctx, find, stray); err != nil {
		return err
	}
	return f.retire(ctx, nn)
}

// moved tells whether a NetworkConfiguration has been served in another prefix than
// the one that its network has now.
func moved(nc *v1alpha1.NetworkConfiguration, nn *v1alpha2.NetworkNamespace) bool {
	now, _ := netip.ParsePrefix(nn.Status.IPv4Prefix)
	return slices.ContainsFunc(nc.Status.NetworkInterfaces, func(i v1alpha1.InterfaceStatus) bool {
		return i.IPv4Subnet != "" && i.IPv4Subnet != now.Masked().String()
	})
}

// retire removes the subnets that were made for a network, once nothing is reserved in
// them: those that it has moved away from, and all of them when it is being deleted.
func (f *function) retire(ctx context.Context, nn *v1alpha2.NetworkNamespace) error {
	keep, err := netip.ParsePrefix(nn.Status.IPv4Prefix)
	switch {
	case len(f.controls) == 0:
		return nil
	case nn.DeletionTimestamp != nil:
		keep = netip.Prefix{}
	case err != nil:
		return nil
	}
	all := meet(ctx, f.controls, func(context.Context, server) (view, error) { return view{}, nil })
	if all.up().exclusive() {
		release, err := f.lock.take(ctx)
		if err != nil {
			return err
		}
		defer release()
	}
	for _, s := range all.up() {
		removed := false
		if removed, s.err = s.server.Retire(ctx, string(nn.UID), keep); removed && s.err == nil {
			s.err = s.server.Persist(ctx)
		}
	}
	if err := all.verdict(); err != nil {
		return err
	}
	if out := all.outage(); out.transient() {
		return out
	}
	return nil // an empty subnet that is left does no harm
}
