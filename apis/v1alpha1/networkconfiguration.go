package v1alpha1

import (
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/vitistack/stack/apis/v1alpha2"
)

// NetworkConfigurationPhase is where a NetworkConfiguration is in its life.
// +kubebuilder:validation:Enum=Pending;Ready;Error;Deleting
type NetworkConfigurationPhase string

// Pending waits for the network or for addresses, Ready has an address for each
// interface.
const (
	NetworkConfigurationPending  NetworkConfigurationPhase = "Pending"
	NetworkConfigurationReady    NetworkConfigurationPhase = "Ready"
	NetworkConfigurationError    NetworkConfigurationPhase = "Error"
	NetworkConfigurationDeleting NetworkConfigurationPhase = "Deleting"
)

// NetworkConfiguration holds the interfaces of a machine: their MAC addresses,
// and in its status the addresses that layer 2 gave them.
//
// +kubebuilder:object:root=true
// +kubebuilder:subresource:status
// +kubebuilder:selectablefield:JSONPath=`.status.phase`
// +kubebuilder:selectablefield:JSONPath=`.status.networkNamespaceName`
// +kubebuilder:selectablefield:JSONPath=`.status.vlanId`
// +kubebuilder:selectablefield:JSONPath=`.spec.networkNamespaceName`
// +kubebuilder:resource:path=networkconfigurations,scope=Namespaced,shortName=nc,categories={vitistack,viti}
// +kubebuilder:printcolumn:name="NetworkNamespace",type=string,JSONPath=`.spec.networkNamespaceName`
// +kubebuilder:printcolumn:name="MAC",type=string,JSONPath=`.spec.networkInterfaces[0].macAddress`
// +kubebuilder:printcolumn:name="Address",type=string,JSONPath=`.status.networkInterfaces[0]['ipv4Addresses','ipv6Addresses'][0]`
// +kubebuilder:printcolumn:name="Method",type=string,JSONPath=`.status.networkInterfaces[0].allocationMethod`
// +kubebuilder:printcolumn:name="Phase",type=string,JSONPath=`.status.phase`
// +kubebuilder:printcolumn:name="Reason",type=string,JSONPath=`.status.conditions[?(@.type=="Ready")].reason`
// +kubebuilder:printcolumn:name="Message",type=string,JSONPath=`.status.conditions[?(@.type=="Ready")].message`,priority=1
// +kubebuilder:printcolumn:name="Age",type=date,JSONPath=`.metadata.creationTimestamp`
// +kubebuilder:validation:XValidation:rule="!has(oldSelf.status) || !has(oldSelf.status.networkInterfaces) || oldSelf.status.networkInterfaces.size() == 0 || !has(oldSelf.status.networkNamespaceName) || has(oldSelf.spec.networkNamespaceName) || !has(self.spec.networkNamespaceName) || self.spec.networkNamespaceName == oldSelf.status.networkNamespaceName",message="the interfaces have addresses of the NetworkNamespace in status.networkNamespaceName: write that, or delete the NetworkConfiguration and create a new one"
// +kubebuilder:validation:XValidation:rule="!has(oldSelf.status) || !has(oldSelf.status.networkInterfaces) || !oldSelf.status.networkInterfaces.exists(i, has(i.ipv4Addresses) || has(i.ipv6Addresses)) || (has(self.spec.bridge) == has(oldSelf.spec.bridge) && (!has(self.spec.bridge) || self.spec.bridge == oldSelf.spec.bridge)) && (has(self.spec.mtu) == has(oldSelf.spec.mtu) && (!has(self.spec.mtu) || self.spec.mtu == oldSelf.spec.mtu))",message="bridge and mtu cannot be changed once the interfaces have addresses, because virtual machines keep the interfaces that they have: delete the NetworkConfiguration, and the Machines that use it, and create them again"
type NetworkConfiguration struct {
	metav1.TypeMeta   `json:",inline"`
	metav1.ObjectMeta `json:"metadata,omitempty"`

	Spec NetworkConfigurationSpec `json:"spec"`
	// +kubebuilder:default={"observedGeneration":-1}
	Status NetworkConfigurationStatus `json:"status,omitempty,omitzero"`
}

// NetworkConfigurationList is a list of NetworkConfigurations.
//
// +kubebuilder:object:root=true
type NetworkConfigurationList struct {
	metav1.TypeMeta `json:",inline"`
	metav1.ListMeta `json:"metadata,omitempty"`
	Items           []NetworkConfiguration `json:"items"`
}

// NetworkConfigurationSpec is the desired state: interfaces that need addresses of a
// network.
//
// +kubebuilder:validation:XValidation:rule="!has(oldSelf.networkNamespaceName) || (has(self.networkNamespaceName) && self.networkNamespaceName == oldSelf.networkNamespaceName)",message="networkNamespaceName cannot be changed: delete the NetworkConfiguration and create a new one"
type NetworkConfigurationSpec struct {
	// NetworkNamespace of the interfaces, in the same namespace. Default: the only
	// NetworkNamespace of the namespace.
	// +optional
	// +kubebuilder:validation:MaxLength=253
	NetworkNamespaceName string `json:"networkNamespaceName,omitempty"`
	// Readable name. Default: metadata.name.
	// +optional
	// +kubebuilder:validation:MaxLength=63
	Name string `json:"name,omitempty"`
	// Description in your own words.
	// +optional
	// +kubebuilder:validation:MaxLength=1024
	Description string `json:"description,omitempty"`
	// +optional
	DatacenterIdentifier v1alpha2.Identifier `json:"datacenterIdentifier,omitempty"`
	// +optional
	SupervisorIdentifier v1alpha2.Identifier `json:"supervisorIdentifier,omitempty"`
	// Cluster that the machine belongs to, by its spec.data.clusterId.
	// +optional
	// +kubebuilder:validation:MaxLength=63
	ClusterIdentifier string `json:"clusterIdentifier,omitempty"`
	// Allocator of the addresses: static-ip-operator or kea. Default: the one of the
	// NetworkNamespace.
	// +optional
	// +kubebuilder:validation:MaxLength=32
	// +kubebuilder:validation:Pattern=`^[A-Za-z0-9_-]+$`
	Provider string `json:"provider,omitempty"`
	// VLAN of the interfaces. It must be the VLAN of the NetworkNamespace, so leave it
	// out. Default: the VLAN of the NetworkNamespace.
	// +optional
	VLAN *v1alpha2.VLANID `json:"vlan,omitempty"`
	// Bridge of the hypervisor, which a NetworkPool has to list. Default: the bridge of
	// the MachineProvider. Example: vmbr1.
	// +optional
	// +kubebuilder:validation:MaxLength=15
	// +kubebuilder:validation:XValidation:rule="self.matches('^[A-Za-z0-9._-]+$')",message="write the name of a bridge such as vmbr0: letters, digits, dots, dashes and underscores"
	Bridge string `json:"bridge,omitempty"`
	// MTU of the network in bytes. Default: the hypervisor chooses.
	// +optional
	// +kubebuilder:validation:Minimum=576
	// +kubebuilder:validation:Maximum=9216
	MTU int32 `json:"mtu,omitempty"`
	// The interfaces, up to 512. An interface without a MAC address waits until a Machine
	// uses it.
	// +optional
	// +listType=map
	// +listMapKey=name
	// +kubebuilder:validation:MaxItems=512
	NetworkInterfaces []InterfaceSpec `json:"networkInterfaces,omitempty"`
}

// InterfaceSpec is an interface that needs an address.
type InterfaceSpec struct {
	// Name of the interface. In a NetworkConfiguration that several Machines share it is
	// <machine>-<interface> with dashes for dots, followed by a hash if another Machine
	// uses the same name. Example: eth0.
	// +kubebuilder:validation:MinLength=1
	// +kubebuilder:validation:MaxLength=80
	// +kubebuilder:validation:XValidation:rule="self.matches('^[a-z0-9]([a-z0-9-]*[a-z0-9])?$')",message="use lower case letters, digits and - only, for example eth0"
	Name string `json:"name"`
	// MAC address. The stack fills in the one of the Machine. Example:
	// 52:54:00:12:34:56.
	// +optional
	MACAddress MACAddress `json:"macAddress,omitempty"`
	// Requested IPv4 address. If it is not available, the condition Ready says so; no
	// other address is allocated instead. Default: any free address.
	// +optional
	// +kubebuilder:validation:MaxItems=1
	// +listType=atomic
	IPv4Addresses []v1alpha2.IPv4Address `json:"ipv4Addresses,omitempty"`
	// Requested IPv6 address. Default: any free address.
	// +optional
	// +kubebuilder:validation:MaxItems=1
	// +listType=atomic
	IPv6Addresses []v1alpha2.IPv6Address `json:"ipv6Addresses,omitempty"`
}

// MACAddress is a unicast EUI-48 address in six pairs of hex digits.
//
// +kubebuilder:validation:MaxLength=17
// +kubebuilder:validation:XValidation:rule="self.matches('^[0-9A-Fa-f][02468ACEace]([:-][0-9A-Fa-f]{2}){5}$')",message="write a unicast MAC address as six pairs of hex digits, for example 52:54:00:12:34:56"
// +kubebuilder:validation:XValidation:rule="self.matches('[1-9A-Fa-f]')",message="a MAC address of zeros is no address of an interface: write the one of the interface, for example 52:54:00:12:34:56, or leave it out"
type MACAddress string

// NetworkConfigurationStatus is the observed state: the addresses of the interfaces.
type NetworkConfigurationStatus struct {
	// +optional
	Phase NetworkConfigurationPhase `json:"phase,omitempty"`
	// OK, or the reason of the condition Ready.
	// +optional
	Status string `json:"status,omitempty"`
	// Message of the condition Ready.
	// +optional
	Message string `json:"message,omitempty"`
	// metadata.generation from which this status was computed.
	// +optional
	ObservedGeneration int64 `json:"observedGeneration,omitempty"`
	// NetworkNamespace of the addresses.
	// +optional
	// +kubebuilder:validation:MaxLength=253
	NetworkNamespaceName string `json:"networkNamespaceName,omitempty"`
	// VLAN of all interfaces, by which kubectl get --field-selector status.vlanId=100 selects. It is absent
	// while no interface has an address, and if some have addresses of another VLAN.
	// +optional
	VLANID *int32 `json:"vlanId,omitempty"`
	// Addresses of each interface, in the order of the spec.
	// +optional
	// +listType=map
	// +listMapKey=name
	// +kubebuilder:validation:MaxItems=512
	NetworkInterfaces []InterfaceStatus `json:"networkInterfaces,omitempty"`
	// When the next reconcile is due.
	// +optional
	NextCheckTime *metav1.Time `json:"nextCheckTime,omitempty"`
	// Conditions of the NetworkConfiguration, by type. Ready sums the others up, and its message
	// says what to do.
	// +optional
	// +listType=map
	// +listMapKey=type
	Conditions []metav1.Condition `json:"conditions,omitempty"`
}

// InterfaceStatus is an interface with its addresses.
type InterfaceStatus struct {
	// Name of the interface, as in the spec.
	Name string `json:"name"`
	// +optional
	MACAddress MACAddress `json:"macAddress,omitempty"`
	// IPv4 addresses of the interface, without prefix lengths.
	// +optional
	// +listType=atomic
	IPv4Addresses []string `json:"ipv4Addresses,omitempty"`
	// IPv6 addresses of the interface, without prefix lengths.
	// +optional
	// +listType=atomic
	IPv6Addresses []string `json:"ipv6Addresses,omitempty"`
	// VLAN as a decimal number.
	// +optional
	VLAN string `json:"vlan,omitempty"`
	// Prefix that the IPv4 address is in, for example 192.168.10.0/24.
	// +optional
	IPv4Subnet string `json:"ipv4Subnet,omitempty"`
	// Prefix that the IPv6 address is in.
	// +optional
	IPv6Subnet string `json:"ipv6Subnet,omitempty"`
	// IPv4 gateway of the network.
	// +optional
	IPv4Gateway string `json:"ipv4Gateway,omitempty"`
	// IPv6 gateway of the network.
	// +optional
	IPv6Gateway string `json:"ipv6Gateway,omitempty"`
	// Addresses of the name servers of the network.
	// +optional
	// +listType=atomic
	DNS []string `json:"dns,omitempty"`
	// Whether the DHCP server has the reservation. The function reads it back.
	// +optional
	DHCPReserved bool `json:"dhcpReserved,omitempty"`
	// Whether the interface has every address that it needs.
	// +optional
	IPAllocated bool `json:"ipAllocated,omitempty"`
	// +optional
	AllocationMethod v1alpha2.AllocationType `json:"allocationMethod,omitempty"`
	// When the address expires unless it is renewed.
	// +optional
	AllocationExpiry *metav1.Time `json:"allocationExpiry,omitempty"`
}
