// Package v1alpha1 holds the kinds of the group vitistack.io that describe machines and
// clusters: Machine, MachineClass, MachineProvider, NetworkConfiguration, NetworkPool,
// KubernetesCluster, ClusterTemplate and EtcdBackup. It also serves the older version of NetworkNamespace, which
// has the same fields as v1alpha2.
//
// +kubebuilder:object:generate=true
// +groupName=vitistack.io
package v1alpha1
