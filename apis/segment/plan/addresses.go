package plan

import (
	"fmt"
	"net/netip"
	"strconv"

	"github.com/vitistack/stack/apis/segment"
	"github.com/vitistack/stack/apis/usererror"
	"github.com/vitistack/stack/apis/v1alpha1"
	"github.com/vitistack/stack/apis/v1alpha2"
)

// AddressUsers are the objects that may have addresses of a segment.
type AddressUsers struct {
	Configurations []v1alpha1.NetworkConfiguration
	Allocations    []v1alpha2.IPAllocation
	// Network returns a network by its namespace and name, or nil if it does not exist.
	Network func(namespace, name string) (*v1alpha2.NetworkNamespace, error)
}

// addressUser is an object that has an address of a network.
type addressUser struct{ kind, namespace, name, network string }

// CheckAddresses returns a usererror.Error if an object has an address of a segment that its own network does not
// have, because that network was removed by force or has moved. Any other error is one of Network.
func (u AddressUsers) CheckAddresses(nn *v1alpha2.NetworkNamespace, seg segment.Segment, separate Datacenters) error {
	for i := range u.Configurations {
		nc := &u.Configurations[i]
		for _, address := range addressesIn(seg, nc) {
			user := addressUser{"NetworkConfiguration", nc.Namespace, nc.Name, nc.Status.NetworkNamespaceName}
			if err := u.checkUser(nn, seg, address, user, separate); err != nil {
				return err
			}
		}
	}
	for _, a := range u.Allocations {
		address, err := netip.ParseAddr(a.Status.Address)
		if err != nil || !seg.Contains(address) || a.Status.VLANID != seg.VLAN {
			continue
		}
		if err := u.checkUser(nn, seg, address, addressUser{"IPAllocation", a.Namespace, a.Name, a.Spec.NetworkNamespaceName}, separate); err != nil {
			return err
		}
	}
	return nil
}

// addressesIn returns the addresses of a segment that a NetworkConfiguration has.
func addressesIn(seg segment.Segment, nc *v1alpha1.NetworkConfiguration) (all []netip.Addr) {
	for _, i := range nc.Status.NetworkInterfaces {
		if vlan, err := strconv.ParseInt(i.VLAN, 10, 32); err != nil || int32(vlan) != seg.VLAN {
			continue
		}
		for _, texts := range [][]string{i.IPv4Addresses, i.IPv6Addresses} {
			for _, text := range texts {
				if a, err := netip.ParseAddr(text); err == nil && seg.Contains(a) {
					all = append(all, a)
				}
			}
		}
	}
	return all
}

// checkUser returns a usererror.Error if an address of a segment belongs to an object of another network, unless
// the two networks are separate.
func (u AddressUsers) checkUser(nn *v1alpha2.NetworkNamespace, seg segment.Segment, address netip.Addr, user addressUser, separate Datacenters) error {
	if user.namespace == nn.Namespace && user.network == nn.Name {
		return nil
	}
	other, err := u.Network(user.namespace, user.network)
	if err != nil {
		return err
	}
	if other != nil && separate.AreSeparate(nn, other) {
		return nil
	}
	return usererror.Error{Reason: ReasonOverlap, Message: fmt.Sprintf(
		"%s (VLAN %d) contains %s, which %s %s/%s has in NetworkNamespace %s: %s, or delete that %s",
		seg.Prefixes(), seg.VLAN, address, user.kind, user.namespace, user.name, user.network, otherSegmentAdvice(nn, seg.Prefixes()), user.kind)}
}
