package main

import (
	"fmt"
	"net/netip"
	"slices"
	"strconv"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/vitistack/stack/apis/v1alpha1"
	"github.com/vitistack/stack/apis/v1alpha2"
	"github.com/vitistack/stack/functions/create-vm/hypervisor"
	"github.com/vitistack/stack/functions/internal/kube"
)

// ownInterface is the interface of a machine that says nothing about networks.
const ownInterface = "eth0"

// machineNetworks returns the interfaces that a machine asks for.
func machineNetworks(m *v1alpha1.Machine) []v1alpha1.MachineNetwork {
	if len(m.Spec.Networks) > 0 {
		return m.Spec.Networks
	}
	return []v1alpha1.MachineNetwork{{Name: ownInterface, NetworkName: m.Name}}
}

// ownConfiguration returns the NetworkConfiguration of a machine without spec.networks.
func ownConfiguration(m *v1alpha1.Machine, networkNamespace string) *v1alpha1.NetworkConfiguration {
	labels := map[string]string{
		v1alpha1.LabelMachine: kube.LabelValue(m.Name), v1alpha1.LabelSourceMachine: kube.LabelValue(m.Name), v1alpha1.LabelManagedBy: hypervisor.FunctionName,
	}
	if cluster := m.Labels[v1alpha1.LabelClusterName]; cluster != "" {
		labels[v1alpha1.LabelClusterName] = cluster
	}
	n := machineNetworks(m)[0]
	return &v1alpha1.NetworkConfiguration{
		ObjectMeta: metav1.ObjectMeta{
			Namespace: m.Namespace, Name: m.Name, Labels: labels,
			OwnerReferences: kube.Owned(m, v1alpha1.GroupVersion.String(), "Machine"),
			Finalizers:      []string{v1alpha1.FinalizerUsedBy + m.Name},
		},
		Spec: v1alpha1.NetworkConfigurationSpec{
			NetworkNamespaceName: networkNamespace,
			ClusterIdentifier:    m.Labels[v1alpha1.LabelClusterID],
			NetworkInterfaces:    []v1alpha1.InterfaceSpec{{Name: n.Name, MACAddress: v1alpha1.MACAddress(interfaceMAC(m, n))}},
		},
	}
}

// interfaceFromStatus returns an interface from what layer 2 wrote into the status of its
// NetworkConfiguration under a name. While the addresses are missing it returns false and why;
// failed is whether a user has to act.
func interfaceFromStatus(nc *v1alpha1.NetworkConfiguration, n v1alpha1.MachineNetwork, name, mac string) (out hypervisor.NIC, why string, failed bool) {
	i := slices.IndexFunc(nc.Status.NetworkInterfaces, func(s v1alpha1.InterfaceStatus) bool { return s.Name == name })
	if i < 0 || !nc.Status.NetworkInterfaces[i].IPAllocated || nc.Status.NetworkInterfaces[i].MACAddress.Normalized() != mac {
		why = fmt.Sprintf("waiting for an address from NetworkConfiguration %s", nc.Name)
		if cause := v1alpha1.WhyNotReady(nc.Status.Conditions); cause != "" && nc.Status.ObservedGeneration == nc.Generation {
			why = fmt.Sprintf("NetworkConfiguration %s: %s", nc.Name, cause)
		}
		return hypervisor.NIC{}, why, nc.Status.Phase == v1alpha1.NetworkConfigurationError
	}
	s := nc.Status.NetworkInterfaces[i]
	out = hypervisor.NIC{
		Name: n.Name, MAC: mac, Model: n.Model, Network: nc.Status.NetworkNamespaceName,
		Bridge: nc.Spec.Bridge, MTU: nc.Spec.MTU, DNS: s.DNS, Static: s.AllocationMethod == v1alpha2.AllocationStatic,
	}
	if vlan, err := strconv.ParseInt(s.VLAN, 10, 32); err == nil {
		out.VLAN = int32(vlan)
	}
	addAddresses(&out, s.IPv4Addresses, s.IPv4Subnet, s.IPv4Gateway)
	addAddresses(&out, s.IPv6Addresses, s.IPv6Subnet, s.IPv6Gateway)
	return out, "", false
}

// addAddresses adds the addresses and the gateway of one family to an interface.
func addAddresses(n *hypervisor.NIC, addresses []string, subnet, gateway string) {
	prefix, err := netip.ParsePrefix(subnet)
	if err != nil {
		return
	}
	for _, text := range addresses {
		if a, err := netip.ParseAddr(text); err == nil {
			n.Addresses = append(n.Addresses, netip.PrefixFrom(a, prefix.Bits()))
		}
	}
	if g, err := netip.ParseAddr(gateway); err == nil && len(n.Addresses) > 0 {
		n.Gateways = append(n.Gateways, g)
	}
}

// assignDefaultRoutes leaves the default route of each family to the first interface with a
// gateway of that family: netplan refuses two default routes of one metric, and Talos would
// use either.
func assignDefaultRoutes(nics []hypervisor.NIC) []hypervisor.NIC {
	out := slices.Clone(nics)
	assigned := map[bool]bool{}
	for i := range out {
		n := &out[i]
		own := slices.DeleteFunc(slices.Clone(n.Gateways), func(g netip.Addr) bool { return assigned[g.Is6()] })
		n.Secondary = len(own) < len(n.Gateways)
		n.Gateways = own
		for _, g := range own {
			assigned[g.Is6()] = true
		}
	}
	return out
}
