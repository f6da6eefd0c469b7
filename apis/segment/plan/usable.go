package plan

import (
	"fmt"

	"github.com/vitistack/stack/apis/segment"
	"github.com/vitistack/stack/apis/usererror"
	"github.com/vitistack/stack/apis/v1alpha2"
)

// Reasons of a network whose addresses no machine could use.
const (
	ReasonInvalidPool = "InvalidPool"
	ReasonNoAddress   = "NoUsableAddress"
)

// CheckUsable returns a usererror.Error if a network could never give a machine an address of a segment, because
// its pool is invalid or empty, or if the pool is for another VLAN.
func CheckUsable(nn *v1alpha2.NetworkNamespace, seg segment.Segment) error {
	if err := checkVLAN(nn, seg); err != nil {
		return err
	}
	with := nn.DeepCopy()
	segment.SetStatus(with, seg)
	if !IsStatic(nn) {
		return checkUsableByKea(with, seg)
	}
	for _, family := range []v1alpha2.IPFamily{v1alpha2.IPv4, v1alpha2.IPv6} {
		prefix := seg.IPv4
		if family == v1alpha2.IPv6 {
			prefix = seg.IPv6
		}
		if !prefix.IsValid() {
			continue
		}
		p, err := AddressPool(with, family)
		switch {
		case err != nil:
			return usererror.Error{Reason: ReasonInvalidPool, Message: err.Error()}
		case p.Size() == 0:
			return usererror.Error{Reason: ReasonNoAddress, Message: fmt.Sprintf(
				"spec.ipAllocation.static leaves no %s address of %s for a machine: enlarge the range, exclude fewer addresses, or use a larger prefix", family, prefix)}
		}
	}
	return nil
}

// checkVLAN returns a usererror.Error if the pool of a network names another VLAN than the provider has given to the segment.
func checkVLAN(nn *v1alpha2.NetworkNamespace, seg segment.Segment) error {
	a := nn.Spec.IPAllocation
	if a == nil || a.Static == nil || a.Static.VLANID == 0 || int32(a.Static.VLANID) == seg.VLAN {
		return nil
	}
	name, _ := ProviderOf(nn.Spec)
	return usererror.Error{Reason: "InvalidSpec", Message: fmt.Sprintf(
		"spec.ipAllocation.static.vlanId is %d, but the segment of provider %s has VLAN %d, and the provider chooses the VLAN: leave vlanId out, or write %d", a.Static.VLANID, name, seg.VLAN, seg.VLAN)}
}

func checkUsableByKea(nn *v1alpha2.NetworkNamespace, seg segment.Segment) error {
	if !seg.IPv4.IsValid() {
		return usererror.Error{Reason: ReasonNoAddress, Message: fmt.Sprintf(
			"%s has no IPv4 prefix, and Kea reserves IPv4 addresses only: set spec.ipAllocation.type to static, or delete this network and create it again with an IPv4 prefix", seg.Prefixes())}
	}
	if p, err := AddressPool(nn, v1alpha2.IPv4); err != nil || p.Size() == 0 || seg.IPv4.IsSingleIP() {
		return usererror.Error{Reason: ReasonNoAddress, Message: fmt.Sprintf("%s has no address for a machine beside its gateway: use a larger prefix", seg.IPv4)}
	}
	return nil
}
