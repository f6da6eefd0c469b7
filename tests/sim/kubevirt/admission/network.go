package admission

import (
	"net"
	"regexp"
	"slices"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/validation"
	"k8s.io/apimachinery/pkg/util/validation/field"
	virtv1 "kubevirt.io/api/core/v1"
)

// reservedMAC belongs to the bridge inside the pod.
const reservedMAC = "02:00:00:00:00:00"

var (
	interfaceName = regexp.MustCompile(`^[A-Za-z0-9-_]+$`)
	nicModels     = []string{"", "e1000", "e1000e", "igb", "ne2k_pci", "pcnet", "rtl8139", virtv1.VirtIO}
)

// discontinuedBindings is checked first when an object is created.
func discontinuedBindings(at *field.Path, spec *virtv1.VirtualMachineInstanceSpec) Causes {
	var c Causes
	for i, n := range spec.Domain.Devices.Interfaces {
		here := at.Child("domain", "devices", "interfaces").Index(i)
		if n.DeprecatedSlirp != nil {
			c.invalid(here.Child("slirp"), "Slirp interface support has been discontinued since v1.3")
		}
		if n.DeprecatedPasst != nil {
			c.invalid(here.Child("passt"), "Passt network binding has been discontinued since v1.3")
		}
		if n.DeprecatedMacvtap != nil {
			c.invalid(here.Child("macvtap"), "Macvtap network binding has been discontinued since v1.3")
		}
	}
	return c
}

// networks checks networks, interfaces, and that each has its counterpart.
func networks(at *field.Path, spec *virtv1.VirtualMachineInstanceSpec) Causes {
	c := networkSources(at, spec)
	byName := map[string]virtv1.Network{}
	for _, n := range spec.Networks {
		byName[n.Name] = n
	}
	for i, n := range spec.Domain.Devices.Interfaces {
		c = append(c, interfaceState(at, i, n, spec.Networks)...)
	}
	for i, n := range spec.Domain.Devices.Interfaces {
		c = append(c, binding(at, i, n, byName[n.Name])...)
	}
	c = append(c, pairs(at, spec, byName)...)
	for i, n := range spec.Domain.Devices.Interfaces {
		c = append(c, nic(at, i, n, byName[n.Name])...)
	}
	return c
}

func networkSources(at *field.Path, spec *virtv1.VirtualMachineInstanceSpec) Causes {
	var c Causes
	pods, defaults := 0, 0
	for _, n := range spec.Networks {
		if n.Pod != nil {
			pods++
		}
		if n.Multus != nil && n.Multus.Default {
			defaults++
		}
	}
	if pods > 1 {
		c.add(metav1.CauseTypeFieldValueDuplicate, at.Child("interfaces"),
			"more than one interface is connected to a pod network in %s", at.Child("interfaces"))
	}
	if defaults > 1 {
		c.invalid(at.Child("networks"), "Multus CNI should only have one default network")
	}
	if pods > 0 && defaults > 0 {
		c.invalid(at.Child("networks"), "Pod network cannot be defined when Multus default network is defined")
	}
	return append(c, networkTypes(at, spec)...)
}

func networkTypes(at *field.Path, spec *virtv1.VirtualMachineInstanceSpec) Causes {
	var c Causes
	for i, n := range spec.Networks {
		here := at.Child("networks").Index(i)
		switch {
		case n.Pod == nil && n.Multus == nil && n.ResourceClaim == nil:
			c.required(here, "should have a network type")
		case n.Pod != nil && n.Multus != nil:
			c.required(here, "should have only one network type")
		}
	}
	for i, n := range spec.Networks {
		if n.Multus != nil && n.Multus.NetworkName == "" {
			c.required(at.Child("networks").Index(i), "CNI delegating plugin must have a networkName")
			break
		}
	}
	return c
}

func interfaceState(at *field.Path, i int, n virtv1.Interface, networks []virtv1.Network) Causes {
	var c Causes
	here := at.Child("domain", "devices", "interfaces").Index(i).Child("state")
	known := []virtv1.InterfaceState{"", virtv1.InterfaceStateAbsent, virtv1.InterfaceStateLinkDown, virtv1.InterfaceStateLinkUp}
	if !slices.Contains(known, n.State) {
		c.invalid(here, "logical %s interface state value is unsupported: %s", n.Name, n.State)
	}
	if n.SRIOV != nil && (n.State == virtv1.InterfaceStateLinkDown || n.State == virtv1.InterfaceStateLinkUp) {
		c.invalid(here, "%q interface's state %q is not supported for SR-IOV NICs", n.Name, n.State)
	}
	if n.State != virtv1.InterfaceStateAbsent {
		return c
	}
	if n.Bridge == nil {
		c.invalid(here, "%q interface's state %q is supported only for bridge binding", n.Name, n.State)
	}
	isDefault := func(o virtv1.Network) bool {
		return o.Name == n.Name && (o.Pod != nil || (o.Multus != nil && o.Multus.Default))
	}
	if slices.ContainsFunc(networks, isDefault) {
		c.invalid(here, "%q interface's state %q is not supported on default networks", n.Name, n.State)
	}
	return c
}

func binding(at *field.Path, i int, n virtv1.Interface, network virtv1.Network) Causes {
	var c Causes
	here := at.Child("domain", "devices", "interfaces").Index(i)
	bindings := 0
	for _, set := range []bool{n.Bridge != nil, n.Masquerade != nil, n.SRIOV != nil, n.PasstBinding != nil, n.Binding != nil} {
		if set {
			bindings++
		}
	}
	if bindings != 1 {
		c.invalid(here, "logical %s interface must have exactly one binding method or binding plugin", n.Name)
	}
	if n.Masquerade != nil && network.Pod == nil {
		c.invalid(here.Child("name"), "Masquerade interface only implemented with pod network")
	}
	if n.Masquerade != nil && n.MacAddress == reservedMAC {
		c.invalid(here.Child("macAddress"), "The requested MAC address is reserved for the in-pod bridge. Please choose another one.")
	}
	return c
}

// pairs checks that names are unique, and that each network has an interface and each interface a
// network.
func pairs(at *field.Path, spec *virtv1.VirtualMachineInstanceSpec, byName map[string]virtv1.Network) Causes {
	var c Causes
	interfaces := spec.Domain.Devices.Interfaces
	atNetworks, atInterfaces := at.Child("networks"), at.Child("domain", "devices", "interfaces")
	seen := map[string]bool{}
	for i, n := range spec.Networks {
		if seen[n.Name] {
			c.add(metav1.CauseTypeFieldValueDuplicate, atNetworks.Index(i).Child("name"),
				"Network with name %q already exists, every network must have a unique name", n.Name)
		}
		seen[n.Name] = true
	}
	for i, n := range spec.Networks {
		if !slices.ContainsFunc(interfaces, func(o virtv1.Interface) bool { return o.Name == n.Name }) {
			here := atNetworks.Index(i).Child("name")
			c.required(here, notFound, here, n.Name)
		}
	}
	seen = map[string]bool{}
	for i, n := range interfaces {
		if seen[n.Name] {
			c.add(metav1.CauseTypeFieldValueDuplicate, atInterfaces.Index(i).Child("name"),
				"Only one interface can be connected to one specific network")
		}
		seen[n.Name] = true
	}
	for i, n := range interfaces {
		if _, ok := byName[n.Name]; !ok {
			here := atInterfaces.Index(i).Child("name")
			c.invalid(here, notFound, here, n.Name)
		}
	}
	return c
}

func nic(at *field.Path, i int, n virtv1.Interface, network virtv1.Network) Causes {
	var c Causes
	here := at.Child("domain", "devices", "interfaces").Index(i)
	if !interfaceName.MatchString(n.Name) {
		c.invalid(here.Child("name"), "Network interface name can only contain alphabetical characters, numbers, dashes (-) or underscores (_)")
	}
	if !slices.Contains(nicModels, n.Model) {
		c.unsupported(here.Child("model"), "interface %s uses model %s that is not supported.", here.Child("name"), n.Model)
	}
	if n.MacAddress != "" {
		mac, err := net.ParseMAC(n.MacAddress)
		switch {
		case err != nil:
			c.invalid(here.Child("macAddress"), "interface %s has malformed MAC address (%s).", here.Child("name"), n.MacAddress)
		case len(mac) > 6:
			c.invalid(here.Child("macAddress"), "interface %s has too long MAC address (%s).", here.Child("name"), n.MacAddress)
		}
	}
	if n.PciAddress != "" && !pciPattern.MatchString(n.PciAddress) {
		c.invalid(here.Child("pciAddress"), "interface %s has malformed PCI address (%s).", here.Child("name"), n.PciAddress)
	}
	if network.Pod != nil {
		c = append(c, ports(here.Child("ports"), n.Ports)...)
	}
	if n.PortRanges != nil {
		c.invalid(here.Child("name"), "portRanges is specified on interface but the PortRangesSpec feature gate is not enabled")
	}
	return append(c, dhcpOptions(at, here, n.DHCPOptions)...)
}

func ports(at *field.Path, all []virtv1.Port) Causes {
	var c Causes
	seen := map[string]bool{}
	for i, p := range all {
		here := at.Index(i)
		if p.Name != "" && seen[p.Name] {
			c.add(metav1.CauseTypeFieldValueDuplicate, here.Child("name"), "Duplicate name of the port: %s", p.Name)
		}
		if p.Name != "" && len(validation.IsValidPortName(p.Name)) > 0 {
			c.invalid(here.Child("name"), "Invalid name of the port: %s", p.Name)
		}
		seen[p.Name] = true
		switch {
		case p.Port == 0:
			c.required(here.Child("port"), "Port field is mandatory.")
		case p.Port < 0 || p.Port >= 65536:
			c.invalid(here.Child("port"), "Port field must be in range 0 < x < 65536.")
		}
		if !slices.Contains([]string{"", "TCP", "UDP"}, p.Protocol) {
			c.invalid(here.Child("protocol"), "Unknown protocol, only TCP or UDP allowed")
		}
	}
	return c
}

func dhcpOptions(at, here *field.Path, o *virtv1.DHCPOptions) Causes {
	var c Causes
	if o == nil {
		return nil
	}
	seen := map[int]bool{}
	for _, p := range o.PrivateOptions {
		if seen[p.Option] {
			c.invalid(at, "Found Duplicates: you have provided duplicate DHCPPrivateOptions")
			break
		}
		seen[p.Option] = true
	}
	for _, p := range o.PrivateOptions {
		if p.Option < 224 || p.Option > 254 {
			c.invalid(at, "provided DHCPPrivateOptions are out of range, must be in range 224 to 254")
		}
	}
	for i, server := range o.NTPServers {
		if net.ParseIP(server).To4() == nil {
			c.invalid(here.Child("dhcpOptions", "ntpServers").Index(i), "NTP servers must be a list of valid IPv4 addresses.")
		}
	}
	return c
}
