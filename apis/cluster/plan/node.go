package plan

import (
	"time"

	corev1 "k8s.io/api/core/v1"
)

// Node is a Node of the workload cluster.
type Node struct {
	Name, ResourceVersion string
	// Created is when the Node was registered.
	Created time.Time
	Ready   bool
	// ReadySince is when Ready changed last.
	ReadySince time.Time
	// Version is the version of the kubelet, with v, and TalosVersion the one of Talos, without.
	Version, TalosVersion string
	// BootID changes with each boot.
	BootID string
	// Cordoned is whether the Node is unschedulable.
	Cordoned            bool
	Labels, Annotations map[string]string
	Taints              []corev1.Taint
}
