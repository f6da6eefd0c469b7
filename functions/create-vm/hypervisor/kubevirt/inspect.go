package kubevirt

import (
	"context"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	kubevirtv1 "kubevirt.io/api/core/v1"

	"github.com/vitistack/stack/apis/v1alpha1"
	"github.com/vitistack/stack/functions/create-vm/hypervisor"
	"github.com/vitistack/stack/functions/internal/kube"
	"github.com/vitistack/stack/functions/internal/reconcile"
)

// Inspect implements hypervisor.Interface.
func (k *Hypervisor) Inspect(ctx context.Context) (hypervisor.Health, error) {
	nodes := &corev1.NodeList{}
	if err := k.guests.List(ctx, "", "kubevirt.io/schedulable=true", nodes); err != nil {
		return hypervisor.Health{}, k.toUserError(err)
	}
	installed := &kubevirtv1.KubeVirtList{}
	err := k.guests.List(ctx, "", "", installed)
	if kube.NotFound(err) || (err == nil && len(installed.Items) == 0) {
		return hypervisor.Health{}, hypervisor.NotInstalledError{UserError: reconcile.UserError{Reason: "KubeVirtNotInstalled", Message: "the cluster has no KubeVirt: install it"}}
	}
	if err != nil {
		return hypervisor.Health{}, err
	}
	h := hypervisor.Health{}
	for _, i := range installed.Items {
		h.Version = i.Status.ObservedKubeVirtVersion
	}
	used, err := readUsage(ctx, k.guests)
	if err != nil {
		return hypervisor.Health{}, err
	}
	for _, n := range nodes.Items {
		h.Nodes = append(h.Nodes, v1alpha1.ProviderNode{
			Name: n.Name, Ready: isNodeReady(n), CPU: *n.Status.Allocatable.Cpu(), Memory: *n.Status.Allocatable.Memory(),
			CPUUsed: used[n.Name].cpu, MemoryUsed: used[n.Name].memory,
		})
	}
	h.MemoryAvailable, err = availableMemory(ctx, k.guests, h.Nodes)
	return h, err
}

const pageSize = 500

// usage is how much of a host is in use.
type usage struct{ cpu, memory *resource.Quantity }

// nodeMetrics is the resource that metrics-server serves.
var nodeMetrics = schema.GroupVersionResource{Group: "metrics.k8s.io", Version: "v1beta1", Resource: "nodes"}

// readUsage returns how much of each host is in use, by name. It is empty if metrics-server is not
// installed, or the user may not read it.
func readUsage(ctx context.Context, guests *kube.Client) (map[string]usage, error) {
	used := map[string]usage{}
	for page := (kube.Page{Limit: pageSize}); ; {
		var list struct {
			Metadata metav1.ListMeta `json:"metadata"`
			Items    []struct {
				Metadata metav1.ObjectMeta `json:"metadata"`
				Usage    struct {
					CPU    *resource.Quantity `json:"cpu"`
					Memory *resource.Quantity `json:"memory"`
				} `json:"usage"`
			} `json:"items"`
		}
		err := guests.ListInto(ctx, nodeMetrics, page, &list)
		if kube.NotFound(err) || apierrors.IsForbidden(err) || apierrors.IsServiceUnavailable(err) {
			return nil, nil
		}
		if err != nil {
			return nil, err
		}
		for _, i := range list.Items {
			used[i.Metadata.Name] = usage{i.Usage.CPU, i.Usage.Memory}
		}
		if page.Continue = list.Metadata.Continue; page.Continue == "" {
			return used, nil
		}
	}
}

// virtualMachines are the virtual machines, of all namespaces.
var virtualMachines = kubevirtv1.GroupVersion.WithResource("virtualmachines")

// instances are the running virtual machines, of all namespaces.
var instances = kubevirtv1.GroupVersion.WithResource("virtualmachineinstances")

// availableMemory returns the memory of the hosts that take machines, less that of their guests.
func availableMemory(ctx context.Context, guests *kube.Client, nodes []v1alpha1.ProviderNode) (*resource.Quantity, error) {
	left := &resource.Quantity{Format: resource.BinarySI}
	ready := map[string]bool{}
	for _, n := range nodes {
		if n.Ready {
			ready[n.Name] = true
			left.Add(n.Memory)
		}
	}
	for page := (kube.Page{Limit: pageSize}); ; {
		var list struct {
			Metadata metav1.ListMeta `json:"metadata"`
			Items    []struct {
				Spec struct {
					Domain struct {
						Memory *kubevirtv1.Memory `json:"memory"`
					} `json:"domain"`
				} `json:"spec"`
				Status struct {
					NodeName string `json:"nodeName"`
				} `json:"status"`
			} `json:"items"`
		}
		if err := guests.ListInto(ctx, instances, page, &list); err != nil {
			return nil, err
		}
		for _, i := range list.Items {
			if memory := i.Spec.Domain.Memory; ready[i.Status.NodeName] && memory != nil && memory.Guest != nil {
				left.Sub(*memory.Guest)
			}
		}
		if page.Continue = list.Metadata.Continue; page.Continue == "" {
			return left, nil
		}
	}
}

// isNodeReady reports whether a node is Ready and takes pods.
func isNodeReady(n corev1.Node) bool {
	for _, c := range n.Status.Conditions {
		if c.Type == corev1.NodeReady {
			return c.Status == corev1.ConditionTrue && !n.Spec.Unschedulable
		}
	}
	return false
}
