package main

import (
	"context"
	"fmt"
	"maps"
	"net/netip"
	"slices"
	"strings"

	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/vitistack/stack/apis/v1alpha1"
	"github.com/vitistack/stack/apis/v1alpha2"
	"github.com/vitistack/stack/functions/internal/kube"
)

const reasonOverlap = "SegmentOverlap"

// overlapping returns the user error that another network has the segment, or part of
// it.
func overlapping(seg segment, holder *v1alpha2.NetworkNamespace, theirs segment) refused {
	if !seg.overlaps(theirs) {
		return refused{reasonOverlap, fmt.Sprintf(
			"VLAN %d is that of NetworkNamespace %s/%s: choose another VLAN, delete that network, or ask the platform team to set spec.shareVLANs in a NetworkPool",
			seg.vlan, holder.Namespace, holder.Name)}
	}
	return refused{reasonOverlap, fmt.Sprintf(
		"%s (VLAN %d) overlaps %s of NetworkNamespace %s/%s, which has it: choose another prefix or VLAN, or delete that network",
		seg.prefixes(), seg.vlan, theirs.prefixes(), holder.Namespace, holder.Name)}
}

func (s segment) prefixes() string {
	var all []string
	for _, p := range []netip.Prefix{s.ipv4, s.ipv6} {
		if p.IsValid() {
			all = append(all, p.String())
		}
	}
	return strings.Join(all, " and ")
}

// same tells whether two segments have the same prefixes and VLAN.
func (s segment) same(o segment) bool {
	return s.vlan == o.vlan && s.ipv4 == o.ipv4 && s.ipv6 == o.ipv6
}

func (s segment) overlaps(o segment) bool {
	return s.vlan == o.vlan && (s.ipv4.IsValid() && o.ipv4.IsValid() && s.ipv4.Overlaps(o.ipv4) ||
		s.ipv6.IsValid() && o.ipv6.IsValid() && s.ipv6.Overlaps(o.ipv6))
}

// sharesVLAN tells whether a segment would be in the VLAN of another namespace, and may not.
func (s segment) sharesVLAN(o segment, nn, other *v1alpha2.NetworkNamespace) bool {
	return s.ownVLAN && s.vlan != 0 && s.vlan == o.vlan && nn.Namespace != other.Namespace
}

// contains tells whether an address is of a segment.
func (s segment) contains(a netip.Addr) bool { return s.ipv4.Contains(a) || s.ipv6.Contains(a) }

// standing says how far a network has come with a segment.
type standing int

const (
	// unrelated is a network that has no segment, and is about to get none that is known.
	unrelated standing = iota
	// wanting is one whose spec describes the segment.
	wanting
	// claiming is one whose status has the segment, and that is not Ready yet.
	claiming
	// holding is one that is Ready, or is being deleted: machines may use the segment.
	holding
)

// standingOf returns how far a network has come with which segment.
func standingOf(nn *v1alpha2.NetworkNamespace) (standing, segment) {
	if s, err := held(nn); err == nil {
		if holds(nn) {
			return holding, s
		}
		return claiming, s
	}
	provider, _ := providerOf(nn.Spec)
	if provider != v1alpha2.ProviderManual || nn.DeletionTimestamp != nil || nn.Status.ProvisioningPhase == v1alpha2.ProvisioningError {
		return unrelated, segment{}
	}
	s, err := manualSegment(nn)
	if err != nil {
		return unrelated, segment{}
	}
	return wanting, s
}

// holds tells whether machines may use the segment of a network.
func holds(nn *v1alpha2.NetworkNamespace) bool {
	return isReady(nn) || nn.Status.ProvisioningPhase == v1alpha2.ProvisioningDeleting
}

func isReady(nn *v1alpha2.NetworkNamespace) bool {
	return nn.Status.ProvisioningPhase == v1alpha2.ProvisioningReady
}

// older tells whether a was created before b. Of two of the same second it is the
// one whose UID comes first.
func older(a, b *v1alpha2.NetworkNamespace) bool {
	if !a.CreationTimestamp.Equal(&b.CreationTimestamp) {
		return a.CreationTimestamp.Before(&b.CreationTimestamp)
	}
	return a.UID < b.UID
}

// precedence says what another network that overlaps means to one.
type precedence int

const (
	goesOn precedence = iota
	waitsForOther
	givesWay
)

// precedes compares a network with another one whose segment overlaps:
//
//	network   other     the network
//	holding   holding   gives way if it is the younger one
//	holding   else      goes on
//	else      holding   gives way
//	claiming  claiming  gives way if it is the younger one, and waits for that otherwise
//	claiming  wanting   goes on
//	wanting   claiming  gives way
//	wanting   wanting   gives way if it is the younger one
//
// A network becomes Ready only after it has claimed its segment and then found no
// other that claims or holds it. Of two networks at least the one that claims later
// finds the other, so that never both become Ready, whatever their age.
func precedes(mine, theirs standing, older bool) precedence {
	switch {
	case mine == holding && theirs == holding, mine == wanting && theirs == wanting:
		if older {
			return goesOn
		}
		return givesWay
	case mine == holding, theirs == unrelated, mine == claiming && theirs == wanting:
		return goesOn
	case mine == claiming && theirs == claiming && older:
		return waitsForOther
	default:
		return givesWay
	}
}

// Where a network has its VLAN: the one that it is provisioned with, and the one that
// it describes itself, in either of two places.
const (
	provisionedVLAN = "status.vlanId"
	manualVLAN      = "spec.networkProvisioning.manual.vlanId"
	poolVLAN        = "spec.ipAllocation.static.vlanId"
)

// neighbours are the networks that have a VLAN in one of some fields, and where it is
// 0, which may also be left out, all. A later field counts where a network has
// changed between. They are shared: nobody may change them.
func (f *function) neighbours(ctx context.Context, vlan int32, fields ...string) ([]v1alpha2.NetworkNamespace, error) {
	if vlan == 0 {
		list, err := kube.View[v1alpha2.NetworkNamespaceList](ctx, f.kube, "", metav1.ListOptions{})
		return list.Items, err
	}
	found := map[types.UID]v1alpha2.NetworkNamespace{}
	for _, field := range fields {
		list, err := kube.View[v1alpha2.NetworkNamespaceList](ctx, f.kube, "", metav1.ListOptions{FieldSelector: fmt.Sprintf("%s=%d", field, vlan)})
		if err != nil {
			return nil, err
		}
		for _, nn := range list.Items {
			found[nn.UID] = nn
		}
	}
	return slices.Collect(maps.Values(found)), nil
}

// alone returns a user error where another network has the segment that nn would have,
// and errContested where the other one is about to give way.
func (f *function) alone(ctx context.Context, nn *v1alpha2.NetworkNamespace, seg segment) error {
	others, err := f.neighbours(ctx, seg.vlan, manualVLAN, poolVLAN, provisionedVLAN)
	if err != nil {
		return err
	}
	return f.contest(nn, seg, others)
}

// contest is alone among some networks.
func (f *function) contest(nn *v1alpha2.NetworkNamespace, seg segment, others []v1alpha2.NetworkNamespace) error {
	mine, has := standingOf(nn)
	if mine == unrelated || !has.same(seg) {
		mine = wanting
	}
	waits := false
	for i := range others {
		other := &others[i]
		theirs, segment := standingOf(other)
		if other.UID == nn.UID || theirs == unrelated || !seg.overlaps(segment) && !seg.sharesVLAN(segment, nn, other) || f.separate(nn, other) {
			continue
		}
		switch precedes(mine, theirs, older(nn, other)) {
		case givesWay:
			return overlapping(seg, other, segment)
		case waitsForOther:
			waits = true
		}
	}
	if waits {
		return errContested
	}
	return nil
}

// separate tells whether two networks are in data centres that the platform team has
// declared to have no bridge in common.
func (f *function) separate(a, b *v1alpha2.NetworkNamespace) bool {
	one, other := datacenterOf(a), datacenterOf(b)
	return one != other && (f.datacenters[one] || f.datacenters[other])
}

// datacenterOf is the data centre of a network, which one that holds a segment keeps.
func datacenterOf(nn *v1alpha2.NetworkNamespace) v1alpha2.Identifier {
	if holds(nn) {
		return nn.Status.DatacenterIdentifier
	}
	return nn.Spec.DatacenterIdentifier
}

// handOver has the networks looked at that wait for a segment that may be free now.
func (f *function) handOver(ctx context.Context) error {
	list := &v1alpha2.NetworkNamespaceList{}
	failed := metav1.ListOptions{FieldSelector: "status.provisioningPhase=" + string(v1alpha2.ProvisioningError)}
	if err := f.kube.ListPage(ctx, "", failed, list); err != nil {
		return err
	}
	for _, nn := range list.Items {
		c := meta.FindStatusCondition(nn.Status.Conditions, v1alpha1.ConditionReady)
		if c == nil || c.Reason != reasonOverlap || nn.DeletionTimestamp != nil {
			continue
		}
		if err := kube.OnConflict(func() error { return f.settle(ctx, nn.Namespace, nn.Name, look{}) }); err != nil {
			return err
		}
	}
	return nil
}
