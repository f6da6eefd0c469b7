package main

import (
	"context"
	"fmt"
	"net/netip"
	"strconv"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/vitistack/stack/apis/v1alpha1"
	"github.com/vitistack/stack/apis/v1alpha2"
	"github.com/vitistack/stack/functions/internal/kube"
	"github.com/vitistack/stack/functions/internal/reconcile"
	"github.com/vitistack/stack/functions/provision-network/provider"
)

// reasonClaiming is the reason of a network that has claimed its segment and is checking
// that no other network has claimed it.
const reasonClaiming = "Claiming"

// claimSegment makes a segment a network's own before layer 2 may use it. It writes the
// segment into the status, where other networks see it, and then checks once more for
// overlaps. It returns a user error if another object has the segment. A second call with
// the same segment writes nothing.
func (f *function) claimSegment(ctx context.Context, nn *v1alpha2.NetworkNamespace, seg provider.Segment) error {
	if err := f.checkOverlap(ctx, nn, seg); err != nil {
		return err
	}
	if state, has := claimOf(nn); state == claimed && has.Same(seg) {
		return nil
	}
	if err := f.checkAddressesInUse(ctx, nn, seg); err != nil {
		return err
	}
	before := nn.DeepCopy()
	setSegment(nn, seg)
	nn.Status.ProvisioningPhase, nn.Status.ObservedGeneration = v1alpha2.ProvisioningPending, nn.Generation
	nn.Status.Phase, nn.Status.Status, nn.Status.NextCheckTime = "Pending", reasonClaiming, nil
	if readyCondition(nn).ObservedGeneration != nn.Generation {
		kube.SetReady(&nn.Status.Conditions, nn.Generation, false, reasonClaiming, "checking that no other network has "+seg.Prefixes())
	}
	if _, err := f.kube.PatchStatus(ctx, before, nn); err != nil {
		return err
	}
	return f.checkOverlap(ctx, nn, seg)
}

// addressUser is an object that has an address of a network.
type addressUser struct{ kind, namespace, name, network string }

// checkAddressesInUse returns a user error if an object has an address of a segment that its
// own network does not have, because that network was removed by force or has moved.
func (f *function) checkAddressesInUse(ctx context.Context, nn *v1alpha2.NetworkNamespace, seg provider.Segment) error {
	configurations, err := kube.ListShared[v1alpha1.NetworkConfigurationList](ctx, f.kube, "", metav1.ListOptions{})
	if err != nil {
		return err
	}
	byUsers := metav1.ListOptions{FieldSelector: "spec.networkConfigurationName="}
	allocations, err := kube.ListShared[v1alpha2.IPAllocationList](ctx, f.kube, "", byUsers)
	if err != nil {
		return err
	}
	for i := range configurations.Items {
		nc := &configurations.Items[i]
		for _, address := range addressesInSegment(nc, seg) {
			user := addressUser{"NetworkConfiguration", nc.Namespace, nc.Name, nc.Status.NetworkNamespaceName}
			if err := f.checkAddressUser(ctx, nn, seg, address, user); err != nil {
				return err
			}
		}
	}
	for _, a := range allocations.Items {
		address, err := netip.ParseAddr(a.Status.Address)
		if err != nil || !seg.Contains(address) || a.Status.VLANID != seg.VLAN {
			continue
		}
		if err := f.checkAddressUser(ctx, nn, seg, address, addressUser{"IPAllocation", a.Namespace, a.Name, a.Spec.NetworkNamespaceName}); err != nil {
			return err
		}
	}
	return nil
}

// addressesInSegment returns the addresses of a segment that a NetworkConfiguration has.
func addressesInSegment(nc *v1alpha1.NetworkConfiguration, seg provider.Segment) (all []netip.Addr) {
	for _, i := range nc.Status.NetworkInterfaces {
		if vlan, err := strconv.ParseInt(i.VLAN, 10, 32); err != nil || int32(vlan) != seg.VLAN {
			continue
		}
		for _, texts := range [][]string{i.IPv4Addresses, i.IPv6Addresses} {
			for _, text := range texts {
				if a, err := netip.ParseAddr(text); err == nil && seg.Contains(a) {
					all = append(all, a)
				}
			}
		}
	}
	return all
}

// checkAddressUser returns a user error if an address of a segment belongs to an object of
// another network, unless the two networks are separate.
func (f *function) checkAddressUser(ctx context.Context, nn *v1alpha2.NetworkNamespace, seg provider.Segment, address netip.Addr, user addressUser) error {
	if user.namespace == nn.Namespace && user.network == nn.Name {
		return nil
	}
	other := &v1alpha2.NetworkNamespace{}
	switch err := f.kube.Get(ctx, user.namespace, user.network, other); {
	case err != nil && !kube.NotFound(err):
		return err
	case err == nil && f.areSeparate(nn, other):
		return nil
	}
	return reconcile.UserError{Reason: reasonOverlap, Message: fmt.Sprintf(
		"%s (VLAN %d) contains %s, which %s %s/%s has in NetworkNamespace %s: choose another prefix or VLAN, or delete that %s",
		seg.Prefixes(), seg.VLAN, address, user.kind, user.namespace, user.name, user.network, user.kind)}
}
