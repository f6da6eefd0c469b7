package main

import (
	"context"
	"fmt"
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

func (f *function) handle(ctx context.Context, in event.Event) (*event.Event, error) {
	ref, err := events.RefOf(in)
	if err != nil {
		return nil, err
	}
	switch ref.Kind {
	case "NetworkConfiguration":
		full := in.Type() == events.TypeResync
		if nc := (v1alpha1.NetworkConfiguration{}); events.ObjectFrom(in, &nc) && isComplete(&nc) {
			return nil, nil
		}
		return nil, kube.OnConflict(func() error { return f.reconcileConfiguration(ctx, ref.Namespace, ref.Name, full) })
	case "IPAllocation":
		if a := (v1alpha2.IPAllocation{}); events.ObjectFrom(in, &a) && f.isIdle(&a, in.Type()) {
			return nil, nil
		}
		return nil, kube.OnConflict(func() error { return f.reconcileAllocation(ctx, ref.Namespace, ref.Name, in.Type()) })
	case "NetworkNamespace":
		if network.IsUsageEvent(in) {
			return nil, nil
		}
		return nil, f.requeueNetwork(ctx, ref.Namespace, ref.Name, in.Type() == events.TypeResync)
	case "Lease":
		return nil, f.deleteUnusedLease(ctx, ref.Namespace, ref.Name)
	default:
		return nil, events.Permanent(fmt.Errorf("reconcile %s %s/%s: %s has nothing to do for this kind: correct the filter of its Trigger", ref.Kind, ref.Namespace, ref.Name, name))
	}
}
