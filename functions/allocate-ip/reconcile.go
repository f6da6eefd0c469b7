package main

import (
	"context"
	"time"

	"github.com/cloudevents/sdk-go/v2/event"

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
		needsRead, full := !isCarried || !f.isNewConfiguration(in, nc), in.Type() == events.TypeResync
		return nil, kube.OnConflict(func() error {
			if needsRead {
				return f.configurations().reconcileConfiguration(ctx, ref.Namespace, ref.Name, full)
			}
			needsRead, full = true, true // after a conflict, also what was created for the old spec has to be removed
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
const maxCarriedAge = 5 * time.Second

// isNewConfiguration reports whether an event carries a NetworkConfiguration that has just been created, so that it need not be
// read. The delivery only creates objects by name, and writes the status on the condition that the NetworkConfiguration has not
// changed since. If it has, the delivery is one that was late after a read: deleteRemoved and releaseOutdatedMACs release what it has
// created for interfaces that are gone, or that have another MAC address.
func (f *function) isNewConfiguration(in event.Event, nc *v1alpha1.NetworkConfiguration) bool {
	return nc.Generation == 1 && events.IsAdd(in.Type()) && events.Age(in, f.now()) < maxCarriedAge
}
