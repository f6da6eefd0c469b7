// Package manual provides the segment that a NetworkNamespace describes itself.
package manual

import (
	"context"
	"fmt"

	"github.com/vitistack/stack/apis/v1alpha2"
	"github.com/vitistack/stack/functions/internal/reconcile"
	"github.com/vitistack/stack/functions/provision-network/provider"
)

// Provider reads the segment from the spec of the NetworkNamespace.
type Provider struct{}

// Provide returns the segment in the spec, and a reconcile.UserError that names the field
// that is wrong.
func (Provider) Provide(_ context.Context, nn *v1alpha2.NetworkNamespace) (provider.Segment, error) {
	return Segment(nn)
}

// Release does nothing, because Provide creates nothing.
func (Provider) Release(context.Context, *v1alpha2.NetworkNamespace) error { return nil }

// Segment returns the segment in the spec of nn, and a reconcile.UserError that names the
// field that is wrong.
func Segment(nn *v1alpha2.NetworkNamespace) (provider.Segment, error) {
	block, path := Block(nn.Spec)
	s := provider.Segment{VLAN: int32(block.VLANID)}
	err := provider.Parse(
		provider.Field{Name: "ipv4CIDR", Text: string(block.IPv4CIDR), Into: &s.IPv4},
		provider.Field{Name: "ipv6CIDR", Text: string(block.IPv6CIDR), Into: &s.IPv6},
		provider.Field{Name: "ipv4Gateway", Text: string(block.IPv4Gateway), Into: &s.IPv4Gateway},
		provider.Field{Name: "ipv6Gateway", Text: string(block.IPv6Gateway), Into: &s.IPv6Gateway},
	)
	if err != nil {
		return provider.Segment{}, reconcile.UserError{Reason: "InvalidSpec", Message: fmt.Sprintf("spec.%s.%v", path, err)}
	}
	if err = s.Check(); err != nil {
		return provider.Segment{}, reconcile.UserError{Reason: "InvalidSpec", Message: fmt.Sprintf("spec.%s: %v", path, err)}
	}
	return s, nil
}

// Block returns the part of a spec that describes the segment, and its path below spec:
// networkProvisioning.manual, or else ipAllocation.static.
func Block(spec v1alpha2.NetworkNamespaceSpec) (block v1alpha2.ManualSegment, path string) {
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
