package inventory

import (
	"cmp"
	"slices"

	"github.com/vitistack/stack/apis/v1alpha1"
	"github.com/vitistack/stack/apis/v1alpha2"
)

func fromNetwork(n *v1alpha2.NetworkNamespace) (*Object, error) {
	s := &n.Status
	facts := &Network{
		Phase:      cmp.Or(string(s.ProvisioningPhase), s.Phase, string(v1alpha2.ProvisioningPending)),
		Provider:   provisioner(&n.Spec),
		Allocation: string(v1alpha2.AllocationDHCP),
		IPv4Prefix: s.IPv4Prefix, IPv4Gateway: s.IPv4Gateway,
		IPv6Prefix: s.IPv6Prefix, IPv6Gateway: s.IPv6Gateway,
		VLAN:       s.VLANID,
		Datacenter: string(n.Spec.DatacenterIdentifier),
	}
	if p := n.Spec.IPAllocation; p != nil {
		facts.Allocation = string(p.Type)
	}
	if c := s.IPAllocationSummary; c != nil {
		facts.Counted, facts.Total, facts.Allocated, facts.Free = true, c.TotalCount, c.AllocatedCount, c.AvailableCount
	}
	o, err := newObject(KindNetwork, v1alpha2.GroupVersion.String(), &n.ObjectMeta, facts, n.Spec, n.Status)
	if err != nil {
		return nil, err
	}
	o.Readiness = readinessOf(o.Kind, &n.ObjectMeta, s.Conditions)
	return o, nil
}

// provisioner returns the provider of a segment, by the rule in the comment of the API field.
func provisioner(spec *v1alpha2.NetworkNamespaceSpec) string {
	if p := spec.NetworkProvisioning; p != nil {
		return p.Provider
	}
	a := spec.IPAllocation
	if a != nil && a.Static != nil && a.Static.IPv4CIDR != "" && a.Static.IPv4Gateway != "" {
		return v1alpha2.ProviderManual
	}
	return v1alpha2.ProviderNAM
}

func fromAddress(n *v1alpha1.NetworkConfiguration) (*Object, error) {
	s := &n.Status
	facts := &Address{
		Phase:   cmp.Or(string(s.Phase), string(v1alpha1.NetworkConfigurationPending)),
		Network: n.Spec.NetworkNamespaceName,
		Machine: cmp.Or(owner(&n.ObjectMeta, KindMachine), n.Labels[v1alpha1.LabelMachine]),
		Cluster: n.Labels[v1alpha1.LabelClusterName],
	}
	for _, want := range n.Spec.NetworkInterfaces {
		facts.Interfaces = append(facts.Interfaces, Interface{Name: want.Name, MAC: string(want.MACAddress)})
	}
	for _, have := range s.NetworkInterfaces {
		facts.setInterface(Interface{
			Name: have.Name, MAC: string(have.MACAddress),
			Addresses: slices.Concat(have.IPv4Addresses, have.IPv6Addresses),
			Method:    string(have.AllocationMethod),
			Ready:     have.IPAllocated || have.DHCPReserved, Reserved: have.DHCPReserved,
		})
	}
	o, err := newObject(KindConfiguration, v1alpha1.GroupVersion.String(), &n.ObjectMeta, facts, n.Spec, n.Status)
	if err != nil {
		return nil, err
	}
	o.Readiness = readinessOf(o.Kind, &n.ObjectMeta, s.Conditions)
	return o, nil
}

// setInterface puts have in the place of the wanted interface of its name.
func (a *Address) setInterface(have Interface) {
	for i := range a.Interfaces {
		if a.Interfaces[i].Name == have.Name {
			have.MAC = cmp.Or(have.MAC, a.Interfaces[i].MAC)
			a.Interfaces[i] = have
			return
		}
	}
	a.Interfaces = append(a.Interfaces, have)
}

func fromAllocation(a *v1alpha2.IPAllocation) (*Object, error) {
	facts := &Allocation{
		Phase:     cmp.Or(string(a.Status.Phase), string(v1alpha2.IPAllocationPending)),
		Network:   a.Spec.NetworkNamespaceName,
		Address:   a.Status.Address,
		Family:    string(a.Spec.IPFamily),
		Holder:    a.Spec.NetworkConfigurationName,
		Cluster:   a.Labels[v1alpha1.LabelClusterName],
		Interface: a.Spec.InterfaceName,
		Requested: a.Spec.RequestedAddress,
	}
	if a.Status.ExpiresAt != nil {
		facts.Expires = a.Status.ExpiresAt.UTC()
	}
	o, err := newObject(KindAllocation, v1alpha2.GroupVersion.String(), &a.ObjectMeta, facts, a.Spec, a.Status)
	if err != nil {
		return nil, err
	}
	o.Readiness = readinessOf(o.Kind, &a.ObjectMeta, a.Status.Conditions)
	return o, nil
}
