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

// wakeNetwork asks for another look at everything that waits for a network, or
// that was given addresses on terms that the network has changed since. Of those
// that wait for an address only the oldest is woken, which wakes the next. Unless it
// is thorough, it looks for no others if it has done so on the same terms before: a
// network that fills is counted again and again, and has more of them each time.
func (f *function) wakeNetwork(ctx context.Context, namespace, name string, thorough bool) error {
	nn, key := &v1alpha2.NetworkNamespace{}, namespace+"/"+name
	if err := f.kube.Get(ctx, namespace, name, nn); err != nil {
		if kube.NotFound(err) {
			f.woken.Delete(key)
			return nil
		}
		return err
	}
	if ours, _ := servesStatic(nn, ""); !ours || notReady(nn) != "" {
		return nil
	}
	terms, err := termsOf(nn)
	if err != nil {
		return err
	}
	if known, _ := f.woken.Load(key); thorough || known != terms {
		if err := f.wakeConfigurations(ctx, nn); err != nil {
			return err
		}
		if err := f.wakeAllocations(ctx, nn); err != nil {
			return err
		}
		f.woken.Store(key, terms)
	}
	return f.wakeOldest(ctx, namespace, name)
}

// termsOf is what a network says, its UID among it, but for the count of its users.
func termsOf(nn *v1alpha2.NetworkNamespace) (string, error) {
	said := *nn
	said.ResourceVersion, said.ManagedFields = "", nil
	said.Status.IPAllocationSummary, said.Status.AssociatedKubernetesClusterIDs, said.Status.NextCheckTime = nil, nil, nil
	text, err := json.Marshal(&said)
	if err != nil {
		return "", fmt.Errorf("write down NetworkNamespace %s/%s: %w", nn.Namespace, nn.Name, err)
	}
	return string(text), nil
}

// sweep deletes a Lease that keeps an address for nobody, and wakes who waits for one.
func (f *function) sweep(ctx context.Context, namespace, name string) error {
	freed, err := f.ledger.sweep(ctx, namespace, name)
	if err != nil || !freed {
		return err
	}
	return f.wakeOldest(ctx, namespace, "")
}

func (f *function) wakeConfigurations(ctx context.Context, nn *v1alpha2.NetworkNamespace) error {
	list := &v1alpha1.NetworkConfigurationList{}
	if err := f.kube.List(ctx, nn.Namespace, "", list); err != nil {
		return err
	}
	for i := range list.Items {
		nc := &list.Items[i]
		in := nc.Spec.NetworkNamespaceName == nn.Name || nc.Spec.NetworkNamespaceName == ""
		queued := reasonOf(nc.Status.Conditions) == "PoolExhausted"
		coming := network.Unseen(nn, nc.CreationTimestamp, nc.Status.Conditions)
		if !in || queued || coming || nc.DeletionTimestamp != nil || (settled(nc) && !stale(nc, nn)) {
			continue
		}
		if err := f.wake(ctx, nc, "NetworkConfiguration", v1alpha1.GroupVersion.String(), nn.ResourceVersion); err != nil {
			return err
		}
	}
	return nil
}

// wakeAllocations is for those that users have made.
func (f *function) wakeAllocations(ctx context.Context, nn *v1alpha2.NetworkNamespace) error {
	list := &v1alpha2.IPAllocationList{}
	own := metav1.ListOptions{FieldSelector: "spec.networkNamespaceName=" + nn.Name + ",spec.networkConfigurationName="}
	if err := f.kube.ListPage(ctx, nn.Namespace, own, list); err != nil {
		return err
	}
	for i := range list.Items {
		a := &list.Items[i]
		asIs := a.Status.Phase == v1alpha2.IPAllocationAllocated && !outdated(a, nn)
		if a.DeletionTimestamp != nil || exhausted(a) || asIs {
			continue
		}
		if err := f.wake(ctx, a, "IPAllocation", v1alpha2.GroupVersion.String(), nn.ResourceVersion); err != nil {
			return err
		}
	}
	return nil
}

// wakeOldest asks for another look at the allocation that has waited longest for
// an address of each pool of a network, or of all where network is empty. It is
// called when an address has become free, and again by each allocation that was
// served, until there is none left.
func (f *function) wakeOldest(ctx context.Context, namespace, network string) error {
	waiting, err := f.waiters(ctx, namespace)
	if err != nil {
		return err
	}
	woken := map[string]bool{}
	for _, a := range waiting {
		other := network != "" && network != a.Spec.NetworkNamespaceName
		pool := a.Spec.NetworkNamespaceName + "/" + string(a.Spec.IPFamily)
		if !exhausted(a) || other || woken[pool] {
			continue
		}
		woken[pool] = true
		if err := f.wake(ctx, a, "IPAllocation", v1alpha2.GroupVersion.String(), a.ResourceVersion); err != nil {
			return err
		}
	}
	return nil
}

// waiters are the allocations of a namespace that wait, the oldest first. Nobody may
// change them.
func (f *function) waiters(ctx context.Context, namespace string) (waiting []*v1alpha2.IPAllocation, err error) {
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
	slices.SortFunc(waiting, older)
	return waiting, nil
}

// older orders allocations by their age, and those of one second by their names.
func older(a, b *v1alpha2.IPAllocation) int {
	return cmp.Or(a.CreationTimestamp.Compare(b.CreationTimestamp.Time), cmp.Compare(a.Name, b.Name))
}

func (f *function) wake(ctx context.Context, obj kube.Object, kind, apiVersion, cause string) error {
	ref := events.Ref{APIVersion: apiVersion, Kind: kind, Namespace: obj.GetNamespace(), Name: obj.GetName()}
	return f.sender.Send(ctx, events.LookAgain(source, ref, string(obj.GetUID()), cause))
}
