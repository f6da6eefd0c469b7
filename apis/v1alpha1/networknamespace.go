package v1alpha1

import (
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/vitistack/stack/apis/v1alpha2"
)

// NetworkNamespace is the older version of vitistack.io/v1alpha2
// NetworkNamespace. Both have the same fields; write v1alpha2.
//
// +kubebuilder:object:root=true
// +kubebuilder:subresource:status
// +kubebuilder:deprecatedversion:warning="vitistack.io/v1alpha1 NetworkNamespace is deprecated; write apiVersion: vitistack.io/v1alpha2, the fields are the same"
// +kubebuilder:resource:path=networknamespaces,scope=Namespaced,shortName=nn,categories=vitistack
// +kubebuilder:printcolumn:name="Provisioning",type=string,JSONPath=`.spec.networkProvisioning.provider`
// +kubebuilder:printcolumn:name="Allocation",type=string,JSONPath=`.spec.ipAllocation.type`
// +kubebuilder:printcolumn:name="Phase",type=string,JSONPath=`.status.provisioningPhase`
// +kubebuilder:printcolumn:name="IPv4",type=string,JSONPath=`.status.ipv4Prefix`
// +kubebuilder:printcolumn:name="VLAN",type=integer,JSONPath=`.status.vlanId`
// +kubebuilder:printcolumn:name="Reason",type=string,JSONPath=`.status.conditions[?(@.type=="Ready")].reason`
// +kubebuilder:printcolumn:name="Age",type=date,JSONPath=`.metadata.creationTimestamp`
// +kubebuilder:validation:XValidation:rule="!has(oldSelf.status) || !has(oldSelf.status.provisioningPhase) || oldSelf.status.provisioningPhase != 'Ready' || (has(self.spec.ipAllocation) ? self.spec.ipAllocation.type : 'dhcp') == (has(oldSelf.spec.ipAllocation) ? oldSelf.spec.ipAllocation.type : 'dhcp')",message="ipAllocation.type cannot be changed any more: those who have addresses of this network would keep them, and others get the same; delete it and create it anew"
type NetworkNamespace struct {
	metav1.TypeMeta   `json:",inline"`
	metav1.ObjectMeta `json:"metadata,omitempty"`

	Spec   v1alpha2.NetworkNamespaceSpec   `json:"spec"`
	Status v1alpha2.NetworkNamespaceStatus `json:"status,omitempty,omitzero"`
}

// NetworkNamespaceList is a list of NetworkNamespaces.
//
// +kubebuilder:object:root=true
type NetworkNamespaceList struct {
	metav1.TypeMeta `json:",inline"`
	metav1.ListMeta `json:"metadata,omitempty"`
	Items           []NetworkNamespace `json:"items"`
}
