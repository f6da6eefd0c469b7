package main

import (
	"context"
	"fmt"

	"github.com/vitistack/stack/apis/v1alpha2"
)

// manual takes the segment from the NetworkNamespace itself: from
// networkProvisioning.manual, or else from ipAllocation.static.
type manual struct{}

// Provide reads the segment.
func (manual) Provide(_ context.Context, nn *v1alpha2.NetworkNamespace) (segment, error) {
	return manualSegment(nn)
}

func manualSegment(nn *v1alpha2.NetworkNamespace) (segment, error) {
	block, path := manualBlock(nn.Spec)
	s := segment{vlan: int32(block.VLANID)}
	var err error
	for _, field := range []struct {
		name  string
		value string
		into  func(string) error
	}{
		{"ipv4CIDR", string(block.IPv4CIDR), prefixInto(&s.ipv4)},
		{"ipv6CIDR", string(block.IPv6CIDR), prefixInto(&s.ipv6)},
		{"ipv4Gateway", string(block.IPv4Gateway), addrInto(&s.ipv4Gateway)},
		{"ipv6Gateway", string(block.IPv6Gateway), addrInto(&s.ipv6Gateway)},
	} {
		if field.value == "" {
			continue
		}
		if err = field.into(field.value); err != nil {
			return segment{}, refused{"InvalidSpec", fmt.Sprintf("spec.%s.%s: %v", path, field.name, err)}
		}
	}
	if err = s.check(); err != nil {
		return segment{}, refused{"InvalidSpec", fmt.Sprintf("spec.%s: %v", path, err)}
	}
	return s, nil
}

// Release has nothing to give back: whoever made the segment keeps it.
func (manual) Release(context.Context, *v1alpha2.NetworkNamespace) error { return nil }

// manualBlock is the part of a spec that describes the segment, and where it is.
func manualBlock(spec v1alpha2.NetworkNamespaceSpec) (v1alpha2.ManualSegment, string) {
	if spec.NetworkProvisioning != nil && spec.NetworkProvisioning.Manual != nil {
		return *spec.NetworkProvisioning.Manual, "networkProvisioning.manual"
	}
	if spec.IPAllocation == nil || spec.IPAllocation.Static == nil {
		return v1alpha2.ManualSegment{}, "networkProvisioning.manual"
	}
	pool := spec.IPAllocation.Static
	return v1alpha2.ManualSegment{
		IPv4CIDR: pool.IPv4CIDR, IPv4Gateway: pool.IPv4Gateway,
		IPv6CIDR: pool.IPv6CIDR, IPv6Gateway: pool.IPv6Gateway, VLANID: pool.VLANID,
	}, "ipAllocation.static"
}
