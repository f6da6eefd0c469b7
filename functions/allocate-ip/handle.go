package main

import (
	"context"
	"errors"
	"fmt"
	"sync"
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
	ledger *ledger
	sender sender
	now    func() time.Time
	// woken has the terms of each network, by namespace and name, on which those were
	// woken that wait for it.
	woken sync.Map
}

// sender sends events to the broker.
type sender interface {
	Send(ctx context.Context, e event.Event) error
}

func (f *function) handle(ctx context.Context, in event.Event) (*event.Event, error) {
	ref, err := events.RefOf(in)
	if err != nil {
		return nil, err
	}
	switch ref.Kind {
	case "NetworkConfiguration":
		thorough := in.Type() == events.TypeResync
		if nc := (v1alpha1.NetworkConfiguration{}); events.Carried(in, &nc) && rests(&nc) {
			return nil, nil
		}
		return nil, kube.OnConflict(func() error { return f.settleConfiguration(ctx, ref.Namespace, ref.Name, thorough) })
	case "IPAllocation":
		if a := (v1alpha2.IPAllocation{}); events.Carried(in, &a) && f.leaves(&a, in.Type()) {
			return nil, nil
		}
		return nil, kube.OnConflict(func() error { return f.settleAllocation(ctx, ref.Namespace, ref.Name, in.Type()) })
	case "NetworkNamespace":
		return nil, f.wakeNetwork(ctx, ref.Namespace, ref.Name, in.Type() == events.TypeResync)
	default: // a Lease, of which resync tells
		return nil, f.sweep(ctx, ref.Namespace, ref.Name)
	}
}

// settleConfiguration gives each interface of a NetworkConfiguration its
// addresses. Unless it is thorough, it leaves one alone that has them.
func (f *function) settleConfiguration(ctx context.Context, namespace, name string, thorough bool) error {
	nc := &v1alpha1.NetworkConfiguration{}
	if err := f.kube.Get(ctx, namespace, name, nc); err != nil {
		if kube.NotFound(err) {
			return nil
		}
		return err
	}
	if nc.DeletionTimestamp != nil || (rests(nc) && !thorough) {
		return nil
	}
	before := nc.DeepCopy()
	nn, err := network.Find(ctx, f.kube, namespace, nc.Spec.NetworkNamespaceName)
	var unresolved network.Unresolved
	switch {
	case errors.As(err, &unresolved):
		return f.writeConfiguration(ctx, before, nc, waiting(nc, unresolved.Reason, unresolved.Message))
	case err != nil:
		return err
	}
	if ours, problem := servesStatic(nn, nc.Spec.Provider); !ours {
		if problem == "" {
			return nil
		}
		return f.writeConfiguration(ctx, before, nc, waiting(nc, "ProviderMismatch", problem))
	}
	nc.Status.NetworkNamespaceName = nn.Name
	if problem := notReady(nn); problem != "" {
		return f.writeConfiguration(ctx, before, nc, waiting(nc, "NetworkNotReady", problem))
	}
	if err := f.dropUnwanted(ctx, nc, nn); err != nil {
		return err
	}
	var held []v1alpha2.IPAllocation
	for _, want := range wanted(nc, nn) {
		a, err := f.ensure(ctx, nc, nn, want)
		if foreign := (errForeign{}); errors.As(err, &foreign) {
			return f.writeConfiguration(ctx, before, nc, waiting(nc, "AllocationNameTaken", foreign.Error()))
		}
		if err != nil {
			return err
		}
		held = append(held, *a)
	}
	return f.writeConfiguration(ctx, before, nc, decide(nc, nn, held))
}

// ensure makes the IPAllocation of one interface and gives it its address.
func (f *function) ensure(ctx context.Context, nc *v1alpha1.NetworkConfiguration, nn *v1alpha2.NetworkNamespace, want *v1alpha2.IPAllocation) (*v1alpha2.IPAllocation, error) {
	a := want.DeepCopy()
	err := f.kube.Create(ctx, a)
	if kube.AlreadyExists(err) {
		err = f.kube.Get(ctx, a.Namespace, a.Name, a)
		switch {
		case err != nil:
		case a.DeletionTimestamp != nil || orphan(a, nc):
			return nil, fmt.Errorf("allocate %s/%s: %w", a.Namespace, a.Name, errGoing)
		case !belongs(a, want):
			return nil, errForeign{a.Name}
		}
	}
	if err != nil {
		return nil, err
	}
	_, err = f.allocate(ctx, nn, a)
	return a, err
}

// errForeign says that the name of an allocation belongs to something else.
type errForeign struct{ name string }

func (e errForeign) Error() string {
	return "IPAllocation " + e.name + " is not for this interface: delete it, so that it can be made anew"
}

// errGoing says that an allocation of the same name is about to go, most likely
// the one of an earlier NetworkConfiguration.
var errGoing = errors.New("the allocation is still being released")

// dropUnwanted deletes the allocations of interfaces that are no longer there.
func (f *function) dropUnwanted(ctx context.Context, nc *v1alpha1.NetworkConfiguration, nn *v1alpha2.NetworkNamespace) error {
	for _, name := range unwanted(nc, nn) {
		a := &v1alpha2.IPAllocation{}
		err := f.kube.Get(ctx, nc.Namespace, name, a)
		if kube.NotFound(err) {
			continue
		}
		if err != nil {
			return err
		}
		if a.Spec.NetworkConfigurationName != nc.Name {
			continue
		}
		if err := f.kube.Delete(ctx, a); err != nil {
			return err
		}
	}
	return f.dropForgotten(ctx, nc)
}

// dropForgotten deletes the allocations of interfaces that were taken away before the
// status told of them. Only a change of the spec takes one away.
func (f *function) dropForgotten(ctx context.Context, nc *v1alpha1.NetworkConfiguration) error {
	if nc.Generation < 2 {
		return nil
	}
	list := &v1alpha2.IPAllocationList{}
	if err := f.kube.List(ctx, nc.Namespace, v1alpha2.LabelNetworkConfiguration+"="+kube.LabelValue(nc.Name), list); err != nil {
		return err
	}
	for i := range list.Items {
		a := &list.Items[i]
		if !metav1.IsControlledBy(a, nc) || a.DeletionTimestamp != nil || hasInterface(nc, a.Spec.InterfaceName) {
			continue
		}
		if err := f.kube.Delete(ctx, a); err != nil {
			return err
		}
	}
	return nil
}

// writeConfiguration patches the status if it has changed, and tells people if
// the reason has.
func (f *function) writeConfiguration(ctx context.Context, before, nc *v1alpha1.NetworkConfiguration, told story) error {
	if _, err := f.kube.PatchStatus(ctx, before, nc); err != nil {
		return err
	}
	if told.news {
		f.kube.Tell(ctx, nc, told.warning, told.reason, told.message)
	}
	events.Report(ctx, string(nc.Status.Phase), told.message)
	return nil
}
