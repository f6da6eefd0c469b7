package changes

// networkNamespaceEffects has the fields of a NetworkNamespace.
var networkNamespaceEffects = []Effect{
	{"datacenterIdentifier", "manual", Refused, "the data centre of a network that is Ready cannot be changed"},
	{"ipAllocation.dhcp.dns", "dhcp", Applied, "Kea announces the servers to the clients of the subnet"},
	{"ipAllocation.dhcp.requireClientClasses", "dhcp", InitialOnly, "ipAllocation.dhcp.requireClientClasses of a network that is Ready cannot be changed"},
	{"ipAllocation.provider", "manual", Applied, "names the allocator that type selects anyway; no other is accepted"},
	{"ipAllocation.provider", "dhcp", Refused, "write static-ip-operator for type static or kea for type dhcp"},
	{"ipAllocation.static.dns", "manual", Applied, "new machines and the nodes of clusters use the servers"},
	{"ipAllocation.static.excludedAddresses", "spare", Applied, "the addresses are not allocated any more; an interface that has one keeps it"},
	{"ipAllocation.static.ipv4CIDR", "manual", Refused, "ipAllocation.static.ipv4CIDR lies outside"},
	{"ipAllocation.static.ipv4Gateway", "nam", Refused, "the gateway of a network that is Ready cannot be changed"},
	{"ipAllocation.static.ipv4RangeEnd", "spare", Applied, "new addresses come from the range; interfaces keep theirs"},
	{"ipAllocation.static.ipv4RangeStart", "spare", Applied, "new addresses come from the range; interfaces keep theirs"},
	{"ipAllocation.static.ipv6CIDR", "spare", Refused, "ipAllocation.static has a prefix of a family"},
	{"ipAllocation.static.ipv6Gateway", "nam", Refused, "the gateway of a network that is Ready cannot be changed"},
	{"ipAllocation.static.ipv6RangeEnd", "nam", Applied, "new addresses come from the range; interfaces keep theirs"},
	{"ipAllocation.static.ipv6RangeStart", "nam", Applied, "new addresses come from the range; interfaces keep theirs"},
	{"ipAllocation.static.reuseDelaySeconds", "manual", Applied, "addresses that are released afterwards are not allocated again for that time"},
	{"ipAllocation.static.ttlSeconds", "manual", Applied, "addresses expire after the time, counted from their next renewal"},
	{"ipAllocation.static.vlanId", "manual", Refused, "a segment has one VLAN"},
	{"ipAllocation.static.vlanId", "nam", Applied, "compared with the VLAN of the segment: the condition Ready reports another one as InvalidSpec, and the network keeps its VLAN"},
	{"ipAllocation.type", "manual", Refused, "ipAllocation.type of a network that is Ready cannot be changed"},
	{"networkProvisioning.manual.ipv4CIDR", "manual", Refused, "the prefixes of a network that is Ready cannot be changed"},
	{"networkProvisioning.manual.ipv4Gateway", "manual", Refused, "the gateway of a network that is Ready cannot be changed"},
	{"networkProvisioning.manual.ipv6CIDR", "manual", Refused, "the prefixes of a network that is Ready cannot be changed"},
	{"networkProvisioning.manual.ipv6Gateway", "manual", Refused, "the gateway of a network that is Ready cannot be changed"},
	{"networkProvisioning.manual.vlanId", "manual", Refused, "the VLAN of a network that is Ready cannot be changed"},
	{"networkProvisioning.nam.ipFamilies", "nam", InitialOnly, "the request for the segment of a network that is Ready cannot be changed"},
	{"networkProvisioning.nam.ipv4PrefixLength", "nam", InitialOnly, "the request for the segment of a network that is Ready cannot be changed"},
	{"networkProvisioning.nam.ipv6PrefixLength", "nam", InitialOnly, "the request for the segment of a network that is Ready cannot be changed"},
	{"networkProvisioning.netbox.customFields", "netbox", InitialOnly, "the request for the segment of a network that is Ready cannot be changed"},
	{"networkProvisioning.netbox.ipFamilies", "netbox", InitialOnly, "the request for the segment of a network that is Ready cannot be changed"},
	{"networkProvisioning.netbox.ipv4PrefixLength", "netbox", InitialOnly, "the request for the segment of a network that is Ready cannot be changed"},
	{"networkProvisioning.netbox.ipv6PrefixLength", "netbox", InitialOnly, "the request for the segment of a network that is Ready cannot be changed"},
	{"networkProvisioning.netbox.role", "netbox", InitialOnly, "the request for the segment of a network that is Ready cannot be changed"},
	{"networkProvisioning.netbox.site", "netbox", InitialOnly, "the request for the segment of a network that is Ready cannot be changed"},
	{"networkProvisioning.netbox.vlanGroup", "netbox", InitialOnly, "the request for the segment of a network that is Ready cannot be changed"},
	{"networkProvisioning.parameters", "external IPAM", InitialOnly, "the request for the segment of a network that is Ready cannot be changed"},
	{"networkProvisioning.provider", "nam", Refused, "the provider of a network that is Ready cannot be changed"},
	{"protected", "dhcp", Applied, "a deletion is refused"},
	{"supervisorIdentifier", "spare", Applied, "the status names the new supervisor"},
	{"supervisorIdentifier", "nam", Refused, "the supervisor of a network that is Ready cannot be changed"},
}

// networkConfigurationEffects has the fields of a NetworkConfiguration.
var networkConfigurationEffects = []Effect{
	{"bridge", "static", Refused, "bridge and mtu cannot be changed once the interfaces have addresses"},
	{"clusterIdentifier", "static", Applied, "the NetworkNamespace lists the cluster in status.associatedKubernetesClusterIds"},
	{"datacenterIdentifier", "static", Applied, "informational: shown with the object; no function reads it"},
	{"description", "static", Applied, "informational: shown with the object; no function reads it"},
	{"mtu", "static", Refused, "bridge and mtu cannot be changed once the interfaces have addresses"},
	{"name", "static", Applied, "informational: shown with the object; no function reads it"},
	{"networkInterfaces[].ipv4Addresses", "Kea", Applied, "the interface gets the requested address, and its former one is released"},
	{"networkInterfaces[].ipv4Addresses", "static", Applied, "the interface gets the requested address, and its former one is released, unless a machine uses it"},
	{"networkInterfaces[].ipv6Addresses", "static", Applied, "the interface gets the requested address; in a network without IPv6 the condition Ready says so"},
	{"networkInterfaces[].macAddress", "Kea", Applied, "the reservation is for the new MAC address"},
	{"networkInterfaces[].name", "dual stack", Applied, "the interface of the former name releases its address, and the new one gets one"},
	{"networkNamespaceName", "static", Refused, "networkNamespaceName cannot be changed"},
	{"provider", "Kea", Applied, "the condition Ready says that the network allocates by another (ProviderMismatch), and Kea loses the reservation when no machine uses it"},
	{"supervisorIdentifier", "static", Applied, "informational: shown with the object; no function reads it"},
	{"vlan", "static", Applied, "compared with the VLAN of the network: the condition Ready reports another one as VLANMismatch, and the interfaces keep their VLAN and addresses"},
}

// ipAllocationEffects has the fields of an IPAllocation.
var ipAllocationEffects = []Effect{
	{"interfaceName", "reservation", Refused, "an IPAllocation cannot be changed: delete it and create a new one"},
	{"ipFamily", "reservation", Refused, "an IPAllocation cannot be changed: delete it and create a new one"},
	{"networkConfigurationName", "reservation", Refused, "an IPAllocation cannot be changed: delete it and create a new one"},
	{"networkNamespaceName", "reservation", Refused, "an IPAllocation cannot be changed: delete it and create a new one"},
	{"requestedAddress", "reservation", Refused, "an IPAllocation cannot be changed: delete it and create a new one"},
}

// networkPoolEffects has the fields of a NetworkPool.
var networkPoolEffects = []Effect{
	{"allowedNamespaces.list", "pool by list", Applied, "networks that waited for it become Ready; networks that are Ready keep their segment"},
	{"allowedNamespaces.selector.matchExpressions[].key", "pool by key", Applied, "networks that waited for it become Ready; networks that are Ready keep their segment"},
	{"allowedNamespaces.selector.matchExpressions[].operator", "pool by operator", Applied, "networks that waited for it become Ready; networks that are Ready keep their segment"},
	{"allowedNamespaces.selector.matchExpressions[].values", "pool by values", Applied, "networks that waited for it become Ready; networks that are Ready keep their segment"},
	{"allowedNamespaces.selector.matchLabels", "pool by labels", Applied, "networks that waited for it become Ready; networks that are Ready keep their segment"},
	{"bridges", "pool by bridges", Applied, "machines that waited for it start; machines that exist keep their interfaces"},
	{"prefixes", "pool by prefixes", Applied, "networks that waited for it become Ready; networks that are Ready keep their segment"},
	{"providers", "pool by providers", Applied, "networks that waited for it become Ready; networks that are Ready keep their segment"},
	{"shareVLANs", "pool by share", Applied, "networks that waited for it become Ready; networks that are Ready keep their segment"},
	{"vlans", "pool by vlans", Applied, "networks that waited for it become Ready; networks that are Ready keep their segment"},
}
