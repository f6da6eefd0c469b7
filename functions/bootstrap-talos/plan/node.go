package plan

import (
	corev1 "k8s.io/api/core/v1"
)

// Node is a node as the cluster's own API describes it.
type Node struct {
	Name  string
	Ready bool
	// Version is the kubelet's, with v; talos the one of Talos, without.
	Version, TalosVersion string
	// boot changes with each boot.
	BootID string
	// Cordoned is whether pods are kept from it.
	Cordoned bool
	// labels, annotations and taints are those of the Node, whoever set them.
	Labels, Annotations map[string]string
	Taints              []corev1.Taint
}
