package main

import (
	"context"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	kubevirtv1 "kubevirt.io/api/core/v1"

	"github.com/vitistack/stack/apis/v1alpha1"
	"github.com/vitistack/stack/functions/internal/kube"
)

// Inspect implements hypervisor.
func (k *kubevirt) Inspect(ctx context.Context) (health, error) {
	nodes := &corev1.NodeList{}
	if err := k.guests.List(ctx, "", "kubevirt.io/schedulable=true", nodes); err != nil {
		return health{}, k.fault(err)
	}
	installed := &kubevirtv1.KubeVirtList{}
	err := k.guests.List(ctx, "", "", installed)
	if kube.NotFound(err) || (err == nil && len(installed.Items) == 0) {
		return health{}, fault{"KubeVirtNotInstalled", "the cluster has no KubeVirt: install it"}
	}
	if err != nil {
		return health{}, err
	}
	h := health{}
	for _, i := range installed.Items {
		h.version = i.Status.ObservedKubeVirtVersion
	}
	for _, n := range nodes.Items {
		h.nodes = append(h.nodes, v1alpha1.ProviderNode{
			Name: n.Name, Ready: nodeReady(n), CPU: *n.Status.Allocatable.Cpu(), Memory: *n.Status.Allocatable.Memory(),
		})
	}
	h.memoryAvailable, err = k.memoryLeft(ctx, h.nodes)
	return h, err
}

// instances are the running virtual machines, of all namespaces.
var instances = kubevirtv1.GroupVersion.WithResource("virtualmachineinstances")

// memoryLeft is the memory of the hosts that takes machines, less what the guests
// on all of them have.
func (k *kubevirt) memoryLeft(ctx context.Context, nodes []v1alpha1.ProviderNode) (resource.Quantity, error) {
	left := resource.Quantity{Format: resource.BinarySI}
	for _, n := range nodes {
		if n.Ready {
			left.Add(n.Memory)
		}
	}
	const pageSize = 500
	for page := (kube.Page{Limit: pageSize}); ; {
		var list struct {
			Metadata metav1.ListMeta `json:"metadata"`
			Items    []struct {
				Spec struct {
					Domain struct {
						Memory *kubevirtv1.Memory `json:"memory"`
					} `json:"domain"`
				} `json:"spec"`
			} `json:"items"`
		}
		if err := k.guests.ListInto(ctx, instances, page, &list); err != nil {
			return left, err
		}
		for _, i := range list.Items {
			if memory := i.Spec.Domain.Memory; memory != nil && memory.Guest != nil {
				left.Sub(*memory.Guest)
			}
		}
		if page.Continue = list.Metadata.Continue; page.Continue == "" {
			return left, nil
		}
	}
}

func nodeReady(n corev1.Node) bool {
	for _, c := range n.Status.Conditions {
		if c.Type == corev1.NodeReady {
			return c.Status == corev1.ConditionTrue && !n.Spec.Unschedulable
		}
	}
	return false
}
