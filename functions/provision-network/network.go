package main

import (
	"fmt"
	"net/netip"
	"time"

	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/vitistack/stack/apis/network/ipam"
	"github.com/vitistack/stack/apis/v1alpha1"
	"github.com/vitistack/stack/apis/v1alpha2"
	"github.com/vitistack/stack/functions/provision-network/provider"
)

// providerOf returns the provider of a network, and whether it is inferred: a network that
// describes its segment in ipAllocation.static is manual.
func providerOf(spec v1alpha2.NetworkNamespaceSpec) (providerName string, inferred bool) {
	if spec.NetworkProvisioning != nil {
		return spec.NetworkProvisioning.Provider, false
	}
	if a := spec.IPAllocation; a != nil && a.Static != nil && a.Static.IPv4CIDR != "" && a.Static.IPv4Gateway != "" {
		return v1alpha2.ProviderManual, true
	}
	return v1alpha2.ProviderNAM, true
}

// setSegment copies a segment into the status.
func setSegment(nn *v1alpha2.NetworkNamespace, seg provider.Segment) {
	s := &nn.Status
	s.NamespaceID = seg.ID
	s.IPv4Prefix, s.IPv4Gateway, s.IPv4EgressIP = provider.Text(seg.IPv4), provider.Text(seg.IPv4Gateway), provider.Text(seg.IPv4Egress)
	s.IPv6Prefix, s.IPv6Gateway, s.IPv6EgressIP = provider.Text(seg.IPv6), provider.Text(seg.IPv6Gateway), provider.Text(seg.IPv6Egress)
	s.VLANID = seg.VLAN
	s.DNS = seg.DNS
}

// clearSegment removes the segment and its usage from the status.
func clearSegment(nn *v1alpha2.NetworkNamespace) {
	setSegment(nn, provider.Segment{})
	nn.Status.IPAllocationSummary = nil
}

// readyCondition returns the condition Ready, which is empty if there is none.
func readyCondition(nn *v1alpha2.NetworkNamespace) metav1.Condition {
	if c := meta.FindStatusCondition(nn.Status.Conditions, v1alpha1.ConditionReady); c != nil {
		return *c
	}
	return metav1.Condition{}
}

// failingFor returns for how long the condition Ready has been False for the present spec.
func failingFor(nn *v1alpha2.NetworkNamespace, now time.Time) time.Duration {
	c := readyCondition(nn)
	if c.Status != metav1.ConditionFalse || c.ObservedGeneration != nn.Generation {
		return 0
	}
	return now.Sub(c.LastTransitionTime.Time)
}

// checkTime returns the time of an API object after a delay, in whole seconds.
func checkTime(now time.Time, delay time.Duration) *metav1.Time {
	t := metav1.NewTime(now.Add(delay).Truncate(time.Second).Add(time.Second))
	return &t
}

// nextCheck returns status.nextCheckTime, or the zero time.
func nextCheck(nn *v1alpha2.NetworkNamespace) time.Time {
	if nn.Status.NextCheckTime == nil {
		return time.Time{}
	}
	return nn.Status.NextCheckTime.Time
}

// isReady reports whether machines may be in the network.
func isReady(nn *v1alpha2.NetworkNamespace) bool {
	return nn.Status.ProvisioningPhase == v1alpha2.ProvisioningReady
}

// isProvisioned reports whether a network has what its present spec asks for.
func isProvisioned(nn *v1alpha2.NetworkNamespace) bool {
	return isReady(nn) && nn.Status.ObservedGeneration == nn.Generation && readyCondition(nn).Status == metav1.ConditionTrue
}

// holdsSegment reports whether machines may use the segment in the status, because the
// network is Ready or being deleted.
func holdsSegment(nn *v1alpha2.NetworkNamespace) bool {
	return isReady(nn) || nn.Status.ProvisioningPhase == v1alpha2.ProvisioningDeleting
}

// datacenterOf returns the data centre of a network, which a network that holds a segment
// keeps.
func datacenterOf(nn *v1alpha2.NetworkNamespace) v1alpha2.Identifier {
	if holdsSegment(nn) {
		return nn.Status.DatacenterIdentifier
	}
	return nn.Spec.DatacenterIdentifier
}

func isStatic(nn *v1alpha2.NetworkNamespace) bool {
	return nn.Spec.IPAllocation != nil && nn.Spec.IPAllocation.Type == v1alpha2.AllocationStatic
}

// keaPool returns the pool of a network whose addresses are reserved in Kea.
func keaPool(nn *v1alpha2.NetworkNamespace, family v1alpha2.IPFamily) (ipam.Pool, error) {
	text := nn.Status.IPv4Prefix
	if family == v1alpha2.IPv6 {
		text = nn.Status.IPv6Prefix
	}
	prefix, err := netip.ParsePrefix(text)
	if err != nil {
		return ipam.Pool{}, fmt.Errorf("read the prefix of NetworkNamespace %s: %w", nn.Name, err)
	}
	return ipam.Whole(prefix, ipam.Gateway(nn, family)), nil
}
