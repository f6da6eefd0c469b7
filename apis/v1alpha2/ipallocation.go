package v1alpha2

import (
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// Labels of an IPAllocation, by which allocations are listed.
const (
	LabelNetworkNamespace     = "vitistack.io/network-namespace"
	LabelNetworkConfiguration = "vitistack.io/network-configuration"
)

// IPAllocationPhase is the phase of an IPAllocation.
// +kubebuilder:validation:Enum=Pending;Allocated;Released;Error
type IPAllocationPhase string

// Phases of an IPAllocation. Pending waits for an address, Allocated has one, Released has
// released it, and Error requests an address that is not available.
const (
	IPAllocationPending   IPAllocationPhase = "Pending"
	IPAllocationAllocated IPAllocationPhase = "Allocated"
	IPAllocationReleased  IPAllocationPhase = "Released"
	IPAllocationError     IPAllocationPhase = "Error"
)

// IPAllocation is one address of a NetworkNamespace and its holder. The stack creates one for
// each interface of a NetworkConfiguration. Users may create their own to reserve an address,
// with requestedAddress for a particular one. The deletion of an IPAllocation completes when
// its NetworkConfiguration does not need the address.
//
// +kubebuilder:object:root=true
// +kubebuilder:subresource:status
// +kubebuilder:selectablefield:JSONPath=`.status.phase`
// +kubebuilder:selectablefield:JSONPath=`.status.vlanId`
// +kubebuilder:selectablefield:JSONPath=`.spec.networkNamespaceName`
// +kubebuilder:selectablefield:JSONPath=`.spec.networkConfigurationName`
// +kubebuilder:resource:path=ipallocations,scope=Namespaced,shortName=ipa,categories={vitistack,viti}
// +kubebuilder:printcolumn:name="Address",type=string,JSONPath=`.status.address`
// +kubebuilder:printcolumn:name="NetworkNamespace",type=string,JSONPath=`.spec.networkNamespaceName`
// +kubebuilder:printcolumn:name="NetworkConfiguration",type=string,JSONPath=`.spec.networkConfigurationName`
// +kubebuilder:printcolumn:name="Phase",type=string,JSONPath=`.status.phase`
// +kubebuilder:printcolumn:name="Reason",type=string,JSONPath=`.status.conditions[?(@.type=="Ready")].reason`
// +kubebuilder:printcolumn:name="Expires",type=string,JSONPath=`.status.expiresAt`,priority=1
// +kubebuilder:printcolumn:name="Message",type=string,JSONPath=`.status.message`,priority=1
// +kubebuilder:printcolumn:name="Age",type=date,JSONPath=`.metadata.creationTimestamp`
type IPAllocation struct {
	metav1.TypeMeta   `json:",inline"`
	metav1.ObjectMeta `json:"metadata,omitempty"`

	Spec IPAllocationSpec `json:"spec"`
	// +kubebuilder:default={"observedGeneration":-1}
	Status IPAllocationStatus `json:"status,omitempty,omitzero"`
}

// IPAllocationList is a list of IPAllocations.
//
// +kubebuilder:object:root=true
type IPAllocationList struct {
	metav1.TypeMeta `json:",inline"`
	metav1.ListMeta `json:"metadata,omitempty"`
	Items           []IPAllocation `json:"items"`
}

// IPAllocationSpec is the desired address. It cannot be changed: delete the IPAllocation and
// create a new one.
//
// +kubebuilder:validation:XValidation:rule="self == oldSelf",message="an IPAllocation cannot be changed: delete it and create a new one"
// +kubebuilder:validation:XValidation:rule="!has(self.requestedAddress) || !has(self.ipFamily) || !isIP(self.requestedAddress) || (ip(self.requestedAddress).family() == 4) == (self.ipFamily == 'IPv4')",message="requestedAddress is of the other family: change ipFamily, or leave it out"
type IPAllocationSpec struct {
	// Name of a NetworkNamespace in the same namespace, which has the address.
	// +kubebuilder:validation:MinLength=1
	// +kubebuilder:validation:MaxLength=253
	NetworkNamespaceName string `json:"networkNamespaceName"`
	// NetworkConfiguration that holds the address. Leave it out to reserve an address.
	// +optional
	// +kubebuilder:validation:MaxLength=253
	NetworkConfigurationName string `json:"networkConfigurationName,omitempty"`
	// Interface of the NetworkConfiguration that uses the address.
	// +optional
	// +kubebuilder:validation:MaxLength=80
	InterfaceName string `json:"interfaceName,omitempty"`
	// Family of the address. Default: the family of requestedAddress, or IPv4
	// where the network has it.
	// +optional
	IPFamily IPFamily `json:"ipFamily,omitempty"`
	// The address to have. If it is taken or outside the pool, the allocation ends
	// in phase Error; another address is never given instead.
	// +optional
	// +kubebuilder:validation:MaxLength=45
	// +kubebuilder:validation:XValidation:rule="isIP(self)",message="write one IP address, for example 192.168.10.20"
	RequestedAddress string `json:"requestedAddress,omitempty"`
}

// IPAllocationStatus is the address.
type IPAllocationStatus struct {
	// +optional
	Phase IPAllocationPhase `json:"phase,omitempty"`
	// Address that is allocated, without its prefix length.
	// +optional
	Address string `json:"address,omitempty"`
	// Gateway of the network, of the family of the address.
	// +optional
	Gateway string `json:"gateway,omitempty"`
	// Length of the prefix that the address is in, for example 24.
	// +optional
	Prefix int32 `json:"prefix,omitempty"`
	// VLAN of the network. 0 means that it has none.
	// +optional
	VLANID int32 `json:"vlanId,omitempty"`
	// Addresses of the name servers of the network.
	// +optional
	// +listType=atomic
	DNS []string `json:"dns,omitempty"`
	// When the address expires unless it is renewed.
	// +optional
	ExpiresAt *metav1.Time `json:"expiresAt,omitempty"`
	// Message of the condition Ready.
	// +optional
	Message string `json:"message,omitempty"`
	// metadata.generation from which this status was computed.
	// +optional
	ObservedGeneration int64 `json:"observedGeneration,omitempty"`
	// When the next reconcile is due.
	// +optional
	NextCheckTime *metav1.Time `json:"nextCheckTime,omitempty"`
	// Conditions of the allocation, by type. Ready sums the others up, and its message says what
	// to do.
	// +optional
	// +listType=map
	// +listMapKey=type
	Conditions []metav1.Condition `json:"conditions,omitempty"`
}
