package main

import (
	"context"
	"slices"
	"strings"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/vitistack/stack/apis/v1alpha1"
	"github.com/vitistack/stack/apis/v1alpha2"
	"github.com/vitistack/stack/events"
	"github.com/vitistack/stack/functions/internal/kube"
)

const source = "/functions/" + name

// wakeNetwork asks for another look at everything that waits for a network, or
// that was given addresses on terms that the network has changed since.
func (f *function) wakeNetwork(ctx context.Context, namespace, name string) error {
	nn := &v1alpha2.NetworkNamespace{}
	if err := f.kube.Get(ctx, namespace, name, nn); err != nil {
		if kube.NotFound(err) {
			return nil
		}
		return err
	}
	if ours, _ := servesStatic(nn, ""); !ours || notReady(nn) != "" {
		return nil
	}
	if err := f.wakeConfigurations(ctx, nn); err != nil {
		return err
	}
	allocations, err := f.waiters(ctx, namespace)
	if err != nil {
		return err
	}
	for i := range allocations {
		a := &allocations[i]
		if a.Spec.NetworkNamespaceName != name || a.Spec.NetworkConfigurationName != "" {
			continue
		}
		if err := f.wake(ctx, a, "IPAllocation", v1alpha2.GroupVersion.String(), nn.ResourceVersion); err != nil {
			return err
		}
	}
	return nil
}

func (f *function) wakeConfigurations(ctx context.Context, nn *v1alpha2.NetworkNamespace) error {
	list := &v1alpha1.NetworkConfigurationList{}
	if err := f.kube.List(ctx, nn.Namespace, "", list); err != nil {
		return err
	}
	for i := range list.Items {
		nc := &list.Items[i]
		in := nc.Spec.NetworkNamespaceName == nn.Name || nc.Spec.NetworkNamespaceName == ""
		if !in || nc.DeletionTimestamp != nil || (settled(nc) && !stale(nc, nn)) {
			continue
		}
		if err := f.wake(ctx, nc, "NetworkConfiguration", v1alpha1.GroupVersion.String(), nn.ResourceVersion); err != nil {
			return err
		}
	}
	return nil
}

// wakeOldest asks for another look at the allocation of each network that has
// waited longest for an address. It is called when an address has become free, and
// again by each allocation that was served, until there is none left.
func (f *function) wakeOldest(ctx context.Context, namespace string) error {
	waiting, err := f.waiters(ctx, namespace)
	if err != nil {
		return err
	}
	woken := map[string]bool{}
	for i := range waiting {
		a := &waiting[i]
		if !exhausted(a) || woken[a.Spec.NetworkNamespaceName] {
			continue
		}
		woken[a.Spec.NetworkNamespaceName] = true
		if err := f.wake(ctx, a, "IPAllocation", v1alpha2.GroupVersion.String(), a.ResourceVersion); err != nil {
			return err
		}
	}
	return nil
}

// waiters are the allocations of a namespace that wait, the oldest first.
func (f *function) waiters(ctx context.Context, namespace string) ([]v1alpha2.IPAllocation, error) {
	list := &v1alpha2.IPAllocationList{}
	pending := metav1.ListOptions{FieldSelector: "status.phase=" + string(v1alpha2.IPAllocationPending)}
	if err := f.kube.ListPage(ctx, namespace, pending, list); err != nil {
		return nil, err
	}
	waiting := slices.DeleteFunc(list.Items, func(a v1alpha2.IPAllocation) bool { return a.DeletionTimestamp != nil })
	slices.SortFunc(waiting, func(a, b v1alpha2.IPAllocation) int {
		if c := a.CreationTimestamp.Compare(b.CreationTimestamp.Time); c != 0 {
			return c
		}
		return strings.Compare(a.Name, b.Name)
	})
	return waiting, nil
}

func (f *function) wake(ctx context.Context, obj kube.Object, kind, apiVersion, cause string) error {
	ref := events.Ref{APIVersion: apiVersion, Kind: kind, Namespace: obj.GetNamespace(), Name: obj.GetName()}
	return f.sender.Send(ctx, events.LookAgain(source, ref, string(obj.GetUID()), cause))
}
