package segment

import (
	"fmt"

	"github.com/vitistack/stack/apis/usererror"
	"github.com/vitistack/stack/apis/v1alpha2"
)

// FromSpec returns the segment that the spec of a manual network describes, and a usererror.Error that names the
// field that is wrong.
func FromSpec(nn *v1alpha2.NetworkNamespace) (Segment, error) {
	block, path := Block(nn.Spec)
	s := Segment{VLAN: int32(block.VLANID)}
	err := Parse(
		Field{"ipv4CIDR", string(block.IPv4CIDR), &s.IPv4},
		Field{"ipv6CIDR", string(block.IPv6CIDR), &s.IPv6},
		Field{"ipv4Gateway", string(block.IPv4Gateway), &s.IPv4Gateway},
		Field{"ipv6Gateway", string(block.IPv6Gateway), &s.IPv6Gateway},
	)
	if err != nil {
		return Segment{}, usererror.Error{Reason: "InvalidSpec", Message: fmt.Sprintf("spec.%s.%v", path, err)}
	}
	if err = s.Check(); err != nil {
		return Segment{}, usererror.Error{Reason: "InvalidSpec", Message: fmt.Sprintf("spec.%s: %v", path, err)}
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
