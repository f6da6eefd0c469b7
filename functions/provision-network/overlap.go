package main

import (
	"context"
	"fmt"
	"maps"
	"slices"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/vitistack/stack/apis/v1alpha2"
	"github.com/vitistack/stack/functions/internal/kube"
	"github.com/vitistack/stack/functions/internal/reconcile"
	"github.com/vitistack/stack/functions/provision-network/provider"
	"github.com/vitistack/stack/functions/provision-network/provider/manual"
)

const reasonOverlap = "SegmentOverlap"

// errConflictingClaim says that a younger network claims the same segment. That network
// gives its claim up in its next delivery.
var errConflictingClaim = fmt.Errorf("another network claims the same segment: %w", errRedeliver)

// overlapError returns the user error of a network whose segment overlaps that of holder.
func overlapError(seg provider.Segment, holder *v1alpha2.NetworkNamespace, theirs provider.Segment) reconcile.UserError {
	if !seg.Overlaps(theirs) {
		return reconcile.UserError{Reason: reasonOverlap, Message: fmt.Sprintf(
			"VLAN %d is that of NetworkNamespace %s/%s: choose another VLAN, delete that network, or ask the platform team to set spec.shareVLANs in a NetworkPool",
			seg.VLAN, holder.Namespace, holder.Name)}
	}
	return reconcile.UserError{Reason: reasonOverlap, Message: fmt.Sprintf(
		"%s (VLAN %d) overlaps %s of NetworkNamespace %s/%s: choose another prefix or VLAN, or delete that network",
		seg.Prefixes(), seg.VLAN, theirs.Prefixes(), holder.Namespace, holder.Name)}
}

// claimState is how far a network has come with a segment.
type claimState int

const (
	// noClaim is a network without a segment, whose next segment is unknown.
	noClaim claimState = iota
	// requested is a network whose spec describes the segment.
	requested
	// claimed is a network whose status has the segment, and which is not Ready yet.
	claimed
	// held is a network that is Ready or being deleted: machines may use the segment.
	held
)

// claimOf returns how far a network has come with which segment.
func claimOf(nn *v1alpha2.NetworkNamespace) (claimState, provider.Segment) {
	if s, err := provider.StatusSegment(nn); err == nil {
		if holdsSegment(nn) {
			return held, s
		}
		return claimed, s
	}
	providerName, _ := providerOf(nn.Spec)
	if providerName != v1alpha2.ProviderManual || nn.DeletionTimestamp != nil || nn.Status.ProvisioningPhase == v1alpha2.ProvisioningError {
		return noClaim, provider.Segment{}
	}
	s, err := manual.Segment(nn)
	if err != nil {
		return noClaim, provider.Segment{}
	}
	return requested, s
}

// isOlder reports whether a was created before b. The UID decides between two networks of
// the same second.
func isOlder(a, b *v1alpha2.NetworkNamespace) bool {
	if !a.CreationTimestamp.Equal(&b.CreationTimestamp) {
		return a.CreationTimestamp.Before(&b.CreationTimestamp)
	}
	return a.UID < b.UID
}

// precedence is what a network does about another network whose segment overlaps.
type precedence int

const (
	continues precedence = iota
	waitsForOther
	givesUp
)

// decidePrecedence compares a network with another one whose segment overlaps:
//
//	network    other      the network
//	held       held       gives up if it is younger
//	held       else       continues
//	else       held       gives up
//	claimed    claimed    gives up if it is younger, else waits for the other
//	claimed    requested  continues
//	requested  claimed    gives up
//	requested  requested  gives up if it is younger
//
// A network becomes Ready only after it has claimed its segment and then found no other
// network that claims or holds it. Of two networks at least the one that claims later finds
// the other, so that never both become Ready, whatever their age.
func decidePrecedence(own, other claimState, older bool) precedence {
	switch {
	case own == held && other == held, own == requested && other == requested:
		if older {
			return continues
		}
		return givesUp
	case own == held, other == noClaim, own == claimed && other == requested:
		return continues
	case own == claimed && other == claimed && older:
		return waitsForOther
	default:
		return givesUp
	}
}

// The fields that have the VLAN of a network: of the segment in the status, and of the
// segment in the spec, which can be in two places.
const (
	statusVLAN = "status.vlanId"
	manualVLAN = "spec.networkProvisioning.manual.vlanId"
	staticVLAN = "spec.ipAllocation.static.vlanId"
)

// networksInVLAN returns the networks that have a VLAN in one of the three fields, and all
// networks for VLAN 0, because the fields may leave that out. The status is read last, so
// that a network which moves from spec to status in between is found. The list is shared: do
// not modify it.
func (f *function) networksInVLAN(ctx context.Context, vlan int32) ([]v1alpha2.NetworkNamespace, error) {
	if vlan == 0 {
		list, err := kube.ListShared[v1alpha2.NetworkNamespaceList](ctx, f.kube, "", metav1.ListOptions{})
		return list.Items, err
	}
	found := map[types.UID]v1alpha2.NetworkNamespace{}
	for _, field := range []string{manualVLAN, staticVLAN, statusVLAN} {
		list, err := kube.ListShared[v1alpha2.NetworkNamespaceList](ctx, f.kube, "", metav1.ListOptions{FieldSelector: fmt.Sprintf("%s=%d", field, vlan)})
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
func (f *function) checkOverlap(ctx context.Context, nn *v1alpha2.NetworkNamespace, seg provider.Segment) error {
	others, err := f.networksInVLAN(ctx, seg.VLAN)
	if err != nil {
		return err
	}
	return f.decideOverlap(nn, seg, others)
}

// decideOverlap is checkOverlap among some networks.
func (f *function) decideOverlap(nn *v1alpha2.NetworkNamespace, seg provider.Segment, others []v1alpha2.NetworkNamespace) error {
	own, has := claimOf(nn)
	if own == noClaim || !has.Same(seg) {
		own = requested
	}
	waits := false
	for i := range others {
		other := &others[i]
		state, theirs := claimOf(other)
		if other.UID == nn.UID || state == noClaim || f.areSeparate(nn, other) || !seg.Overlaps(theirs) && !sharesVLAN(seg, theirs, nn, other) {
			continue
		}
		switch decidePrecedence(own, state, isOlder(nn, other)) {
		case givesUp:
			return overlapError(seg, other, theirs)
		case waitsForOther:
			waits = true
		}
	}
	if waits {
		return errConflictingClaim
	}
	return nil
}

// sharesVLAN reports whether a segment with an exclusive VLAN is in the VLAN of another
// namespace.
func sharesVLAN(seg, theirs provider.Segment, nn, other *v1alpha2.NetworkNamespace) bool {
	return seg.ExclusiveVLAN && seg.VLAN != 0 && seg.VLAN == theirs.VLAN && nn.Namespace != other.Namespace
}

// areSeparate reports whether two networks are in data centres that share no bridge, as the
// platform team has declared.
func (f *function) areSeparate(a, b *v1alpha2.NetworkNamespace) bool {
	one, other := datacenterOf(a), datacenterOf(b)
	return one != other && (f.datacenters[one] || f.datacenters[other])
}

// overlappingNetworks returns the networks that have no segment because of an overlap.
func (f *function) overlappingNetworks(ctx context.Context) (waiting []v1alpha2.NetworkNamespace, err error) {
	list := &v1alpha2.NetworkNamespaceList{}
	failed := metav1.ListOptions{FieldSelector: "status.provisioningPhase=" + string(v1alpha2.ProvisioningError)}
	if err := f.kube.ListPage(ctx, "", failed, list); err != nil {
		return nil, err
	}
	for _, nn := range list.Items {
		if readyCondition(&nn).Reason == reasonOverlap && nn.DeletionTimestamp == nil {
			waiting = append(waiting, nn)
		}
	}
	return waiting, nil
}
