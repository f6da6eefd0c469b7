package main

import (
	"cmp"
	"context"
	"encoding/json"
	"fmt"
	"slices"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/vitistack/stack/apis/v1alpha1"
	"github.com/vitistack/stack/apis/v1alpha2"
	"github.com/vitistack/stack/events"
	"github.com/vitistack/stack/functions/internal/kube"
	"github.com/vitistack/stack/functions/internal/network"
)

const source = "/functions/" + name

// requeueNetwork requeues every object that waits for a network, or whose addresses have
// former settings of it. Of those that wait for an address it requeues only the oldest, which
// requeues the next. Unless it is full, it does nothing more if it has requeued them for the
// same settings before, because each count of a network's users changes its status.
func (f *function) requeueNetwork(ctx context.Context, namespace, name string, full bool) error {
	nn, key := &v1alpha2.NetworkNamespace{}, namespace+"/"+name
	if err := f.kube.Get(ctx, namespace, name, nn); err != nil {
		if kube.NotFound(err) {
			f.requeuedFor.Delete(key)
			return nil
		}
		return err
	}
	if ours, _ := servesStatic(nn, ""); !ours || waitsForNetwork(nn) != "" {
		return nil
	}
	terms, err := settingsOf(nn)
	if err != nil {
		return err
	}
	if known, _ := f.requeuedFor.Load(key); full || known != terms {
		if err := f.requeueConfigurations(ctx, nn); err != nil {
			return err
		}
		if err := f.requeueAllocations(ctx, nn); err != nil {
			return err
		}
		f.requeuedFor.Store(key, terms)
	}
	return f.requeueOldest(ctx, namespace, name)
}

// settingsOf returns the settings of a network with its UID, without the count of its users.
func settingsOf(nn *v1alpha2.NetworkNamespace) (string, error) {
	said := *nn
	said.ResourceVersion, said.ManagedFields = "", nil
	said.Status.IPAllocationSummary, said.Status.AssociatedKubernetesClusterIDs, said.Status.NextCheckTime = nil, nil, nil
	text, err := json.Marshal(&said)
	if err != nil {
		return "", fmt.Errorf("write down NetworkNamespace %s/%s: %w", nn.Namespace, nn.Name, err)
	}
	return string(text), nil
}

// deleteUnusedLease deletes a Lease whose address no object uses, and requeues the
// IPAllocation that has waited longest.
func (f *function) deleteUnusedLease(ctx context.Context, namespace, name string) error {
	freed, err := f.leases.deleteUnused(ctx, namespace, name)
	if err != nil || !freed {
		return err
	}
	return f.requeueOldest(ctx, namespace, "")
}

func (f *function) requeueConfigurations(ctx context.Context, nn *v1alpha2.NetworkNamespace) error {
	list := &v1alpha1.NetworkConfigurationList{}
	if err := f.kube.List(ctx, nn.Namespace, "", list); err != nil {
		return err
	}
	for i := range list.Items {
		nc := &list.Items[i]
		in := nc.Spec.NetworkNamespaceName == nn.Name || nc.Spec.NetworkNamespaceName == ""
		queued := reasonOf(nc.Status.Conditions) == "PoolExhausted"
		coming := network.Unseen(nn, nc.CreationTimestamp, nc.Status.Conditions)
		if !in || queued || coming || nc.DeletionTimestamp != nil || (isConfigured(nc) && !isConfigurationOutdated(nc, nn)) {
			continue
		}
		if err := f.requeue(ctx, nc, "NetworkConfiguration", v1alpha1.GroupVersion.String(), nn.ResourceVersion); err != nil {
			return err
		}
	}
	return nil
}

// requeueAllocations requeues the IPAllocations that users have created.
func (f *function) requeueAllocations(ctx context.Context, nn *v1alpha2.NetworkNamespace) error {
	list := &v1alpha2.IPAllocationList{}
	own := metav1.ListOptions{FieldSelector: "spec.networkNamespaceName=" + nn.Name + ",spec.networkConfigurationName="}
	if err := f.kube.ListPage(ctx, nn.Namespace, own, list); err != nil {
		return err
	}
	for i := range list.Items {
		a := &list.Items[i]
		asIs := a.Status.Phase == v1alpha2.IPAllocationAllocated && !isOutdated(a, nn)
		if a.DeletionTimestamp != nil || isPoolExhausted(a) || asIs {
			continue
		}
		if err := f.requeue(ctx, a, "IPAllocation", v1alpha2.GroupVersion.String(), nn.ResourceVersion); err != nil {
			return err
		}
	}
	return nil
}

// requeueOldest requeues the IPAllocation that has waited longest for an address of each pool
// of a network, or of all networks if network is empty. It is called when an address has
// become free, and again by each IPAllocation that gets one, until none waits.
func (f *function) requeueOldest(ctx context.Context, namespace, network string) error {
	waiting, err := f.waitingAllocations(ctx, namespace)
	if err != nil {
		return err
	}
	woken := map[string]bool{}
	for _, a := range waiting {
		other := network != "" && network != a.Spec.NetworkNamespaceName
		pool := a.Spec.NetworkNamespaceName + "/" + string(a.Spec.IPFamily)
		if !isPoolExhausted(a) || other || woken[pool] {
			continue
		}
		woken[pool] = true
		if err := f.requeue(ctx, a, "IPAllocation", v1alpha2.GroupVersion.String(), a.ResourceVersion); err != nil {
			return err
		}
	}
	return nil
}

// waitingAllocations returns the IPAllocations of a namespace that wait for an address, the
// oldest first. Deliveries share them, so they must not be changed.
func (f *function) waitingAllocations(ctx context.Context, namespace string) (waiting []*v1alpha2.IPAllocation, err error) {
	pending := metav1.ListOptions{FieldSelector: "status.phase=" + string(v1alpha2.IPAllocationPending)}
	list, err := kube.View[v1alpha2.IPAllocationList](ctx, f.kube, namespace, pending)
	if err != nil {
		return nil, err
	}
	for i := range list.Items {
		if a := &list.Items[i]; a.DeletionTimestamp == nil {
			waiting = append(waiting, a)
		}
	}
	slices.SortFunc(waiting, compareAge)
	return waiting, nil
}

// compareAge orders IPAllocations by their age, and those of the same second by their names.
func compareAge(a, b *v1alpha2.IPAllocation) int {
	return cmp.Or(a.CreationTimestamp.Compare(b.CreationTimestamp.Time), cmp.Compare(a.Name, b.Name))
}

func (f *function) requeue(ctx context.Context, obj kube.Object, kind, apiVersion, cause string) error {
	ref := events.Ref{APIVersion: apiVersion, Kind: kind, Namespace: obj.GetNamespace(), Name: obj.GetName()}
	return f.sender.Send(ctx, events.LookAgain(source, ref, string(obj.GetUID()), cause))
}
