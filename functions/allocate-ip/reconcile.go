package main

import (
	"context"
	"time"

	"github.com/cloudevents/sdk-go/v2/event"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/vitistack/stack/apis/v1alpha1"
	"github.com/vitistack/stack/apis/v1alpha2"
	"github.com/vitistack/stack/events"
	"github.com/vitistack/stack/functions/internal/kube"
	"github.com/vitistack/stack/functions/internal/network"
)

type function struct {
	kube   *kube.Client
	leases *leaseStore
	sender sender
	now    func() time.Time
}

// configurationReconciler reconciles NetworkConfigurations: it has an IPAllocation for each interface.
type configurationReconciler struct{ *function }

// allocationReconciler reconciles IPAllocations: it has a Lease for each address.
type allocationReconciler struct{ *function }

func (f *function) configurations() configurationReconciler { return configurationReconciler{f} }

func (f *function) allocations() allocationReconciler { return allocationReconciler{f} }

func (f *function) handle(ctx context.Context, in event.Event) (*event.Event, error) {
	ref, err := events.RefOf(in)
	if err != nil {
		return nil, err
	}
	switch ref.Kind {
	case "NetworkConfiguration":
		nc := &v1alpha1.NetworkConfiguration{}
		isCarried := events.ObjectFrom(in, nc)
		if isCarried && isComplete(nc) {
			return nil, nil
		}
		needsRead := !isCarried || !f.isNewOfMachine(in, nc)
		return nil, kube.OnConflict(func() error {
			if needsRead {
				return f.configurations().reconcileConfiguration(ctx, ref.Namespace, ref.Name, in.Type() == events.TypeResync)
			}
			needsRead = true // after a conflict
			return f.configurations().allocateAddresses(ctx, nc, false)
		})
	case "IPAllocation":
		if a := (v1alpha2.IPAllocation{}); events.ObjectFrom(in, &a) && f.allocations().isIdle(&a, in.Type()) {
			return nil, nil
		}
		return nil, kube.OnConflict(func() error { return f.allocations().reconcileAllocation(ctx, ref.Namespace, ref.Name, in.Type()) })
	case "NetworkNamespace":
		if nn := (v1alpha2.NetworkNamespace{}); network.IsUsageEvent(in) || events.ObjectFrom(in, &nn) && !servesAddresses(&nn) {
			return nil, nil
		}
		return nil, f.requeueNetwork(ctx, ref.Namespace, ref.Name, in.Type() == events.TypeResync)
	case "Lease":
		return nil, f.deleteUnusedLease(ctx, ref.Namespace, ref.Name)
	case "KubernetesCluster":
		if events.IsAdd(in.Type()) {
			return nil, nil // its Machines need addresses soon: the delivery has started this process
		}
	}
	return nil, events.UnexpectedEvent(ref, name)
}

// maxCarriedAge is the age below which the event of a new object stands for a read of the object. It is well below the
// time that a delivery may take after a read.
const maxCarriedAge = time.Second

// isNewOfMachine reports whether an event carries a NetworkConfiguration that create-vm has just created for a Machine, so
// that it need not be read: create-vm never changes its interfaces. The delivery only claims names for them, and
// writes the status on the condition that the NetworkConfiguration has not changed since.
func (f *function) isNewOfMachine(in event.Event, nc *v1alpha1.NetworkConfiguration) bool {
	owner := metav1.GetControllerOf(nc)
	return owner != nil && owner.Kind == "Machine" && nc.Generation == 1 && events.IsAdd(in.Type()) && events.Age(in, f.now()) < maxCarriedAge
}
