package v1alpha2

import metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

// NetworkNamespaceStatus is the observed state: the provisioned segment.
type NetworkNamespaceStatus struct {
	// Phase of the provisioning of the segment. Addresses are allocated when it is Ready.
	// +optional
	ProvisioningPhase ProvisioningPhase `json:"provisioningPhase,omitempty"`
	// Pending, Active, Error or Deleting.
	// +optional
	Phase string `json:"phase,omitempty"`
	// OK, or the reason of the condition Ready.
	// +optional
	Status string `json:"status,omitempty"`
	// metadata.generation from which this status was computed.
	// +optional
	ObservedGeneration int64 `json:"observedGeneration,omitempty"`
	// +optional
	DatacenterIdentifier Identifier `json:"datacenterIdentifier,omitempty"`
	// +optional
	SupervisorIdentifier Identifier `json:"supervisorIdentifier,omitempty"`
	// ID of the segment at its provider.
	// +optional
	NamespaceID string `json:"namespaceId,omitempty"`
	// IPv4 prefix of the network. Example: 192.168.10.0/24.
	// +optional
	// +kubebuilder:validation:MaxLength=18
	IPv4Prefix string `json:"ipv4Prefix,omitempty"`
	// IPv4 gateway of the network.
	// +optional
	// +kubebuilder:validation:MaxLength=15
	IPv4Gateway string `json:"ipv4Gateway,omitempty"`
	// Source address of the segment's traffic outside the data centre.
	// +optional
	// +kubebuilder:validation:MaxLength=15
	IPv4EgressIP string `json:"ipv4EgressIp,omitempty"`
	// IPv6 prefix of the network. Example: 2001:db8::/64.
	// +optional
	// +kubebuilder:validation:MaxLength=49
	IPv6Prefix string `json:"ipv6Prefix,omitempty"`
	// IPv6 gateway of the network.
	// +optional
	// +kubebuilder:validation:MaxLength=45
	IPv6Gateway string `json:"ipv6Gateway,omitempty"`
	// Source address of the segment's traffic outside the data centre.
	// +optional
	// +kubebuilder:validation:MaxLength=45
	IPv6EgressIP string `json:"ipv6EgressIp,omitempty"`
	// VLAN of the network. 0 means that it has none.
	// +optional
	VLANID int32 `json:"vlanId,omitempty"`
	// DNS servers of the segment, from its provider.
	// +optional
	// +listType=atomic
	DNS []string `json:"dns,omitempty"`
	// Clusters with machines in the segment, by spec.data.clusterId.
	// +optional
	// +listType=set
	AssociatedKubernetesClusterIDs []string `json:"associatedKubernetesClusterIds,omitempty"`
	// Number of allocated and available addresses, which may be up to two minutes old.
	// +optional
	IPAllocationSummary *IPAllocationSummary `json:"ipAllocationSummary,omitempty"`
	// When the next reconcile is due if no event arrives earlier.
	// +optional
	NextCheckTime *metav1.Time `json:"nextCheckTime,omitempty"`
	// Conditions of the network, by type. Ready sums the others up, and its message says what to
	// do.
	// +optional
	// +listType=map
	// +listMapKey=type
	Conditions []metav1.Condition `json:"conditions,omitempty"`
}

// IPAllocationSummary counts the addresses of a network's pool: those of IPv4, or
// of IPv6 where the network has no IPv4. Counts of pools with more than 2^53
// addresses stop there. The counts may be up to two minutes old.
type IPAllocationSummary struct {
	// +optional
	Type AllocationType `json:"type,omitempty"`
	// Allocator of the addresses, as in spec.ipAllocation.provider.
	// +optional
	Provider string `json:"provider,omitempty"`
	// Number of addresses that have a holder.
	AllocatedCount int64 `json:"allocatedCount"`
	// Number of addresses without a holder. It includes addresses that were released within
	// reuseDelaySeconds.
	AvailableCount int64 `json:"availableCount"`
	// AvailableCount as kubectl get shows it: the number up to 1000000, and >1000000 for more, as
	// in a pool of IPv6.
	// +optional
	Available string `json:"available,omitempty"`
	// Number of addresses in the pool that can be allocated, including the allocated ones.
	TotalCount int64 `json:"totalCount"`
}
