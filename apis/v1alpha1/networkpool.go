package v1alpha1

import (
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// NetworkPool says which network segments the NetworkNamespaces of some namespaces may use. The
// platform team creates it. A segment is allowed if a single NetworkPool of its namespace allows
// its provider, its VLAN and its prefixes.
//
// +kubebuilder:object:root=true
// +kubebuilder:resource:path=networkpools,scope=Cluster,shortName=netpool,categories={vitistack,viti}
// +kubebuilder:printcolumn:name="Namespaces",type=string,JSONPath=`.spec.allowedNamespaces.list`
// +kubebuilder:printcolumn:name="Providers",type=string,JSONPath=`.spec.providers`
// +kubebuilder:printcolumn:name="VLANs",type=string,JSONPath=`.spec.vlans`
// +kubebuilder:printcolumn:name="Prefixes",type=string,JSONPath=`.spec.prefixes`
// +kubebuilder:printcolumn:name="Bridges",type=string,JSONPath=`.spec.bridges`
// +kubebuilder:printcolumn:name="Selector",type=string,JSONPath=`.spec.allowedNamespaces.selector`,priority=1
// +kubebuilder:printcolumn:name="Age",type=date,JSONPath=`.metadata.creationTimestamp`
type NetworkPool struct {
	metav1.TypeMeta   `json:",inline"`
	metav1.ObjectMeta `json:"metadata,omitempty"`

	Spec NetworkPoolSpec `json:"spec"`
}

// NetworkPoolList is a list of NetworkPools.
//
// +kubebuilder:object:root=true
type NetworkPoolList struct {
	metav1.TypeMeta `json:",inline"`
	metav1.ListMeta `json:"metadata,omitempty"`
	Items           []NetworkPool `json:"items"`
}

// NetworkPoolSpec says what may be used, and by which namespaces. A list that is absent or empty
// allows any value, except that a bridge always has to be listed, with its VLANs. A network that is
// Ready keeps its segment when the pool changes.
type NetworkPoolSpec struct {
	// Namespaces that may use this pool. Default: all. Example: list: [team-a].
	// +optional
	AllowedNamespaces *AllowedNamespaces `json:"allowedNamespaces,omitempty"`
	// Providers that segments may come from: manual, nam, netbox, or names of external IPAMs.
	// With manual and netbox list vlans and prefixes too: the tenant writes them with manual, and
	// chooses the parent prefix and the VLAN group with netbox. Default: any. Example: [nam].
	// +optional
	// +listType=set
	// +kubebuilder:validation:MaxItems=64
	// +kubebuilder:validation:items:MinLength=1
	// +kubebuilder:validation:items:MaxLength=32
	// +kubebuilder:validation:XValidation:rule="self.all(p, p.matches('^[a-z0-9]([a-z0-9-]*[a-z0-9])?$'))",message="use lower case letters, digits and - only: manual, nam, netbox, or the name of an external IPAM"
	Providers []string `json:"providers,omitempty"`
	// Bridges that NetworkConfigurations may name in spec.bridge, for networks in a VLAN that
	// vlans lists. Default: none; the bridge of the MachineProvider needs no entry.
	// Example: [br1].
	// +optional
	// +listType=set
	// +kubebuilder:validation:MaxItems=64
	// +kubebuilder:validation:items:MaxLength=15
	// +kubebuilder:validation:XValidation:rule="self.all(b, b.matches('^[A-Za-z0-9._-]+$'))",message="write names of bridges such as vmbr0: letters, digits, dots, dashes and underscores"
	Bridges []string `json:"bridges,omitempty"`
	// VLANs that segments may be in: numbers or ranges from 0 to 4094, where 0 is untagged.
	// Default: any. Example: ["100-199", "300"].
	// +optional
	// +listType=set
	// +kubebuilder:validation:MaxItems=64
	VLANs []VLANRange `json:"vlans,omitempty"`
	// Whether a manual segment may be in a VLAN in which another namespace has a network with
	// other prefixes. Machines of both then reach each other in the VLAN. Default: false.
	// Example: true.
	// +optional
	ShareVLANs bool `json:"shareVLANs,omitempty"`
	// Prefixes that the prefixes of segments have to lie in. A segment with IPv4 and IPv6
	// needs one of each. Default: any. Example: [10.20.0.0/16, "2001:db8:20::/48"].
	// +optional
	// +listType=set
	// +kubebuilder:validation:MaxItems=64
	// +kubebuilder:validation:items:MaxLength=43
	// +kubebuilder:validation:XValidation:rule="self.all(p, isCIDR(p) && cidr(p) == cidr(p).masked())",message="write prefixes without host bits, for example 10.20.0.0/16"
	Prefixes []string `json:"prefixes,omitempty"`
}

// VLANRange is a VLAN, or the first and the last VLAN of a range.
//
// +kubebuilder:validation:MaxLength=9
// +kubebuilder:validation:XValidation:rule="self.matches('^(0|[1-9][0-9]{0,3})(-(0|[1-9][0-9]{0,3}))?$') && self.split('-').all(v, int(v) <= 4094) && int(self.split('-')[0]) <= int(self.split('-')[self.split('-').size() - 1])",message="write a VLAN or a range of VLANs from 0 (untagged) to 4094, the lower one first, for example 100-199"
type VLANRange string
