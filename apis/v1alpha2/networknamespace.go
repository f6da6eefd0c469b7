package v1alpha2

import metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

// Values of NetworkProvisioning.Provider that the stack serves itself. Any other
// name is an external IPAM that is asked by an event.
const (
	ProviderManual = "manual"
	ProviderNAM    = "nam"
	ProviderNetBox = "netbox"
)

// ProvisioningPhase is the phase of the provisioning of a segment. Addresses are allocated when
// it is Ready.
// +kubebuilder:validation:Enum=Pending;Ready;Error;Deleting
type ProvisioningPhase string

// The life of a segment. Error lasts until the spec or the source changes. A network
// that is Deleting keeps its segment for the machines that use it, and takes no others.
const (
	ProvisioningPending  ProvisioningPhase = "Pending"
	ProvisioningReady    ProvisioningPhase = "Ready"
	ProvisioningError    ProvisioningPhase = "Error"
	ProvisioningDeleting ProvisioningPhase = "Deleting"
)

// AllocationType is how addresses are allocated.
// +kubebuilder:validation:Enum=dhcp;static
type AllocationType string

// Static addresses are chosen by the stack and tracked as IPAllocations; dhcp
// addresses are reservations in ISC Kea.
const (
	AllocationDHCP   AllocationType = "dhcp"
	AllocationStatic AllocationType = "static"
)

// NetworkNamespace is a network segment: its prefix, gateway and VLAN, where
// they come from, and how addresses in it are allocated.
//
// +kubebuilder:object:root=true
// +kubebuilder:subresource:status
// +kubebuilder:selectablefield:JSONPath=`.status.provisioningPhase`
// +kubebuilder:selectablefield:JSONPath=`.status.vlanId`
// +kubebuilder:selectablefield:JSONPath=`.spec.networkProvisioning.manual.vlanId`
// +kubebuilder:selectablefield:JSONPath=`.spec.ipAllocation.static.vlanId`
// +kubebuilder:storageversion
// +kubebuilder:resource:path=networknamespaces,scope=Namespaced,shortName=nn,categories={vitistack,viti}
// +kubebuilder:printcolumn:name="Provisioning",type=string,JSONPath=`.spec.networkProvisioning.provider`
// +kubebuilder:printcolumn:name="Allocation",type=string,JSONPath=`.spec.ipAllocation.type`
// +kubebuilder:printcolumn:name="Phase",type=string,JSONPath=`.status.provisioningPhase`
// +kubebuilder:printcolumn:name="IPv4",type=string,JSONPath=`.status.ipv4Prefix`
// +kubebuilder:printcolumn:name="IPv6",type=string,JSONPath=`.status.ipv6Prefix`,priority=1
// +kubebuilder:printcolumn:name="VLAN",type=integer,JSONPath=`.status.vlanId`
// +kubebuilder:printcolumn:name="Free",type=string,JSONPath=`.status.ipAllocationSummary.available`
// +kubebuilder:printcolumn:name="Reason",type=string,JSONPath=`.status.conditions[?(@.type=="Ready")].reason`
// +kubebuilder:printcolumn:name="Datacenter",type=string,JSONPath=`.spec.datacenterIdentifier`,priority=1
// +kubebuilder:printcolumn:name="Message",type=string,JSONPath=`.status.conditions[?(@.type=="Ready")].message`,priority=1
// +kubebuilder:printcolumn:name="Age",type=date,JSONPath=`.metadata.creationTimestamp`
// +kubebuilder:validation:XValidation:rule="!has(oldSelf.status) || !has(oldSelf.status.provisioningPhase) || !(oldSelf.status.provisioningPhase in ['Ready', 'Deleting']) || (has(self.spec.ipAllocation) ? self.spec.ipAllocation.type : 'dhcp') == (has(oldSelf.spec.ipAllocation) ? oldSelf.spec.ipAllocation.type : 'dhcp')",message="ipAllocation.type of a network that is Ready cannot be changed, because machines keep the addresses that they have: keep it, or delete the network and create it again"
// +kubebuilder:validation:XValidation:rule="!has(oldSelf.status) || !has(oldSelf.status.provisioningPhase) || !(oldSelf.status.provisioningPhase in ['Ready', 'Deleting']) || has(self.spec.networkProvisioning) == has(oldSelf.spec.networkProvisioning) && (!has(self.spec.networkProvisioning) || self.spec.networkProvisioning.provider == oldSelf.spec.networkProvisioning.provider)",message="the provider of a network that is Ready cannot be changed, because it has to take the segment back: keep networkProvisioning.provider, or delete the network and create it again"
// +kubebuilder:validation:XValidation:rule="!has(oldSelf.status) || !has(oldSelf.status.provisioningPhase) || !(oldSelf.status.provisioningPhase in ['Ready', 'Deleting']) || !(has(self.spec.networkProvisioning) && has(self.spec.networkProvisioning.manual) && has(oldSelf.spec.networkProvisioning) && has(oldSelf.spec.networkProvisioning.manual)) || ((has(self.spec.networkProvisioning.manual.ipv4CIDR) ? (has(oldSelf.spec.networkProvisioning.manual.ipv4CIDR) && self.spec.networkProvisioning.manual.ipv4CIDR == oldSelf.spec.networkProvisioning.manual.ipv4CIDR || has(oldSelf.status.ipv4Prefix) && self.spec.networkProvisioning.manual.ipv4CIDR == oldSelf.status.ipv4Prefix) : (!has(oldSelf.spec.networkProvisioning.manual.ipv4CIDR) || !has(oldSelf.status.ipv4Prefix))) && (has(self.spec.networkProvisioning.manual.ipv6CIDR) ? (has(oldSelf.spec.networkProvisioning.manual.ipv6CIDR) && self.spec.networkProvisioning.manual.ipv6CIDR == oldSelf.spec.networkProvisioning.manual.ipv6CIDR || has(oldSelf.status.ipv6Prefix) && self.spec.networkProvisioning.manual.ipv6CIDR == oldSelf.status.ipv6Prefix) : (!has(oldSelf.spec.networkProvisioning.manual.ipv6CIDR) || !has(oldSelf.status.ipv6Prefix))))",message="the prefixes of a network that is Ready cannot be changed, because its machines keep their addresses: keep ipv4CIDR and ipv6CIDR, or delete the network and create it again"
// +kubebuilder:validation:XValidation:rule="!has(oldSelf.status) || !has(oldSelf.status.provisioningPhase) || !(oldSelf.status.provisioningPhase in ['Ready', 'Deleting']) || !(has(self.spec.networkProvisioning) && has(self.spec.networkProvisioning.manual) && has(oldSelf.spec.networkProvisioning) && has(oldSelf.spec.networkProvisioning.manual)) || (((has(self.spec.networkProvisioning.manual.vlanId) ? self.spec.networkProvisioning.manual.vlanId : 0) == (has(oldSelf.spec.networkProvisioning.manual.vlanId) ? oldSelf.spec.networkProvisioning.manual.vlanId : 0) || (has(self.spec.networkProvisioning.manual.vlanId) ? self.spec.networkProvisioning.manual.vlanId : 0) == (has(oldSelf.status.vlanId) ? oldSelf.status.vlanId : 0)))",message="the VLAN of a network that is Ready cannot be changed, because its machines stay on it: keep vlanId, or delete the network and create it again"
// +kubebuilder:validation:XValidation:rule="!has(oldSelf.status) || !has(oldSelf.status.provisioningPhase) || !(oldSelf.status.provisioningPhase in ['Ready', 'Deleting']) || !(has(self.spec.networkProvisioning) && has(self.spec.networkProvisioning.manual) && has(oldSelf.spec.networkProvisioning) && has(oldSelf.spec.networkProvisioning.manual)) || ((has(self.spec.networkProvisioning.manual.ipv4Gateway) ? (has(oldSelf.spec.networkProvisioning.manual.ipv4Gateway) && self.spec.networkProvisioning.manual.ipv4Gateway == oldSelf.spec.networkProvisioning.manual.ipv4Gateway || has(oldSelf.status.ipv4Gateway) && self.spec.networkProvisioning.manual.ipv4Gateway == oldSelf.status.ipv4Gateway) : (!has(oldSelf.spec.networkProvisioning.manual.ipv4Gateway) || !has(oldSelf.status.ipv4Gateway))) && (has(self.spec.networkProvisioning.manual.ipv6Gateway) ? (has(oldSelf.spec.networkProvisioning.manual.ipv6Gateway) && self.spec.networkProvisioning.manual.ipv6Gateway == oldSelf.spec.networkProvisioning.manual.ipv6Gateway || has(oldSelf.status.ipv6Gateway) && self.spec.networkProvisioning.manual.ipv6Gateway == oldSelf.status.ipv6Gateway) : (!has(oldSelf.spec.networkProvisioning.manual.ipv6Gateway) || !has(oldSelf.status.ipv6Gateway))))",message="the gateway of a network that is Ready cannot be changed, because its machines keep their route and the new address may be one of theirs: keep ipv4Gateway and ipv6Gateway, or delete the network and create it again"
// +kubebuilder:validation:XValidation:rule="!has(oldSelf.status) || !has(oldSelf.status.provisioningPhase) || !(oldSelf.status.provisioningPhase in ['Ready', 'Deleting']) || (((has(self.spec.ipAllocation) && has(self.spec.ipAllocation.static) && has(self.spec.ipAllocation.static.ipv4Gateway)) ? ((has(oldSelf.spec.ipAllocation) && has(oldSelf.spec.ipAllocation.static) && has(oldSelf.spec.ipAllocation.static.ipv4Gateway)) && self.spec.ipAllocation.static.ipv4Gateway == oldSelf.spec.ipAllocation.static.ipv4Gateway || has(oldSelf.status.ipv4Gateway) && self.spec.ipAllocation.static.ipv4Gateway == oldSelf.status.ipv4Gateway) : (!(has(oldSelf.spec.ipAllocation) && has(oldSelf.spec.ipAllocation.static) && has(oldSelf.spec.ipAllocation.static.ipv4Gateway)) || has(oldSelf.status.ipv4Gateway) && oldSelf.spec.ipAllocation.static.ipv4Gateway == oldSelf.status.ipv4Gateway)) && ((has(self.spec.ipAllocation) && has(self.spec.ipAllocation.static) && has(self.spec.ipAllocation.static.ipv6Gateway)) ? ((has(oldSelf.spec.ipAllocation) && has(oldSelf.spec.ipAllocation.static) && has(oldSelf.spec.ipAllocation.static.ipv6Gateway)) && self.spec.ipAllocation.static.ipv6Gateway == oldSelf.spec.ipAllocation.static.ipv6Gateway || has(oldSelf.status.ipv6Gateway) && self.spec.ipAllocation.static.ipv6Gateway == oldSelf.status.ipv6Gateway) : (!(has(oldSelf.spec.ipAllocation) && has(oldSelf.spec.ipAllocation.static) && has(oldSelf.spec.ipAllocation.static.ipv6Gateway)) || has(oldSelf.status.ipv6Gateway) && oldSelf.spec.ipAllocation.static.ipv6Gateway == oldSelf.status.ipv6Gateway)))",message="the gateway of a network that is Ready cannot be changed, because its machines keep their route and the new address may be one of theirs: keep ipAllocation.static.ipv4Gateway and ipv6Gateway, or delete the network and create it again"
// +kubebuilder:validation:XValidation:rule="!has(oldSelf.status) || !has(oldSelf.status.provisioningPhase) || !(oldSelf.status.provisioningPhase in ['Ready', 'Deleting']) || has(oldSelf.spec.networkProvisioning) || !(has(oldSelf.spec.ipAllocation) && has(oldSelf.spec.ipAllocation.static) && has(oldSelf.spec.ipAllocation.static.ipv4CIDR) && has(oldSelf.spec.ipAllocation) && has(oldSelf.spec.ipAllocation.static) && has(oldSelf.spec.ipAllocation.static.ipv4Gateway)) || (has(self.spec.ipAllocation) && has(self.spec.ipAllocation.static) && (has(self.spec.ipAllocation.static.ipv4CIDR) ? (has(oldSelf.spec.ipAllocation.static.ipv4CIDR) && self.spec.ipAllocation.static.ipv4CIDR == oldSelf.spec.ipAllocation.static.ipv4CIDR || has(oldSelf.status.ipv4Prefix) && self.spec.ipAllocation.static.ipv4CIDR == oldSelf.status.ipv4Prefix) : (!has(oldSelf.spec.ipAllocation.static.ipv4CIDR) || !has(oldSelf.status.ipv4Prefix))) && (has(self.spec.ipAllocation.static.ipv6CIDR) ? (has(oldSelf.spec.ipAllocation.static.ipv6CIDR) && self.spec.ipAllocation.static.ipv6CIDR == oldSelf.spec.ipAllocation.static.ipv6CIDR || has(oldSelf.status.ipv6Prefix) && self.spec.ipAllocation.static.ipv6CIDR == oldSelf.status.ipv6Prefix) : (!has(oldSelf.spec.ipAllocation.static.ipv6CIDR) || !has(oldSelf.status.ipv6Prefix))) && ((has(self.spec.ipAllocation.static.vlanId) ? self.spec.ipAllocation.static.vlanId : 0) == (has(oldSelf.spec.ipAllocation.static.vlanId) ? oldSelf.spec.ipAllocation.static.vlanId : 0) || (has(self.spec.ipAllocation.static.vlanId) ? self.spec.ipAllocation.static.vlanId : 0) == (has(oldSelf.status.vlanId) ? oldSelf.status.vlanId : 0)) && has(self.spec.ipAllocation.static.ipv4Gateway))",message="the segment of a network that is Ready cannot be changed, because its machines keep their addresses and their VLAN: keep ipAllocation.static with its ipv4CIDR, ipv6CIDR, ipv4Gateway and vlanId, or delete the network and create it again"
// +kubebuilder:validation:XValidation:rule="!has(oldSelf.status) || !has(oldSelf.status.provisioningPhase) || !(oldSelf.status.provisioningPhase in ['Ready', 'Deleting']) || has(oldSelf.spec.networkProvisioning) || (has(oldSelf.spec.ipAllocation) && has(oldSelf.spec.ipAllocation.static) && has(oldSelf.spec.ipAllocation.static.ipv4CIDR) && has(oldSelf.spec.ipAllocation) && has(oldSelf.spec.ipAllocation.static) && has(oldSelf.spec.ipAllocation.static.ipv4Gateway)) || !(has(self.spec.ipAllocation) && has(self.spec.ipAllocation.static) && has(self.spec.ipAllocation.static.ipv4CIDR) && has(self.spec.ipAllocation) && has(self.spec.ipAllocation.static) && has(self.spec.ipAllocation.static.ipv4Gateway))",message="ipAllocation.static with ipv4CIDR and ipv4Gateway makes the provider manual, and the provider of a network that is Ready cannot be changed: leave out ipv4CIDR or ipv4Gateway, or delete the network and create it again"
// +kubebuilder:validation:XValidation:fieldPath=".spec.ipAllocation",rule="has(self.status) && has(self.status.provisioningPhase) && self.status.provisioningPhase in ['Ready', 'Deleting'] || !has(self.spec.networkProvisioning) || !has(self.spec.networkProvisioning.manual) || !has(self.spec.networkProvisioning.manual.ipv6Gateway) || !has(self.spec.ipAllocation) || !has(self.spec.ipAllocation.static) || !has(self.spec.ipAllocation.static.ipv6Gateway) || ip(self.spec.networkProvisioning.manual.ipv6Gateway) == ip(self.spec.ipAllocation.static.ipv6Gateway)",message="ipAllocation.static.ipv6Gateway and networkProvisioning.manual.ipv6Gateway differ: a segment has one gateway, so write the same in both or leave out the one in static"
// +kubebuilder:validation:XValidation:rule="!has(oldSelf.status) || !has(oldSelf.status.provisioningPhase) || !(oldSelf.status.provisioningPhase in ['Ready', 'Deleting']) || has(self.spec.datacenterIdentifier) == has(oldSelf.spec.datacenterIdentifier) && (!has(self.spec.datacenterIdentifier) || self.spec.datacenterIdentifier == oldSelf.spec.datacenterIdentifier) || has(oldSelf.status.datacenterIdentifier) && has(self.spec.datacenterIdentifier) && self.spec.datacenterIdentifier == oldSelf.status.datacenterIdentifier",message="the data centre of a network that is Ready cannot be changed, because its machines stay where they are: keep datacenterIdentifier, or delete the network and create it again"
// +kubebuilder:validation:XValidation:rule="!has(oldSelf.status) || !has(oldSelf.status.provisioningPhase) || (has(oldSelf.status.conditions) && oldSelf.status.conditions.exists(c, c.type == 'Ready' && c.reason == 'RequestChanged')) || !(oldSelf.status.provisioningPhase in ['Ready', 'Deleting']) || !has(self.spec.networkProvisioning) || !has(oldSelf.spec.networkProvisioning) || (has(self.spec.networkProvisioning.nam) ? has(oldSelf.spec.networkProvisioning.nam) && self.spec.networkProvisioning.nam == oldSelf.spec.networkProvisioning.nam : !has(oldSelf.spec.networkProvisioning.nam)) && (has(self.spec.networkProvisioning.netbox) ? has(oldSelf.spec.networkProvisioning.netbox) && self.spec.networkProvisioning.netbox == oldSelf.spec.networkProvisioning.netbox : !has(oldSelf.spec.networkProvisioning.netbox)) && (has(self.spec.networkProvisioning.parameters) ? has(oldSelf.spec.networkProvisioning.parameters) && self.spec.networkProvisioning.parameters == oldSelf.spec.networkProvisioning.parameters : !has(oldSelf.spec.networkProvisioning.parameters))",message="the request for the segment of a network that is Ready cannot be changed, because the provider has given the segment out for it: keep nam, netbox and parameters of networkProvisioning, or delete the network and create it again"
// +kubebuilder:validation:XValidation:rule="!has(oldSelf.status) || !has(oldSelf.status.provisioningPhase) || !(oldSelf.status.provisioningPhase in ['Ready', 'Deleting']) || (has(self.spec.ipAllocation) && has(self.spec.ipAllocation.dhcp) && has(self.spec.ipAllocation.dhcp.requireClientClasses) ? self.spec.ipAllocation.dhcp.requireClientClasses : []) == (has(oldSelf.spec.ipAllocation) && has(oldSelf.spec.ipAllocation.dhcp) && has(oldSelf.spec.ipAllocation.dhcp.requireClientClasses) ? oldSelf.spec.ipAllocation.dhcp.requireClientClasses : [])",message="ipAllocation.dhcp.requireClientClasses of a network that is Ready cannot be changed, because Kea has its subnet with them: keep them, or delete the network and create it again"
// +kubebuilder:validation:XValidation:rule="!has(oldSelf.status) || !has(oldSelf.status.provisioningPhase) || !(oldSelf.status.provisioningPhase in ['Ready', 'Deleting']) || (has(self.spec.networkProvisioning) && self.spec.networkProvisioning.provider == 'manual') || has(self.spec.supervisorIdentifier) == has(oldSelf.spec.supervisorIdentifier) && (!has(self.spec.supervisorIdentifier) || self.spec.supervisorIdentifier == oldSelf.spec.supervisorIdentifier)",message="the supervisor of a network that is Ready cannot be changed, because the provider has recorded it with the segment: keep supervisorIdentifier, or delete the network and create it again"
type NetworkNamespace struct {
	metav1.TypeMeta   `json:",inline"`
	metav1.ObjectMeta `json:"metadata,omitempty"`

	Spec NetworkNamespaceSpec `json:"spec"`
	// +kubebuilder:default={"observedGeneration":-1}
	Status NetworkNamespaceStatus `json:"status,omitempty,omitzero"`
}

// NetworkNamespaceList is a list of NetworkNamespaces.
//
// +kubebuilder:object:root=true
type NetworkNamespaceList struct {
	metav1.TypeMeta `json:",inline"`
	metav1.ListMeta `json:"metadata,omitempty"`
	Items           []NetworkNamespace `json:"items"`
}

// NetworkNamespaceSpec is the desired state of a network.
//
// +kubebuilder:validation:XValidation:rule="!has(self.networkProvisioning) || self.networkProvisioning.provider != 'manual' || has(self.networkProvisioning.manual)",message="networkProvisioning.manual is missing: provider manual takes the segment from there, so give manual.ipv4CIDR or manual.ipv6CIDR"
// +kubebuilder:validation:XValidation:rule="!has(self.networkProvisioning) || self.networkProvisioning.provider == 'manual' || !has(self.networkProvisioning.manual)",message="networkProvisioning.manual is only read by provider manual: set provider to manual, or remove the block"
// +kubebuilder:validation:XValidation:rule="!has(self.networkProvisioning) || !has(self.networkProvisioning.manual) || !has(self.networkProvisioning.manual.ipv4CIDR) || !has(self.ipAllocation) || !has(self.ipAllocation.static) || !has(self.ipAllocation.static.ipv4CIDR) || cidr(self.networkProvisioning.manual.ipv4CIDR).containsCIDR(self.ipAllocation.static.ipv4CIDR)",message="ipAllocation.static.ipv4CIDR lies outside networkProvisioning.manual.ipv4CIDR: make it the same prefix or a part of it, or leave it out"
// +kubebuilder:validation:XValidation:rule="!has(self.networkProvisioning) || !has(self.networkProvisioning.manual) || !has(self.networkProvisioning.manual.ipv6CIDR) || !has(self.ipAllocation) || !has(self.ipAllocation.static) || !has(self.ipAllocation.static.ipv6CIDR) || cidr(self.networkProvisioning.manual.ipv6CIDR).containsCIDR(self.ipAllocation.static.ipv6CIDR)",message="ipAllocation.static.ipv6CIDR lies outside networkProvisioning.manual.ipv6CIDR: make it the same prefix or a part of it, or leave it out"
// +kubebuilder:validation:XValidation:rule="!has(self.networkProvisioning) || !has(self.networkProvisioning.manual) || !has(self.networkProvisioning.manual.ipv4Gateway) || !has(self.ipAllocation) || !has(self.ipAllocation.static) || !has(self.ipAllocation.static.ipv4Gateway) || ip(self.networkProvisioning.manual.ipv4Gateway) == ip(self.ipAllocation.static.ipv4Gateway)",message="ipAllocation.static.ipv4Gateway and networkProvisioning.manual.ipv4Gateway differ: a segment has one gateway, so write the same in both or leave out the one in static"
// +kubebuilder:validation:XValidation:rule="!has(self.networkProvisioning) || !has(self.networkProvisioning.manual) || !has(self.ipAllocation) || !has(self.ipAllocation.static) || !has(self.ipAllocation.static.vlanId) || (has(self.networkProvisioning.manual.vlanId) ? self.networkProvisioning.manual.vlanId : 0) == self.ipAllocation.static.vlanId",message="ipAllocation.static.vlanId and networkProvisioning.manual.vlanId differ: a segment has one VLAN, so write the same in both or leave out the one in static"
// +kubebuilder:validation:XValidation:rule="!self.?networkProvisioning.?manual.?ipv4CIDR.hasValue() || !self.?ipAllocation.?static.hasValue() || self.?ipAllocation.?static.?ipv4CIDR.hasValue() || ((!has(self.ipAllocation.static.ipv4RangeStart) || cidr(self.networkProvisioning.manual.ipv4CIDR).containsIP(self.ipAllocation.static.ipv4RangeStart)) && (!has(self.ipAllocation.static.ipv4RangeEnd) || cidr(self.networkProvisioning.manual.ipv4CIDR).containsIP(self.ipAllocation.static.ipv4RangeEnd)))",message="ipAllocation.static.ipv4RangeStart and ipv4RangeEnd must lie inside networkProvisioning.manual.ipv4CIDR: write addresses of that prefix, or leave them out"
// +kubebuilder:validation:XValidation:rule="!self.?networkProvisioning.?manual.?ipv4CIDR.hasValue() || !self.?ipAllocation.?static.hasValue() || self.?ipAllocation.?static.?ipv4CIDR.hasValue() || !has(self.ipAllocation.static.ipv4Gateway) || cidr(self.networkProvisioning.manual.ipv4CIDR).containsIP(self.ipAllocation.static.ipv4Gateway)",message="ipAllocation.static.ipv4Gateway lies outside networkProvisioning.manual.ipv4CIDR: give an address of that prefix"
// +kubebuilder:validation:XValidation:rule="!self.?networkProvisioning.?manual.?ipv6CIDR.hasValue() || !self.?ipAllocation.?static.hasValue() || self.?ipAllocation.?static.?ipv6CIDR.hasValue() || ((!has(self.ipAllocation.static.ipv6RangeStart) || cidr(self.networkProvisioning.manual.ipv6CIDR).containsIP(self.ipAllocation.static.ipv6RangeStart)) && (!has(self.ipAllocation.static.ipv6RangeEnd) || cidr(self.networkProvisioning.manual.ipv6CIDR).containsIP(self.ipAllocation.static.ipv6RangeEnd)))",message="ipAllocation.static.ipv6RangeStart and ipv6RangeEnd must lie inside networkProvisioning.manual.ipv6CIDR: write addresses of that prefix, or leave them out"
// +kubebuilder:validation:XValidation:rule="!self.?networkProvisioning.?manual.?ipv6CIDR.hasValue() || !self.?ipAllocation.?static.hasValue() || self.?ipAllocation.?static.?ipv6CIDR.hasValue() || !has(self.ipAllocation.static.ipv6Gateway) || cidr(self.networkProvisioning.manual.ipv6CIDR).containsIP(self.ipAllocation.static.ipv6Gateway) || ip(self.ipAllocation.static.ipv6Gateway).isLinkLocalUnicast()",message="ipAllocation.static.ipv6Gateway lies outside networkProvisioning.manual.ipv6CIDR: give an address of that prefix or a link-local one such as fe80::1"
// +kubebuilder:validation:XValidation:rule="self.?ipAllocation.?type.orValue('dhcp') != 'dhcp' || !self.?networkProvisioning.?manual.hasValue() || has(self.networkProvisioning.manual.ipv4CIDR) || !has(self.networkProvisioning.manual.ipv6CIDR)",message="type dhcp allocates IPv4 addresses only: add networkProvisioning.manual.ipv4CIDR, or set ipAllocation.type to static"
// +kubebuilder:validation:XValidation:rule="!has(self.networkProvisioning) || !has(self.networkProvisioning.manual) || !has(self.ipAllocation) || !has(self.ipAllocation.static) || (has(self.networkProvisioning.manual.ipv4CIDR) || !has(self.ipAllocation.static.ipv4CIDR)) && (has(self.networkProvisioning.manual.ipv6CIDR) || !has(self.ipAllocation.static.ipv6CIDR))",message="ipAllocation.static has a prefix of a family that networkProvisioning.manual has not: write the prefix of the segment there as well, or leave it out of ipAllocation.static"
type NetworkNamespaceSpec struct {
	// Data centre of the segment, <country>-<region>-<zone>. It cannot be changed once the
	// network is Ready. The segments of a VLAN must not overlap, even if they name different data
	// centres, unless the platform team has declared a data centre separate. Example:
	// no-west-az1.
	// +optional
	DatacenterIdentifier Identifier `json:"datacenterIdentifier,omitempty"`
	// Supervisor of the segment, unique in its data centre.
	// +optional
	SupervisorIdentifier Identifier `json:"supervisorIdentifier,omitempty"`
	// Provider of the segment. Default: manual if ipAllocation.static has both ipv4CIDR and
	// ipv4Gateway, and otherwise nam.
	// +optional
	NetworkProvisioning *NetworkProvisioning `json:"networkProvisioning,omitempty"`
	// How addresses are allocated. Default: dhcp.
	// +optional
	IPAllocation *IPAllocationPolicy `json:"ipAllocation,omitempty"`
	// Refuses every deletion of the NetworkNamespace while true: set it to false before you
	// delete. Default: false. Example: true.
	// +optional
	Protected bool `json:"protected,omitempty"`
}

// Identifier names a data centre or a supervisor.
//
// +kubebuilder:validation:MinLength=2
// +kubebuilder:validation:MaxLength=32
// +kubebuilder:validation:XValidation:rule="self.matches('^[A-Za-z0-9_-]+$')",message="use letters, digits, - and _ only, for example no-west-az1"
type Identifier string

// NetworkProvisioning selects the provider of the segment.
//
// +kubebuilder:validation:XValidation:rule="self.provider == 'nam' || !has(self.nam)",message="networkProvisioning.nam is only read by provider nam: set provider to nam, or remove the block"
// +kubebuilder:validation:XValidation:rule="self.provider == 'netbox' || !has(self.netbox)",message="networkProvisioning.netbox is only read by provider netbox: set provider to netbox, or remove the block"
// +kubebuilder:validation:XValidation:rule="!(self.provider in ['manual', 'nam', 'netbox']) || !has(self.parameters)",message="networkProvisioning.parameters is only read by an external IPAM: set provider to the name of the IPAM, or remove the block"
type NetworkProvisioning struct {
	// Provider: manual, nam, netbox, or the name of an external IPAM that answers
	// io.vitistack.network.requested events. Default: nam.
	// +kubebuilder:default=nam
	// +kubebuilder:validation:MinLength=1
	// +kubebuilder:validation:MaxLength=32
	// +kubebuilder:validation:XValidation:rule="self.matches('^[a-z0-9]([a-z0-9-]*[a-z0-9])?$')",message="use lower case letters, digits and - only: manual, nam, netbox, or the name of an external IPAM"
	Provider string `json:"provider"`
	// The segment itself, for provider manual.
	// +optional
	Manual *ManualSegment `json:"manual,omitempty"`
	// Request to the Network Automation Manager, for provider nam.
	// +optional
	NAM *SegmentRequest `json:"nam,omitempty"`
	// Request to NetBox, for provider netbox.
	// +optional
	NetBox *NetBoxRequest `json:"netbox,omitempty"`
	// Parameters for an external IPAM, which the stack passes on unchanged.
	// +optional
	// +kubebuilder:validation:MaxProperties=32
	Parameters map[string]string `json:"parameters,omitempty"`
}

// ManualSegment is an existing segment.
//
// +kubebuilder:validation:XValidation:rule="has(self.ipv4CIDR) || has(self.ipv6CIDR)",message="give ipv4CIDR, ipv6CIDR or both"
// +kubebuilder:validation:XValidation:rule="!has(self.ipv4Gateway) || (has(self.ipv4CIDR) && cidr(self.ipv4CIDR).containsIP(self.ipv4Gateway))",message="ipv4Gateway lies outside ipv4CIDR: give an address of that prefix, such as its first one"
// +kubebuilder:validation:XValidation:rule="!has(self.ipv6Gateway) || (has(self.ipv6CIDR) && (cidr(self.ipv6CIDR).containsIP(self.ipv6Gateway) || ip(self.ipv6Gateway).isLinkLocalUnicast()))",message="ipv6Gateway lies outside ipv6CIDR: give an address of that prefix, or a link-local one such as fe80::1"
// +kubebuilder:validation:XValidation:rule="!has(self.ipv4Gateway) || !has(self.ipv4CIDR) || cidr(self.ipv4CIDR).prefixLength() > 30 || !self.ipv4CIDR.startsWith(self.ipv4Gateway + '/')",message="ipv4Gateway is the network address of ipv4CIDR, which no host can have: give the address of the router, such as the next one"
type ManualSegment struct {
	// IPv4 prefix of the segment.
	// +optional
	IPv4CIDR IPv4CIDR `json:"ipv4CIDR,omitempty"`
	// Default gateway for IPv4. Default: none.
	// +optional
	IPv4Gateway IPv4Address `json:"ipv4Gateway,omitempty"`
	// IPv6 prefix of the segment.
	// +optional
	IPv6CIDR IPv6CIDR `json:"ipv6CIDR,omitempty"`
	// Default gateway for IPv6, an address of the prefix or a link-local one such as
	// fe80::1. Default: none.
	// +optional
	IPv6Gateway IPv6Address `json:"ipv6Gateway,omitempty"`
	// VLAN of the segment, 0 meaning untagged.
	// +optional
	VLANID VLANID `json:"vlanId,omitempty"`
}

// SegmentRequest is the requested size of a segment.
//
// +kubebuilder:validation:XValidation:rule="!has(self.ipv4PrefixLength) || !has(self.ipFamilies) || self.ipFamilies.size() == 0 || 'IPv4' in self.ipFamilies",message="ipv4PrefixLength is only read for a segment with IPv4: add IPv4 to ipFamilies, or remove ipv4PrefixLength"
// +kubebuilder:validation:XValidation:rule="!has(self.ipv6PrefixLength) || has(self.ipFamilies) && 'IPv6' in self.ipFamilies",message="ipv6PrefixLength is only read for a segment with IPv6: write ipFamilies [IPv6] or [IPv4, IPv6], or remove ipv6PrefixLength"
type SegmentRequest struct {
	// IP families of the segment. Default: [IPv4].
	// +optional
	// +listType=set
	// +kubebuilder:validation:MaxItems=2
	IPFamilies []IPFamily `json:"ipFamilies,omitempty"`
	// Length of the IPv4 prefix. Default: the provider chooses. Example: 24.
	// +optional
	// +kubebuilder:validation:Minimum=8
	// +kubebuilder:validation:Maximum=30
	IPv4PrefixLength int32 `json:"ipv4PrefixLength,omitempty"`
	// Length of the IPv6 prefix. Default: the provider chooses. Example: 64.
	// +optional
	// +kubebuilder:validation:Minimum=16
	// +kubebuilder:validation:Maximum=126
	IPv6PrefixLength int32 `json:"ipv6PrefixLength,omitempty"`
}

// NetBoxRequest is the requested size of a segment, and selects the parent prefix in NetBox. An
// absent field matches any parent prefix, except that the site of the parent prefix has to
// match the data centre unless site is set.
type NetBoxRequest struct {
	SegmentRequest `json:",inline"`
	// Slug of the parent prefix's role.
	// +optional
	// +kubebuilder:validation:MaxLength=100
	Role string `json:"role,omitempty"`
	// Slug of the parent prefix's site. Default: datacenterIdentifier.
	// +optional
	// +kubebuilder:validation:MaxLength=100
	Site string `json:"site,omitempty"`
	// Custom fields of the parent prefix and the values that they must have.
	// +optional
	// +kubebuilder:validation:MaxProperties=8
	CustomFields map[string]string `json:"customFields,omitempty"`
	// Slug of the VLAN group of the segment's VLAN. Default: an untagged segment.
	// +optional
	// +kubebuilder:validation:MaxLength=100
	VLANGroup string `json:"vlanGroup,omitempty"`
}

// IPAllocationPolicy says how addresses of the segment are allocated.
//
// +kubebuilder:validation:XValidation:rule="self.type == 'static' || !has(self.static)",message="ipAllocation.static is only read for type static: set type to static, or remove the block"
// +kubebuilder:validation:XValidation:rule="self.type == 'dhcp' || !has(self.provider) || self.provider.lowerAscii() != 'kea'",message="kea allocates addresses by dhcp: set ipAllocation.type to dhcp, or leave out ipAllocation.provider"
// +kubebuilder:validation:XValidation:rule="!has(self.provider) || self.provider.lowerAscii() in ['kea', 'static-ip-operator']",message="ipAllocation.provider is not one that gives addresses out: write static-ip-operator for type static or kea for type dhcp, or leave it out"
// +kubebuilder:validation:XValidation:rule="self.type == 'static' || !has(self.provider) || self.provider.lowerAscii() != 'static-ip-operator'",message="static-ip-operator gives static addresses out: set ipAllocation.type to static, or leave out ipAllocation.provider"
// +kubebuilder:validation:XValidation:rule="self.type == 'dhcp' || !has(self.dhcp)",message="ipAllocation.dhcp is only read for type dhcp: set type to dhcp, or remove the block"
type IPAllocationPolicy struct {
	// How addresses are allocated: static or dhcp.
	Type AllocationType `json:"type"`
	// Allocator of the addresses: static-ip-operator for static, kea for dhcp. Leave it out,
	// because there is no other. Default: the allocator of type.
	// +optional
	// +kubebuilder:validation:MaxLength=32
	// +kubebuilder:validation:Pattern=`^[A-Za-z0-9_-]+$`
	Provider string `json:"provider,omitempty"`
	// The pool of static addresses. Default: the whole segment.
	// +optional
	Static *StaticPool `json:"static,omitempty"`
	// Options of dhcp.
	// +optional
	DHCP *DHCPOptions `json:"dhcp,omitempty"`
}

// StaticPool is the part of a segment from which static addresses are allocated. The defaults of
// its fields are those of the provisioned segment.
//
// +kubebuilder:validation:XValidation:rule="!has(self.ipv4Gateway) || !has(self.ipv4CIDR) || cidr(self.ipv4CIDR).containsIP(self.ipv4Gateway)",message="ipv4Gateway lies outside ipv4CIDR: give an address of that prefix, such as its first one"
// +kubebuilder:validation:XValidation:rule="!has(self.ipv4CIDR) || ((!has(self.ipv4RangeStart) || cidr(self.ipv4CIDR).containsIP(self.ipv4RangeStart)) && (!has(self.ipv4RangeEnd) || cidr(self.ipv4CIDR).containsIP(self.ipv4RangeEnd)))",message="ipv4RangeStart and ipv4RangeEnd must lie inside ipv4CIDR"
// +kubebuilder:validation:XValidation:rule="!has(self.ipv4RangeStart) || !has(self.ipv4RangeEnd) || !isIP(self.ipv4RangeStart) || !isIP(self.ipv4RangeEnd) || int(self.ipv4RangeStart.split('.')[0]) * 16777216 + int(self.ipv4RangeStart.split('.')[1]) * 65536 + int(self.ipv4RangeStart.split('.')[2]) * 256 + int(self.ipv4RangeStart.split('.')[3]) <= int(self.ipv4RangeEnd.split('.')[0]) * 16777216 + int(self.ipv4RangeEnd.split('.')[1]) * 65536 + int(self.ipv4RangeEnd.split('.')[2]) * 256 + int(self.ipv4RangeEnd.split('.')[3])",message="ipv4RangeStart comes after ipv4RangeEnd: exchange the two"
// +kubebuilder:validation:XValidation:rule="!has(self.ipv6Gateway) || !has(self.ipv6CIDR) || cidr(self.ipv6CIDR).containsIP(self.ipv6Gateway) || ip(self.ipv6Gateway).isLinkLocalUnicast()",message="ipv6Gateway lies outside ipv6CIDR: give an address of that prefix, or a link-local one such as fe80::1"
// +kubebuilder:validation:XValidation:rule="!has(self.ipv4Gateway) || !has(self.ipv4CIDR) || cidr(self.ipv4CIDR).prefixLength() > 30 || !self.ipv4CIDR.startsWith(self.ipv4Gateway + '/')",message="ipv4Gateway is the network address of ipv4CIDR, which no host can have: give the address of the router, such as the next one"
// +kubebuilder:validation:XValidation:rule="!has(self.ipv6CIDR) || ((!has(self.ipv6RangeStart) || cidr(self.ipv6CIDR).containsIP(self.ipv6RangeStart)) && (!has(self.ipv6RangeEnd) || cidr(self.ipv6CIDR).containsIP(self.ipv6RangeEnd)))",message="ipv6RangeStart and ipv6RangeEnd must lie inside ipv6CIDR"
type StaticPool struct {
	// IPv4 prefix of the pool.
	// +optional
	IPv4CIDR IPv4CIDR `json:"ipv4CIDR,omitempty"`
	// Default gateway for IPv4, which is never allocated.
	// +optional
	IPv4Gateway IPv4Address `json:"ipv4Gateway,omitempty"`
	// First address to allocate. Default: the second usable address of the prefix.
	// +optional
	IPv4RangeStart IPv4Address `json:"ipv4RangeStart,omitempty"`
	// Last address to allocate. Default: the last usable address of the prefix.
	// +optional
	IPv4RangeEnd IPv4Address `json:"ipv4RangeEnd,omitempty"`
	// IPv6 prefix of the pool.
	// +optional
	IPv6CIDR IPv6CIDR `json:"ipv6CIDR,omitempty"`
	// Default gateway for IPv6, which is never allocated. It may be link-local, such as
	// fe80::1.
	// +optional
	IPv6Gateway IPv6Address `json:"ipv6Gateway,omitempty"`
	// First IPv6 address to allocate. Default: the second address of the prefix.
	// +optional
	IPv6RangeStart IPv6Address `json:"ipv6RangeStart,omitempty"`
	// Last IPv6 address to allocate. Default: the last address of the prefix.
	// +optional
	IPv6RangeEnd IPv6Address `json:"ipv6RangeEnd,omitempty"`
	// Addresses that are never allocated: single addresses, prefixes, or ranges written
	// first-last. Example: [192.168.10.1-192.168.10.9].
	// +optional
	// +kubebuilder:validation:MaxItems=64
	// +kubebuilder:validation:items:MaxLength=90
	// +kubebuilder:validation:XValidation:rule="self.all(e, isIP(e) || isCIDR(e) || (e.split('-').size() == 2 && e.split('-').all(a, isIP(a))))",message="each entry is an address, a prefix or a range, for example 10.0.0.5, 10.0.0.16/28 or 10.0.0.40-10.0.0.50"
	ExcludedAddresses []string `json:"excludedAddresses,omitempty"`
	// VLAN of the segment, 0 meaning untagged. With a provider that chooses the VLAN, leave it out or write the VLAN that the
	// segment has.
	// +optional
	VLANID VLANID `json:"vlanId,omitempty"`
	// DNS servers for machines of this pool.
	// +optional
	// +kubebuilder:validation:MaxItems=8
	// +kubebuilder:validation:items:MaxLength=45
	// +kubebuilder:validation:XValidation:rule="self.all(a, isIP(a))",message="each DNS server is an IP address, for example 192.168.10.1"
	DNS []string `json:"dns,omitempty"`
	// Seconds after which an address expires unless its NetworkConfiguration exists.
	// Default: an address does not expire.
	// +optional
	// +kubebuilder:validation:Minimum=60
	// +kubebuilder:validation:Maximum=2147483647
	TTLSeconds int32 `json:"ttlSeconds,omitempty"`
	// Seconds after its release before an address is allocated again, so that ARP caches of
	// the network expire. Default: 0.
	// +optional
	// +kubebuilder:validation:Minimum=0
	// +kubebuilder:validation:Maximum=604800
	ReuseDelaySeconds int32 `json:"reuseDelaySeconds,omitempty"`
}

// DHCPOptions are options of reservations in ISC Kea.
type DHCPOptions struct {
	// Client classes that Kea evaluates additionally for the clients of the subnet, so that
	// their options apply. They cannot be changed once the network is Ready. Default: those of
	// the installation.
	// +optional
	// +kubebuilder:validation:MaxItems=16
	// +kubebuilder:validation:items:MinLength=1
	// +kubebuilder:validation:items:MaxLength=128
	RequireClientClasses []string `json:"requireClientClasses,omitempty"`
	// DNS servers that the subnet announces, which have IPv4 addresses.
	// +optional
	// +kubebuilder:validation:MaxItems=8
	// +kubebuilder:validation:items:MaxLength=45
	// +kubebuilder:validation:XValidation:rule="self.all(a, isIP(a))",message="each DNS server is an IP address, for example 192.168.10.1"
	// +kubebuilder:validation:XValidation:rule="self.all(a, !isIP(a) || ip(a).family() == 4)",message="Kea gives its clients DNS servers with IPv4 addresses only: write these, for example 192.168.10.1, and leave IPv6 addresses out"
	DNS []string `json:"dns,omitempty"`
}
