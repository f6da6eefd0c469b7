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
	"github.com/vitistack/stack/functions/kea-reserve/kea"
)

const source = "/functions/" + name

// isNetworkServed reports whether Kea serves a network, or keeps reservations of one that is being deleted.
func isNetworkServed(nn *v1alpha2.NetworkNamespace) bool {
	ours, _ := isServed(&v1alpha1.NetworkConfiguration{}, nn, false)
	return ours && !v1alpha1.IsPaused(nn) && (nn.DeletionTimestamp != nil || checkNetworkReady(nn) == nil)
}

// reconcileNetwork requeues the NetworkConfigurations that wait for a network, or whose
// reservations have a former prefix, gateway or DNS server of it. A full reconcile also
// removes orphaned reservations, and requeues NetworkConfigurations whose reservations a
// server has lost. The deletion of the network removes its subnets.
func (f *function) reconcileNetwork(ctx context.Context, namespace, name string, full bool) error {
	nn := &v1alpha2.NetworkNamespace{}
	if err := f.kube.Get(ctx, namespace, name, nn); err != nil {
		if kube.NotFound(err) {
			return nil
		}
		return err
	}
	if !isNetworkServed(nn) {
		return nil
	}
	var servers kea.Connections
	if full || nn.DeletionTimestamp != nil {
		var err error
		if servers, err = f.releaseOrphans(ctx, nn); err != nil {
			return err
		}
	}
	if nn.DeletionTimestamp != nil {
		return f.removeSubnets(ctx, nn)
	}
	waiting, err := f.configurationsOf(ctx, nn, func(nc *v1alpha1.NetworkConfiguration) bool {
		req, p := newRequest(nc, nn, f.classes)
		if p == nil && isReserved(nc, req, nn) {
			return hasLost(servers, req)
		}
		return p == nil && !network.AwaitsFirstReconcile(nn, nc.CreationTimestamp, nc.Status.Conditions)
	})
	if err != nil {
		return err
	}
	for i := range waiting {
		if err := f.requeue(ctx, &waiting[i], nn.ResourceVersion); err != nil {
			return err
		}
	}
	return nil
}

// requeueNextWaiting requeues the NetworkConfiguration that has waited longest for an address
// of a network. A NetworkConfiguration that gets its address calls it again, so that all free
// addresses are used.
func (f *function) requeueNextWaiting(ctx context.Context, nn *v1alpha2.NetworkNamespace) error {
	waiting, err := f.configurationsOf(ctx, nn, waitsForAddress)
	if err != nil || len(waiting) == 0 {
		return err
	}
	return f.requeue(ctx, &waiting[0], waiting[0].ResourceVersion)
}

func (f *function) requeue(ctx context.Context, nc *v1alpha1.NetworkConfiguration, cause string) error {
	ref := events.Ref{APIVersion: v1alpha1.GroupVersion.String(), Kind: "NetworkConfiguration", Namespace: nc.Namespace, Name: nc.Name}
	return f.sender.Send(ctx, events.NewReconcileRequest(source, ref, string(nc.UID), cause))
}

// configurationsOf returns the NetworkConfigurations of a network that isSelected accepts, the
// oldest first.
func (f *function) configurationsOf(ctx context.Context, nn *v1alpha2.NetworkNamespace, isSelected func(*v1alpha1.NetworkConfiguration) bool) ([]v1alpha1.NetworkConfiguration, error) {
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
		ours, _ := isServed(&nc, nn, f.strict)
		return !in || !ours || nc.DeletionTimestamp != nil || !isSelected(&nc)
	}), nil
}

// waitsForAddress reports whether a NetworkConfiguration waits for another one to release an
// address.
func waitsForAddress(nc *v1alpha1.NetworkConfiguration) bool {
	c := meta.FindStatusCondition(nc.Status.Conditions, v1alpha1.ConditionReady)
	return c != nil && c.Reason == reasonExhausted
}

// releaseOrphans removes the reservations of a network whose NetworkConfiguration does not
// exist, because a user removed its finalizer, or etcd was restored to an earlier time. One whose client has a lease of the address stays, because
// a virtual machine runs with it. It reads the reservations before the
// NetworkConfigurations, so that it never removes one that is being made. It returns what the
// servers have, or nil if one of them does not answer.
func (f *function) releaseOrphans(ctx context.Context, nn *v1alpha2.NetworkNamespace) (kea.Connections, error) {
	prefix, err := netip.ParsePrefix(nn.Status.IPv4Prefix)
	if err != nil || len(f.clients) == 0 {
		return nil, nil
	}
	all := kea.Connect(ctx, f.clients, kea.ReadSubnet(prefix, false))
	isOurs := func(r kea.Reservation) bool { return r.Owner.Network == string(nn.UID) }
	if len(all.Down()) > 0 {
		return nil, nil // the next full reconcile tries again
	}
	if countRemovals(all, isOurs) == 0 {
		return all, nil
	}
	list := &v1alpha1.NetworkConfigurationList{}
	if err := f.kube.List(ctx, nn.Namespace, "", list); err != nil {
		return nil, err
	}
	orphaned := map[string]bool{}
	for _, s := range all {
		for _, r := range s.State.Reservations {
			orphaned[r.Owner.UID] = isOurs(r)
		}
	}
	for _, nc := range list.Items {
		for _, uid := range v1alpha1.UIDs(&nc) {
			delete(orphaned, uid)
		}
	}
	isOrphaned := func(r kea.Reservation) bool { return isOurs(r) && orphaned[r.Owner.UID] }
	if countRemovals(all, isOrphaned) == 0 {
		return all, nil
	}
	leases := kea.Connect(ctx, f.clients, kea.ReadSubnet(prefix, true))
	isUsed := map[kea.Lease]bool{}
	for _, s := range leases.Up() {
		for _, l := range s.State.Leases {
			isUsed[l] = true
		}
	}
	isUnused := func(r kea.Reservation) bool {
		return isOrphaned(r) && !isUsed[kea.Lease{MAC: r.Client.Value, Address: r.Address}]
	}
	if len(leases.Down()) > 0 || countRemovals(leases, isUnused) == 0 {
		return all, nil
	}
	return all, f.removeFromServers(ctx, kea.ReadSubnet(prefix, false), isUnused)
}

// hasLost reports whether a server lacks a reservation of a request, for example after it was
// restored from a backup.
func hasLost(all kea.Connections, req request) bool {
	return slices.ContainsFunc(all, func(s *kea.Connection) bool {
		return slices.ContainsFunc(req.interfaces, func(nic interfaceRequest) bool {
			return !slices.ContainsFunc(s.State.Reservations, func(r kea.Reservation) bool {
				return r.Owner.UID == req.uid && r.Client == kea.MACIdentifier(nic.mac)
			})
		})
	})
}

// releaseFormerPrefix removes the reservations that a NetworkConfiguration has outside of its
// network's prefix, and the subnet that the stack created there. It does so after the prefix
// has changed, and again after a server was down. It returns an Outage if any server does
// not answer.
func (f *function) releaseFormerPrefix(ctx context.Context, nc *v1alpha1.NetworkConfiguration, nn *v1alpha2.NetworkNamespace, req request) error {
	moved, incomplete := hasMoved(nc, nn), meta.IsStatusConditionFalse(nc.Status.Conditions, conditionRedundant)
	if !moved && !incomplete {
		return nil
	}
	macs := macsOf(nc)
	find := func(ctx context.Context, s kea.Server) (kea.State, error) { return s.FindReservations(ctx, macs) }
	isOutside := func(r kea.Reservation) bool { return req.owns(r.Owner) && !req.prefix.Contains(r.Address) }
	if !moved {
		all := kea.Connect(ctx, f.clients, find)
		if len(all.Down()) > 0 {
			return all.Outage()
		}
		if countRemovals(all, isOutside) == 0 {
			return nil
		}
	}
	if err := f.removeFromServers(ctx, find, isOutside); err != nil {
		return err
	}
	return f.removeSubnets(ctx, nn)
}

// hasMoved reports whether a NetworkConfiguration has addresses of a prefix that its network
// no longer has.
func hasMoved(nc *v1alpha1.NetworkConfiguration, nn *v1alpha2.NetworkNamespace) bool {
	now, _ := netip.ParsePrefix(nn.Status.IPv4Prefix)
	return slices.ContainsFunc(nc.Status.NetworkInterfaces, func(i v1alpha1.InterfaceStatus) bool {
		return i.IPv4Subnet != "" && i.IPv4Subnet != now.Masked().String()
	})
}

// removeSubnets removes the empty subnets that the stack created for a network: those outside
// of its prefix, and all of them while it is being deleted.
func (f *function) removeSubnets(ctx context.Context, nn *v1alpha2.NetworkNamespace) error {
	keep, err := netip.ParsePrefix(nn.Status.IPv4Prefix)
	switch {
	case nn.DeletionTimestamp != nil:
		keep = netip.Prefix{}
	case err != nil:
		return nil
	}
	return f.removeSubnetsOf(ctx, v1alpha1.UIDs(nn), keep)
}

// removeSubnetsOf removes the empty subnets that the stack created for the networks with some UIDs, except
// subnets that overlap keep. It returns an Outage if a server does not answer but may do so later.
func (f *function) removeSubnetsOf(ctx context.Context, networks []string, keep netip.Prefix) error {
	if len(f.clients) == 0 || len(networks) == 0 {
		return nil
	}
	all := kea.Connect(ctx, f.clients, func(context.Context, kea.Server) (kea.State, error) { return kea.State{}, nil })
	if all.Up().NeedLock() {
		release, err := f.lock.Acquire(ctx)
		if err != nil {
			return err
		}
		defer release()
	}
	for _, s := range all.Up() {
		removed := false
		if removed, s.Err = s.Server.RemoveUnusedSubnets(ctx, networks, keep); s.Err == nil && removed {
			s.Err = s.Server.Persist(ctx)
		}
	}
	if err := all.Problem(); err != nil {
		return err
	}
	if out := all.Outage(); out.Retried() {
		return out
	}
	return nil // checkOrphans removes a subnet that is left once its network is gone
}
