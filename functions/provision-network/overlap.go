package main

import (
	"context"
	"fmt"
	"maps"
	"slices"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/vitistack/stack/apis/segment"
	"github.com/vitistack/stack/apis/segment/plan"
	"github.com/vitistack/stack/apis/v1alpha2"
	"github.com/vitistack/stack/functions/internal/kube"
)

// errConflictingClaim says that a younger network claims the same segment. That network
// gives its claim up in its next delivery.
var errConflictingClaim = fmt.Errorf("another network claims the same segment: %w", errRedeliver)

// The fields that have the VLAN of a network: of the segment in the status, and of the
// segment in the spec, which can be in two places.
const (
	statusVLAN = "status.vlanId" // also of NetworkConfigurations and IPAllocations
	manualVLAN = "spec.networkProvisioning.manual.vlanId"
	staticVLAN = "spec.ipAllocation.static.vlanId"
)

// networksInVLAN returns the networks that have a VLAN in one of the three fields, and all
// networks for VLAN 0, because the fields may leave that out. The status is read last, so
// that a network which moves from spec to status in between is found. The list is shared: do
// not modify it.
func (c claims) networksInVLAN(ctx context.Context, vlan int32) ([]v1alpha2.NetworkNamespace, error) {
	if vlan == 0 {
		list, err := kube.ListShared[v1alpha2.NetworkNamespaceList](ctx, c.kube, "", metav1.ListOptions{})
		return list.Items, err
	}
	found := map[types.UID]v1alpha2.NetworkNamespace{}
	for _, field := range []string{manualVLAN, staticVLAN, statusVLAN} {
		list, err := kube.ListShared[v1alpha2.NetworkNamespaceList](ctx, c.kube, "", metav1.ListOptions{FieldSelector: fmt.Sprintf("%s=%d", field, vlan)})
		if err != nil {
			return nil, err
		}
		for _, nn := range list.Items {
			found[nn.UID] = nn
		}
	}
	return slices.Collect(maps.Values(found)), nil
}

// checkOverlap returns a user error if another network has the segment that nn would have,
// and errConflictingClaim if the other network is about to give its claim up.
func (c claims) checkOverlap(ctx context.Context, nn *v1alpha2.NetworkNamespace, seg segment.Segment) error {
	others, err := c.networksInVLAN(ctx, seg.VLAN)
	if err != nil {
		return err
	}
	waits, err := plan.CheckOverlap(nn, seg, others, c.datacenters)
	if err == nil && waits {
		err = errConflictingClaim
	}
	return err
}

// overlapping returns the networks that have no segment because of an overlap.
func (c claims) overlapping(ctx context.Context) (waiting []v1alpha2.NetworkNamespace, err error) {
	list := &v1alpha2.NetworkNamespaceList{}
	failed := metav1.ListOptions{FieldSelector: "status.provisioningPhase=" + string(v1alpha2.ProvisioningError)}
	if err := c.kube.ListPage(ctx, "", failed, list); err != nil {
		return nil, err
	}
	for _, nn := range list.Items {
		if readyCondition(&nn).Reason == plan.ReasonOverlap && nn.DeletionTimestamp == nil {
			waiting = append(waiting, nn)
		}
	}
	return waiting, nil
}
