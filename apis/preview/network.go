package preview

import (
	"fmt"
	"net/netip"
	"strings"

	"github.com/vitistack/stack/apis/segment"
	segmentplan "github.com/vitistack/stack/apis/segment/plan"
	"github.com/vitistack/stack/apis/v1alpha2"
)

// networkNamespace adds what provision-network says of a network, as far as objects and settings decide it.
func (m networkPreview) networkNamespace(nn *v1alpha2.NetworkNamespace) {
	provider, _ := segmentplan.ProviderOf(nn.Spec)
	pools, arePoolsKnown := m.pools(nn.Namespace, "whether a NetworkPool allows the segment, or lets namespaces share its VLAN")
	holds := segmentplan.HoldsSegment(nn)
	if problem := pools.CheckNetwork(nn, segmentplan.RequestedSegment(nn)); arePoolsKnown && !holds && problem != "" {
		m.refuse(pointerOfSegment(nn), segmentplan.ReasonNotInPool, problem)
		return
	}
	if provider != v1alpha2.ProviderManual {
		has, err := segment.FromStatus(nn)
		if !holds || err != nil {
			m.uncheck("the segment that provider " + provider + " gives: a NetworkPool has to allow it, no other network may have it, " +
				"and it needs addresses for machines")
			return
		}
		m.heldSegment(nn, has, pools, arePoolsKnown)
		return
	}
	seg, err := segment.FromSpec(nn)
	if err != nil {
		m.refuseBy(pointerOfSegment(nn), err)
		return
	}
	if holds {
		m.heldSegment(nn, seg, pools, arePoolsKnown)
		return
	}
	if err := segmentplan.CheckUsable(nn, seg); err != nil {
		m.refuseBy("/spec/ipAllocation", err)
		return
	}
	seg.ExclusiveVLAN = arePoolsKnown && pools.HasExclusiveVLAN(segmentplan.ProvidedSegment(nn, seg))
	m.checkOverlap(nn, seg)
}

// heldSegment adds what provision-network says of a network whose segment machines may use already. The API server
// refuses changes of the segment itself.
func (m networkPreview) heldSegment(nn *v1alpha2.NetworkNamespace, seg segment.Segment, pools segmentplan.Pools, arePoolsKnown bool) {
	if !m.checkOverlap(nn, seg) {
		return
	}
	if err := segmentplan.CheckUsable(nn, seg); err != nil {
		m.refuseBy("/spec/ipAllocation", err)
		return
	}
	if problem := pools.CheckNetwork(nn, segmentplan.ProvidedSegment(nn, seg)); arePoolsKnown && problem != "" {
		m.refuse(pointerOfSegment(nn), segmentplan.ReasonNotInPool, problem)
	}
}

// pools returns the NetworkPools that a namespace may use. It reports false, and adds what is not checked, if
// they are not known.
func (m networkPreview) pools(namespace, unchecked string) (segmentplan.Pools, bool) {
	if m.world.Unread.Pools {
		m.uncheck(unchecked + " (NetworkPools cannot be read)")
		return segmentplan.Pools{}, false
	}
	optional := m.world.Settings != nil && m.world.Settings.OptionalPools
	pools, err := segmentplan.SelectPools(m.world.Pools, namespace, m.world.labelsOf(namespace), optional)
	switch {
	case err != nil:
		m.uncheck(fmt.Sprintf("%s (%s)", unchecked, err))
		return segmentplan.Pools{}, false
	case m.world.Settings == nil && pools.IsEmpty():
		m.uncheck(fmt.Sprintf("%s (no NetworkPool is for namespace %s, so %s of the functions decides)",
			unchecked, namespace, segmentplan.PoolsVariable))
		return segmentplan.Pools{}, false
	}
	return pools, true
}

// checkOverlap reports false, and adds the error, if another network or an object of one has the segment.
func (m networkPreview) checkOverlap(nn *v1alpha2.NetworkNamespace, seg segment.Segment) bool {
	if m.world.Unread.OtherNetworks {
		m.uncheck("whether a network of another namespace has the segment")
	}
	if m.world.Settings != nil {
		err := m.overlap(nn, seg, m.world.Settings.Datacenters)
		if err != nil {
			m.refuseBy(pointerOfSegment(nn), err)
		}
		return err == nil
	}
	if err := m.overlap(nn, seg, m.allSeparate()); err != nil {
		m.refuseBy(pointerOfSegment(nn), err)
		return false
	}
	if err := m.overlap(nn, seg, nil); err != nil {
		_, message := reasonOf(err)
		m.uncheck(fmt.Sprintf("whether data centre %s shares a bridge with that of another network (%s of provision-network). If it does: %s",
			segmentplan.DatacenterOf(nn), segmentplan.DatacentersVariable, message))
	}
	return true
}

// overlap returns the error of a network whose segment another network has, or an object of one.
func (m networkPreview) overlap(nn *v1alpha2.NetworkNamespace, seg segment.Segment, separate segmentplan.Datacenters) error {
	if _, err := segmentplan.CheckOverlap(nn, seg, m.world.Networks, separate); err != nil || segmentplan.HoldsSegment(nn) {
		return err
	}
	users := segmentplan.AddressUsers{
		Configurations: m.world.Configurations, Allocations: m.world.reservations(),
		Network: func(namespace, name string) (*v1alpha2.NetworkNamespace, error) {
			return m.world.findNetwork(namespace, name), nil
		},
	}
	return users.CheckAddresses(nn, seg, separate)
}

// allSeparate returns the data centres of all networks, as if none shared a bridge with another one.
func (m networkPreview) allSeparate() segmentplan.Datacenters {
	separate := segmentplan.Datacenters{}
	for i := range m.world.Networks {
		separate[segmentplan.DatacenterOf(&m.world.Networks[i])] = true
	}
	return separate
}

// pointerOfSegment returns the JSON pointer of the fields that describe the segment of a network.
func pointerOfSegment(nn *v1alpha2.NetworkNamespace) string {
	if provider, inferred := segmentplan.ProviderOf(nn.Spec); provider != v1alpha2.ProviderManual {
		if inferred {
			return "/spec"
		}
		return "/spec/networkProvisioning/provider"
	}
	_, path := segment.Block(nn.Spec)
	return "/spec/" + strings.ReplaceAll(path, ".", "/")
}

// withSegment returns a network with the segment that its spec describes in the status, if it has none yet.
func withSegment(nn *v1alpha2.NetworkNamespace) *v1alpha2.NetworkNamespace {
	provider, _ := segmentplan.ProviderOf(nn.Spec)
	if _, err := segment.FromStatus(nn); err == nil || provider != v1alpha2.ProviderManual {
		return nn
	}
	seg, err := segment.FromSpec(nn)
	if err != nil { // an error of the network itself
		return nn
	}
	with := nn.DeepCopy()
	segment.SetStatus(with, seg)
	return with
}

// freeAddresses returns how many addresses a network has left, and false if that is not known. All addresses of a
// network that has not counted them yet are free.
func freeAddresses(nn *v1alpha2.NetworkNamespace) (int64, bool) {
	if s := nn.Status.IPAllocationSummary; s != nil {
		return s.AvailableCount, s.TotalCount > 0
	}
	family := v1alpha2.IPv4
	if _, err := netip.ParsePrefix(nn.Status.IPv4Prefix); err != nil {
		family = v1alpha2.IPv6
	}
	const most = 1 << 53
	pool, err := segmentplan.AddressPool(nn, family)
	return int64(min(pool.Size(), most)), err == nil
}
