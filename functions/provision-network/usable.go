package main

import (
	"fmt"

	"github.com/vitistack/stack/apis/v1alpha2"
	"github.com/vitistack/stack/functions/internal/pool"
)

// usable returns a user error where a network could never give a machine an address of
// its segment: its pool is not in order, or empty.
func usable(nn *v1alpha2.NetworkNamespace, seg segment) error {
	described := nn.DeepCopy()
	describe(described, seg)
	if !static(nn) {
		return usableByKea(described, seg)
	}
	for _, family := range []v1alpha2.IPFamily{v1alpha2.IPv4, v1alpha2.IPv6} {
		prefix := seg.ipv4
		if family == v1alpha2.IPv6 {
			prefix = seg.ipv6
		}
		if !prefix.IsValid() {
			continue
		}
		p, err := pool.New(described, family)
		switch {
		case err != nil:
			return refused{"InvalidPool", err.Error()}
		case p.Size() == 0:
			return refused{reasonNoAddress, fmt.Sprintf(
				"spec.ipAllocation.static leaves no %s address of %s for a machine: enlarge the range, exclude fewer addresses, or use a larger prefix", family, prefix)}
		}
	}
	return nil
}

const reasonNoAddress = "NoUsableAddress"

func usableByKea(nn *v1alpha2.NetworkNamespace, seg segment) error {
	if !seg.ipv4.IsValid() {
		return refused{reasonNoAddress, fmt.Sprintf(
			"%s has no IPv4 prefix, and Kea gives out IPv4 addresses only: set spec.ipAllocation.type to static, or delete this network and create it again with an IPv4 prefix", seg.prefixes())}
	}
	if p, err := wholePool(nn, v1alpha2.IPv4); err != nil || p.Size() == 0 || seg.ipv4.IsSingleIP() {
		return refused{reasonNoAddress, fmt.Sprintf("%s has no address for a machine beside its gateway: use a larger prefix", seg.ipv4)}
	}
	return nil
}
