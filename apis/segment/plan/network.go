// Package plan decides about the segments of networks from the objects that exist: which segments a namespace may
// use, which of two networks keeps a segment, and which addresses of it machines may get. Its functions have no
// client, clock or log.
package plan

import (
	"fmt"
	"net/netip"

	"github.com/vitistack/stack/apis/network/ipam"
	"github.com/vitistack/stack/apis/v1alpha2"
)

// ProviderOf returns the provider of a network, and whether it is inferred: a network that describes its segment
// in ipAllocation.static is manual.
func ProviderOf(spec v1alpha2.NetworkNamespaceSpec) (provider string, inferred bool) {
	if spec.NetworkProvisioning != nil {
		return spec.NetworkProvisioning.Provider, false
	}
	if a := spec.IPAllocation; a != nil && a.Static != nil && a.Static.IPv4CIDR != "" && a.Static.IPv4Gateway != "" {
		return v1alpha2.ProviderManual, true
	}
	return v1alpha2.ProviderNAM, true
}

// HoldsSegment reports whether machines may use the segment in the status, because the network is Ready or being
// deleted.
func HoldsSegment(nn *v1alpha2.NetworkNamespace) bool {
	return nn.Status.ProvisioningPhase == v1alpha2.ProvisioningReady || nn.Status.ProvisioningPhase == v1alpha2.ProvisioningDeleting
}

// DatacenterOf returns the data centre of a network, which a network that holds a segment keeps.
func DatacenterOf(nn *v1alpha2.NetworkNamespace) v1alpha2.Identifier {
	if HoldsSegment(nn) {
		return nn.Status.DatacenterIdentifier
	}
	return nn.Spec.DatacenterIdentifier
}

// IsStatic reports whether the stack allocates the addresses of a network itself, and not Kea.
func IsStatic(nn *v1alpha2.NetworkNamespace) bool {
	return nn.Spec.IPAllocation != nil && nn.Spec.IPAllocation.Type == v1alpha2.AllocationStatic
}

// AddressPool returns the addresses of a family that a network with a segment in its status may give machines. The
// error of an invalid pool says what to change.
func AddressPool(nn *v1alpha2.NetworkNamespace, family v1alpha2.IPFamily) (ipam.Pool, error) {
	if IsStatic(nn) {
		return ipam.New(nn, family)
	}
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
