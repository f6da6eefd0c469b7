package main

import (
	"context"
	"fmt"
	"strconv"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/vitistack/stack/apis/segment"
	"github.com/vitistack/stack/apis/segment/plan"
	"github.com/vitistack/stack/apis/v1alpha1"
	"github.com/vitistack/stack/apis/v1alpha2"
	"github.com/vitistack/stack/functions/internal/kube"
)

// reasonClaiming is the reason of a network that has claimed its segment and is checking
// that no other network has claimed it.
const reasonClaiming = "Claiming"

// claims keeps two networks from having the same segment.
type claims struct {
	kube        *kube.Client
	datacenters plan.Datacenters
}

func (f *function) claims() claims { return claims{f.kube, f.datacenters} }

// claim makes a segment a network's own before layer 2 may use it. It writes the
// segment into the status, where other networks see it, and then checks once more for
// overlaps. It returns a user error if another object has the segment. A second call with
// the same segment writes nothing.
func (c claims) claim(ctx context.Context, nn *v1alpha2.NetworkNamespace, seg segment.Segment) error {
	if err := c.checkOverlap(ctx, nn, seg); err != nil {
		return err
	}
	if plan.HasClaimed(nn, seg) {
		return nil
	}
	if err := c.checkAddressesInUse(ctx, nn, seg); err != nil {
		return err
	}
	before := nn.DeepCopy()
	segment.SetStatus(nn, seg)
	nn.Status.ProvisioningPhase, nn.Status.ObservedGeneration = v1alpha2.ProvisioningPending, nn.Generation
	nn.Status.Phase, nn.Status.Status, nn.Status.NextCheckTime = "Pending", reasonClaiming, nil
	if readyCondition(nn).ObservedGeneration != nn.Generation {
		kube.SetReady(&nn.Status.Conditions, nn.Generation, false, reasonClaiming, "checking that no other network has "+seg.Prefixes())
	}
	if _, err := c.kube.PatchStatus(ctx, before, nn); err != nil {
		return err
	}
	return c.checkOverlap(ctx, nn, seg)
}

// checkAddressesInUse returns a user error if an object has an address of a segment that its
// own network does not have, because that network was removed by force or has moved.
func (c claims) checkAddressesInUse(ctx context.Context, nn *v1alpha2.NetworkNamespace, seg segment.Segment) error {
	configurations, err := c.configurationsInVLAN(ctx, seg.VLAN)
	if err != nil {
		return err
	}
	byUsers := metav1.ListOptions{FieldSelector: "spec.networkConfigurationName="}
	if seg.VLAN != 0 {
		byUsers.FieldSelector += fmt.Sprintf(",%s=%d", statusVLAN, seg.VLAN)
	}
	allocations, err := kube.ListShared[v1alpha2.IPAllocationList](ctx, c.kube, "", byUsers)
	if err != nil {
		return err
	}
	find := func(namespace, name string) (*v1alpha2.NetworkNamespace, error) {
		other := &v1alpha2.NetworkNamespace{}
		err := c.kube.Get(ctx, namespace, name, other)
		if kube.NotFound(err) {
			return nil, nil
		}
		return other, err
	}
	users := plan.AddressUsers{Configurations: configurations, Allocations: allocations.Items, Network: find}
	return users.CheckAddresses(nn, seg, c.datacenters)
}

// configurationsInVLAN returns the NetworkConfigurations whose status has a VLAN, and those whose status has none: they have no
// address yet, addresses of several VLANs, or an older version has written them. The API server returns no others. Those without
// a VLAN are listed first: a NetworkConfiguration that gets its VLAN between the two lists is in the second one.
func (c claims) configurationsInVLAN(ctx context.Context, vlan int32) (found []v1alpha1.NetworkConfiguration, err error) {
	for _, value := range []string{"", strconv.Itoa(int(vlan))} {
		list, err := kube.ListShared[v1alpha1.NetworkConfigurationList](ctx, c.kube, "", metav1.ListOptions{FieldSelector: statusVLAN + "=" + value})
		if err != nil {
			return nil, err
		}
		found = append(found, list.Items...)
	}
	return found, nil
}
