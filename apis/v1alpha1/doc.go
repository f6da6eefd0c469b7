// Package v1alpha1 holds the kinds of the group vitistack.io that describe
// machines and clusters: NetworkConfiguration, Machine, MachineProvider and
// KubernetesCluster. It also serves the older version of NetworkNamespace, which
// has the same fields as v1alpha2.
//
// +kubebuilder:object:generate=true
// +groupName=vitistack.io
package v1alpha1
