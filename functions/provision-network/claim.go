package main

import (
	"context"
	"fmt"
	"net/netip"
	"strconv"

	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/vitistack/stack/apis/v1alpha1"
	"github.com/vitistack/stack/apis/v1alpha2"
	"github.com/vitistack/stack/functions/internal/kube"
)

// reasonClaiming is the reason of a network that has claimed its segment, and makes
// sure that no other network has done the same.
const reasonClaiming = "Claiming"

// errContested says that a younger network claims the same segment. It gives way when
// it is looked at.
var errContested = fmt.Errorf("another network claims the segment as well: %w", errEarly)

// claim makes a segment a network's own before layer 2 may use it. It writes the
// segment into the status, where other networks see it, and then looks for others once
// more. It returns a user error where another object has the segment.
func (f *function) claim(ctx context.Context, nn *v1alpha2.NetworkNamespace, seg segment) error {
	if err := f.alone(ctx, nn, seg); err != nil {
		return err
	}
	if standing, has := standingOf(nn); standing == claiming && has.same(seg) {
		return nil
	}
	if err := f.vacated(ctx, nn, seg); err != nil {
		return err
	}
	before := nn.DeepCopy()
	describe(nn, seg)
	nn.Status.ProvisioningPhase, nn.Status.ObservedGeneration = v1alpha2.ProvisioningPending, nn.Generation
	nn.Status.Phase, nn.Status.Status, nn.Status.NextCheckTime = "Pending", reasonClaiming, nil
	if c := meta.FindStatusCondition(nn.Status.Conditions, v1alpha1.ConditionReady); c == nil || c.ObservedGeneration != nn.Generation {
		kube.SetReady(&nn.Status.Conditions, nn.Generation, false, reasonClaiming, "checks that no other network has "+seg.prefixes())
	}
	if _, err := f.kube.PatchStatus(ctx, before, nn); err != nil {
		return err
	}
	return f.alone(ctx, nn, seg)
}

// vacated returns a user error where an object still has an address of a segment that
// its own network does not have: one whose network was removed by force, or has moved.
func (f *function) vacated(ctx context.Context, nn *v1alpha2.NetworkNamespace, seg segment) error {
	configurations, err := kube.View[v1alpha1.NetworkConfigurationList](ctx, f.kube, "", metav1.ListOptions{})
	if err != nil {
		return err
	}
	reserved := metav1.ListOptions{FieldSelector: "spec.networkConfigurationName="}
	allocations, err := kube.View[v1alpha2.IPAllocationList](ctx, f.kube, "", reserved)
	if err != nil {
		return err
	}
	for i := range configurations.Items {
		nc := &configurations.Items[i]
		for _, address := range addressesIn(nc, seg) {
			user := occupant{"NetworkConfiguration", nc.Namespace, nc.Name, nc.Status.NetworkNamespaceName}
			if err := f.occupied(ctx, nn, seg, address, user); err != nil {
				return err
			}
		}
	}
	for _, a := range allocations.Items {
		address, err := netip.ParseAddr(a.Status.Address)
		if err != nil || !seg.contains(address) || a.Status.VLANID != seg.vlan {
			continue
		}
		if err := f.occupied(ctx, nn, seg, address, occupant{"IPAllocation", a.Namespace, a.Name, a.Spec.NetworkNamespaceName}); err != nil {
			return err
		}
	}
	return nil
}

// addressesIn returns the addresses of a segment that a NetworkConfiguration has.
func addressesIn(nc *v1alpha1.NetworkConfiguration, seg segment) (all []netip.Addr) {
	for _, i := range nc.Status.NetworkInterfaces {
		if vlan, err := strconv.ParseInt(i.VLAN, 10, 32); err != nil || int32(vlan) != seg.vlan {
			continue
		}
		for _, texts := range [][]string{i.IPv4Addresses, i.IPv6Addresses} {
			for _, text := range texts {
				if a, err := netip.ParseAddr(text); err == nil && seg.contains(a) {
					all = append(all, a)
				}
			}
		}
	}
	return all
}

// occupant is an object that has an address of a network.
type occupant struct{ kind, namespace, name, network string }

// occupied returns a user error for an address of a segment that an object of another
// network has.
func (f *function) occupied(ctx context.Context, nn *v1alpha2.NetworkNamespace, seg segment, address netip.Addr, user occupant) error {
	if user.namespace == nn.Namespace && user.network == nn.Name {
		return nil
	}
	other := &v1alpha2.NetworkNamespace{}
	switch err := f.kube.Get(ctx, user.namespace, user.network, other); {
	case err != nil && !kube.NotFound(err):
		return err
	case err == nil && f.separate(nn, other):
		return nil
	}
	return refused{reasonOverlap, fmt.Sprintf(
		"%s (VLAN %d) contains %s, which %s %s/%s has of NetworkNamespace %s: choose another prefix or VLAN, or delete that %s",
		seg.prefixes(), seg.vlan, address, user.kind, user.namespace, user.name, user.network, user.kind)}
}
