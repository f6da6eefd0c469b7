package preview

import (
	"fmt"
	"strconv"

	"github.com/vitistack/stack/apis/network/ipam"
	networkplan "github.com/vitistack/stack/apis/network/plan"
	"github.com/vitistack/stack/apis/segment"
	segmentplan "github.com/vitistack/stack/apis/segment/plan"
	"github.com/vitistack/stack/apis/v1alpha1"
	"github.com/vitistack/stack/apis/v1alpha2"
)

// configuration adds what allocate-ip and create-vm say of a new NetworkConfiguration.
func (m networkPreview) configuration(nc *v1alpha1.NetworkConfiguration) {
	nn := m.network(nc.Spec.NetworkNamespaceName, len(nc.Spec.NetworkInterfaces))
	if nn == nil {
		return
	}
	if _, problem := networkplan.ServesStatic(nn, nc.Spec.Provider); problem != "" {
		m.refuse("/spec/provider", "ProviderMismatch", problem)
	}
	if _, err := segment.FromStatus(nn); err != nil { // the provider of the network has not answered
		if nc.Spec.VLAN != nil || nc.Spec.Bridge != "" {
			m.uncheck("whether spec.vlan and spec.bridge fit the VLAN of NetworkNamespace " + nn.Name + ", which it has not got yet")
		}
		return
	}
	if problem := networkplan.CheckVLAN(nc, nn); problem != "" {
		m.refuse("/spec/vlan", "VLANMismatch", problem)
		return
	}
	m.bridge(nc, nn)
	if !segmentplan.IsStatic(nn) {
		return
	}
	for i, nic := range nc.Spec.NetworkInterfaces {
		at := "/spec/networkInterfaces/" + strconv.Itoa(i)
		for _, address := range nic.IPv4Addresses {
			m.requested(at+"/ipv4Addresses", string(address), nn, v1alpha2.IPv4)
		}
		for _, address := range nic.IPv6Addresses {
			m.requested(at+"/ipv6Addresses", string(address), nn, v1alpha2.IPv6)
		}
	}
}

// bridge adds an error for a bridge that no NetworkPool lists with the VLAN of the network.
func (m networkPreview) bridge(nc *v1alpha1.NetworkConfiguration, nn *v1alpha2.NetworkNamespace) {
	if nc.Spec.Bridge == "" {
		return
	}
	unchecked := fmt.Sprintf("whether a NetworkPool lists bridge %s with VLAN %d", nc.Spec.Bridge, nn.Status.VLANID)
	pools, areKnown := m.pools(nc.Namespace, unchecked)
	if problem := pools.CheckBridge(nc.Spec.Bridge, nn.Status.VLANID); areKnown && problem != "" {
		m.refuse("/spec/bridge", "BridgeNotAllowed", problem)
	}
}

// allocation adds what allocate-ip says of a new IPAllocation.
func (m networkPreview) allocation(a *v1alpha2.IPAllocation) {
	nn := m.network(a.Spec.NetworkNamespaceName, 1)
	if nn == nil {
		return
	}
	if problem := networkplan.CheckStatic(nn); problem != "" {
		m.refuse("/spec/networkNamespaceName", "NetworkNotStatic", problem)
		return
	}
	m.requested("/spec/requestedAddress", a.Spec.RequestedAddress, nn, ipam.FamilyOf(a, nn))
}

// requested adds an error for an address that the pool of a network does not have. A network without a segment has no
// pool yet.
func (m networkPreview) requested(pointer, address string, nn *v1alpha2.NetworkNamespace, family v1alpha2.IPFamily) {
	if address == "" {
		return
	}
	pool, err := ipam.New(nn, family)
	if err != nil {
		m.uncheck("whether NetworkNamespace " + nn.Name + " has the address " + address)
		return
	}
	if _, err := pool.Requested(address); err != nil {
		m.refuse(pointer, "AddressOutsidePool", err.Error())
	}
}
