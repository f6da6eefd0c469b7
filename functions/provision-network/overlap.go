package main

import (
	"context"
	"fmt"
	"maps"
	"net/netip"
	"slices"
	"strings"
	"time"

	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/vitistack/stack/apis/v1alpha1"
	"github.com/vitistack/stack/apis/v1alpha2"
	"github.com/vitistack/stack/functions/internal/kube"
)

const reasonOverlap = "SegmentOverlap"

// overlapping says that another network has the segment, or part of it. It turns to
// nothing when that network goes.
func overlapping(seg segment, holder *v1alpha2.NetworkNamespace, theirs segment) refused {
	return refused{reasonOverlap, fmt.Sprintf(
		"%s (VLAN %d) overlaps %s of NetworkNamespace %s/%s in the same data centre, which holds it: choose another prefix or VLAN, or delete that network",
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

// rival is another network that wants the same segment.
type rival struct {
	network *v1alpha2.NetworkNamespace
	segment segment
}

// rivals are the networks of all whose segment overlaps nn's in its data centre.
// holder is the one that comes before nn, if there is one; losers are those Ready
// ones that have to give way to nn. It returns the same for the same objects,
// whoever asks, so that of any two networks exactly one gives way. One is Ready here
// if it is so with the segment in question:
//
//	other is  nn is   comes first
//	Ready     Ready   the older one
//	Ready     not     the other
//	not       Ready   nn
//	not       not     the older one, if the other describes its segment itself
func rivals(nn *v1alpha2.NetworkNamespace, seg segment, all []v1alpha2.NetworkNamespace) (holder *rival, losers []rival) {
	has, _ := held(nn)
	ready := isReady(nn) && has.same(seg)
	for i := range all {
		other := &all[i]
		if other.UID == nn.UID || other.Spec.DatacenterIdentifier != nn.Spec.DatacenterIdentifier {
			continue
		}
		theirs, claims := claim(other)
		if !claims || !seg.overlaps(theirs) {
			continue
		}
		r := rival{network: other, segment: theirs}
		switch {
		case isReady(other) == ready && older(nn, other), ready && !isReady(other):
			if isReady(other) {
				losers = append(losers, r)
			}
		case holder == nil || older(other, holder.network):
			holder = &r
		}
	}
	return holder, losers
}

// claim is the segment that a network has, or is about to have because it describes
// it itself.
func claim(nn *v1alpha2.NetworkNamespace) (segment, bool) {
	if isReady(nn) {
		s, err := held(nn)
		return s, err == nil
	}
	provider, _ := providerOf(nn.Spec)
	if provider != v1alpha2.ProviderManual || nn.DeletionTimestamp != nil || nn.Status.ProvisioningPhase == v1alpha2.ProvisioningError {
		return segment{}, false
	}
	s, err := manualSegment(nn)
	return s, err == nil
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

// alone returns refused where another network has the segment that nn would have.
func (f *function) alone(ctx context.Context, nn *v1alpha2.NetworkNamespace, seg segment) error {
	others, err := f.neighbours(ctx, seg.vlan, manualVLAN, poolVLAN, provisionedVLAN)
	if err != nil {
		return err
	}
	if holder, _ := rivals(nn, seg, others); holder != nil {
		return overlapping(seg, holder.network, holder.segment)
	}
	return nil
}

// yield looks once more after nn has become Ready: another network may have become
// Ready with the same segment in the same moment. Of the two the younger gives way,
// and whoever has written last sees both.
func (f *function) yield(ctx context.Context, nn *v1alpha2.NetworkNamespace) error {
	return kube.OnConflict(func() error {
		all, err := f.neighbours(ctx, nn.Status.VLANID, provisionedVLAN)
		if err != nil {
			return err
		}
		i := slices.IndexFunc(all, func(o v1alpha2.NetworkNamespace) bool { return o.UID == nn.UID })
		if i < 0 || !isReady(&all[i]) {
			return nil
		}
		now := &all[i]
		seg, err := held(now)
		if err != nil {
			return fmt.Errorf("read the segment of network %s/%s: %w", nn.Namespace, nn.Name, err)
		}
		holder, losers := rivals(now, seg, all)
		if holder != nil {
			return f.refuse(ctx, now, overlapping(seg, holder.network, holder.segment))
		}
		for _, l := range losers {
			if err := f.refuse(ctx, l.network, overlapping(l.segment, now, seg)); err != nil {
				return err
			}
		}
		return nil
	})
}

// fresh tells whether a network has become Ready so lately that the process that
// wrote so may have died before it looked once more.
func fresh(nn *v1alpha2.NetworkNamespace, now time.Time) bool {
	c := meta.FindStatusCondition(nn.Status.Conditions, v1alpha1.ConditionReady)
	return c != nil && now.Sub(c.LastTransitionTime.Time) < time.Minute
}

// refuse takes back that a network is Ready.
func (f *function) refuse(ctx context.Context, before *v1alpha2.NetworkNamespace, why refused) error {
	nn := before.DeepCopy()
	return f.write(ctx, before, nn, decide(nn, segment{}, why, f.now()))
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
