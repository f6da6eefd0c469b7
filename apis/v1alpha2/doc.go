// Package v1alpha2 holds the network kinds of the group vitistack.io:
// NetworkNamespace, a network segment with the way its addresses are allocated,
// and IPAllocation, one address and its holder.
//
// +kubebuilder:object:generate=true
// +groupName=vitistack.io
package v1alpha2
