package main

import (
	"cmp"
	"context"
	"slices"

	"github.com/cloudevents/sdk-go/v2/event"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	networkplan "github.com/vitistack/stack/apis/network/plan"
	"github.com/vitistack/stack/apis/v1alpha1"
	"github.com/vitistack/stack/apis/v1alpha2"
	"github.com/vitistack/stack/events"
	"github.com/vitistack/stack/functions/internal/kube"
	"github.com/vitistack/stack/functions/internal/network"
)

const source = "/functions/" + name

// servesAddresses reports whether the function can give addresses of a network to objects that wait for it.
func servesAddresses(nn *v1alpha2.NetworkNamespace) bool {
	ours, _ := networkplan.ServesStatic(nn, "")
	return ours && waitsForNetwork(nn) == ""
}

// requeueNetwork requeues every object that waits for a network, or whose addresses have
// outdated settings of it. If it is full, it also requeues objects that wait for something
// else. Of the IPAllocations that wait for an address it requeues only the oldest, which
// requeues the next. A second call sends the same events again.
func (f *function) requeueNetwork(ctx context.Context, namespace, name string, full bool) error {
	nn := &v1alpha2.NetworkNamespace{}
	if err := f.kube.Get(ctx, namespace, name, nn); err != nil {
		if kube.NotFound(err) {
			return nil
		}
		return err
	}
	if !servesAddresses(nn) {
		return nil
	}
	full = full || kube.ReconcileRequested(nn)
	if err := f.requeueConfigurations(ctx, nn, full); err != nil {
		return err
	}
	if err := f.requeueAllocations(ctx, nn, full); err != nil {
		return err
	}
	return f.requeueOldest(ctx, namespace, name)
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

// reasonsOutside are the reasons of waiting objects that no change of their network resolves.
// Each count of its users changes a network, so these objects are not requeued with it.
var reasonsOutside = []string{"WaitingForMAC", "WaitingForAddress", "AllocationNameTaken", "AddressTaken", "AddressInUse", reasonDuplicateMAC, reasonRefused}

// waitsForNetworkChange reports whether an object that has no address waits for a change of
// its network, by its conditions. An object without a condition may do so.
func waitsForNetworkChange(conditions []metav1.Condition, full bool) bool {
	reason := reasonOf(conditions)
	return reason != "PoolExhausted" && (full || !slices.Contains(reasonsOutside, reason))
}

func (f *function) requeueConfigurations(ctx context.Context, nn *v1alpha2.NetworkNamespace, full bool) error {
	list := &v1alpha1.NetworkConfigurationList{}
	if err := f.kube.List(ctx, nn.Namespace, "", list); err != nil {
		return err
	}
	for i := range list.Items {
		nc := &list.Items[i]
		in := nc.Spec.NetworkNamespaceName == nn.Name || nc.Spec.NetworkNamespaceName == ""
		needed := waitsForNetworkChange(nc.Status.Conditions, full) && !network.AwaitsFirstReconcile(nn, nc.CreationTimestamp, nc.Status.Conditions)
		if network.IsConfigured(nc) {
			needed = isConfigurationOutdated(nc, nn)
		}
		if !in || !needed || nc.DeletionTimestamp != nil {
			continue
		}
		if err := f.requeue(ctx, nc, "NetworkConfiguration", v1alpha1.GroupVersion.String(), nn.ResourceVersion); err != nil {
			return err
		}
	}
	return nil
}

// requeueAllocations requeues the IPAllocations that users have created.
func (f *function) requeueAllocations(ctx context.Context, nn *v1alpha2.NetworkNamespace, full bool) error {
	list := &v1alpha2.IPAllocationList{}
	own := metav1.ListOptions{FieldSelector: "spec.networkNamespaceName=" + nn.Name + ",spec.networkConfigurationName="}
	if err := f.kube.ListPage(ctx, nn.Namespace, own, list); err != nil {
		return err
	}
	for i := range list.Items {
		a := &list.Items[i]
		needed := waitsForNetworkChange(a.Status.Conditions, full)
		if a.Status.Phase == v1alpha2.IPAllocationAllocated {
			needed = isOutdated(a, nn)
		}
		if !needed || a.DeletionTimestamp != nil {
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
	requeued := map[string]bool{}
	for _, a := range waiting {
		other := network != "" && network != a.Spec.NetworkNamespaceName
		pool := a.Spec.NetworkNamespaceName + "/" + string(a.Spec.IPFamily)
		if !isPoolExhausted(a) || other || requeued[pool] {
			continue
		}
		requeued[pool] = true
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
	list, err := kube.ListShared[v1alpha2.IPAllocationList](ctx, f.kube, namespace, pending)
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
	return f.sender.Send(ctx, events.NewReconcileRequest(source, ref, string(obj.GetUID()), cause))
}

// sender sends events to the Broker.
type sender interface {
	Send(ctx context.Context, e event.Event) error
}
