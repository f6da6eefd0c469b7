package main

import (
	"context"
	"errors"
	"fmt"
	"net/netip"
	"sync"
	"time"

	"github.com/cloudevents/sdk-go/v2/event"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/vitistack/stack/apis/v1alpha1"
	"github.com/vitistack/stack/apis/v1alpha2"
	"github.com/vitistack/stack/events"
	"github.com/vitistack/stack/functions/internal/kube"
	"github.com/vitistack/stack/functions/internal/network"
	"github.com/vitistack/stack/functions/internal/pool"
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
	nn, err := network.Find(ctx, f.kube, namespace, network.NameFor(nc))
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
		if settled(nc) {
			return nil // it keeps what it has
		}
		return f.writeConfiguration(ctx, before, nc, waiting(nc, "NetworkNotReady", problem))
	}
	if problem := network.OtherVLAN(nc, nn); problem != "" {
		return f.writeConfiguration(ctx, before, nc, refuse(nc, "VLANMismatch", problem))
	}
	known, err := f.dropUnwanted(ctx, nc, nn)
	if err != nil {
		return err
	}
	return f.give(ctx, before, nc, nn, known)
}

// give makes the IPAllocations of a NetworkConfiguration, gives them their addresses,
// and writes into its status what became of that. One that has yet to go is an error,
// but the status does not show its address any more then.
func (f *function) give(ctx context.Context, before, nc *v1alpha1.NetworkConfiguration, nn *v1alpha2.NetworkNamespace, known allocations) error {
	held, err := f.ensureAll(ctx, nc, nn, known)
	foreign, refused := errForeign{}, errRefused{}
	switch {
	case errors.As(err, &foreign):
		return f.writeConfiguration(ctx, before, nc, waiting(nc, "AllocationNameTaken", foreign.Error()))
	case errors.As(err, &refused):
		return f.writeConfiguration(ctx, before, nc, refuse(nc, refused.reason, refused.message))
	case err != nil && !errors.Is(err, errGoing):
		return err
	}
	if unwritten := f.writeConfiguration(ctx, before, nc, decide(nc, nn, held)); unwritten != nil {
		return unwritten
	}
	return err
}

// ensureAll ensures all IPAllocations of a NetworkConfiguration. Those that have yet to
// go are errGoing, and have no status among the others. known are those that a listing
// found, which are not asked for one by one.
func (f *function) ensureAll(ctx context.Context, nc *v1alpha1.NetworkConfiguration, nn *v1alpha2.NetworkNamespace, known allocations) (held []v1alpha2.IPAllocation, going error) {
	if err := unserved(nc, nn); err != nil {
		return nil, err
	}
	for _, want := range wanted(nc, nn) {
		a, err := f.ensure(ctx, nc, nn, want, known[want.Name])
		switch {
		case errors.Is(err, errGoing):
			a, going = want, err
		case err != nil:
			return nil, err
		}
		held = append(held, *a)
	}
	return held, going
}

// ensure makes the IPAllocation of one interface, unless it is known, and gives it its
// address.
func (f *function) ensure(ctx context.Context, nc *v1alpha1.NetworkConfiguration, nn *v1alpha2.NetworkNamespace, want, known *v1alpha2.IPAllocation) (*v1alpha2.IPAllocation, error) {
	a, err := known, error(nil)
	if a == nil {
		a = want.DeepCopy()
		err = f.kube.Create(ctx, a)
	}
	if kube.AlreadyExists(err) {
		err = f.kube.Get(ctx, want.Namespace, want.Name, a)
		known = a
	}
	if err == nil && known != nil {
		err = f.accept(ctx, nc, nn, a, want)
	}
	if err != nil {
		return nil, err
	}
	if _, err := f.allocate(ctx, nn, a, claimed(nc, nn, a)); err != nil {
		return a, err
	}
	return a, f.dropMAC(ctx, nc, nn, a)
}

// accept is an error where an allocation that exists is not the wanted one. One of the
// NetworkConfiguration's own that has another address than the interface asks for is
// deleted, unless that cannot be had: then the interface keeps what it has.
func (f *function) accept(ctx context.Context, nc *v1alpha1.NetworkConfiguration, nn *v1alpha2.NetworkNamespace, a, want *v1alpha2.IPAllocation) error {
	switch {
	case orphan(a, nc) || (a.DeletionTimestamp != nil && !needs(nc, nn, a)):
		return fmt.Errorf("allocate %s/%s: %w", a.Namespace, a.Name, errGoing)
	case !belongs(a, want):
		return errForeign{a.Name}
	case !differs(a, want):
		return nil
	case !metav1.IsControlledBy(a, nc):
		return errForeign{a.Name}
	case a.Status.Address != "":
		if err := f.unused(ctx, nc, a); err != nil {
			return err
		}
		if err := f.vacant(ctx, nn, want); err != nil {
			return err
		}
	}
	if err := f.current(ctx, nc); err != nil {
		return err
	}
	if err := f.kube.Delete(ctx, a); err != nil {
		return err
	}
	return fmt.Errorf("replace %s/%s: %w", a.Namespace, a.Name, errGoing)
}

// current is a conflict where the spec of a NetworkConfiguration has changed since it
// was read: another delivery may have made what it asks for now.
func (f *function) current(ctx context.Context, nc *v1alpha1.NetworkConfiguration) error {
	now := &v1alpha1.NetworkConfiguration{}
	err := f.kube.Get(ctx, nc.Namespace, nc.Name, now)
	if err == nil && now.Generation != nc.Generation {
		err = apierrors.NewConflict(v1alpha1.GroupVersion.WithResource("networkconfigurations").GroupResource(), nc.Name, errors.New("its spec has changed"))
	}
	return err
}

// unused is an errRefused where a virtual machine has the address of an allocation, and
// would go on using it when somebody else is given it.
func (f *function) unused(ctx context.Context, nc *v1alpha1.NetworkConfiguration, a *v1alpha2.IPAllocation) error {
	user, err := network.UserOf(ctx, f.kube, nc, a.Status.Address)
	if err != nil || user == "" {
		return err
	}
	return errRefused{"AddressInUse", fmt.Sprintf("interface %s keeps %s, which Machine %s has: ask for %s, or delete Machine %s first",
		a.Spec.InterfaceName, a.Status.Address, user, a.Status.Address, user)}
}

// vacant is an errRefused where the address that an interface asks for cannot be had.
func (f *function) vacant(ctx context.Context, nn *v1alpha2.NetworkNamespace, want *v1alpha2.IPAllocation) error {
	p, _ := pool.New(nn, want.Spec.IPFamily) // one that cannot be contains nothing
	var verdict error
	if requested, err := netip.ParseAddr(want.Spec.RequestedAddress); err != nil || !p.Contains(requested) {
		verdict = errOutside{want.Spec.RequestedAddress}
	} else {
		verdict = f.ledger.vacant(ctx, want.Namespace, leaseName(nn.Name, requested))
	}
	if verdict == nil || !isVerdict(verdict) {
		return verdict
	}
	told := conclude(want.DeepCopy(), nn, p, netip.Addr{}, term{}, verdict)
	return errRefused{told.reason, told.message}
}

// errForeign says that the name of an allocation belongs to something else.
type errForeign struct{ name string }

func (e errForeign) Error() string {
	return "IPAllocation " + e.name + " is not for this interface: delete it, so that it can be made anew"
}

// errRefused says why an interface cannot have the address that it asks for now.
type errRefused struct{ reason, message string }

func (e errRefused) Error() string { return e.message }

// errGoing says that an allocation of the same name is about to go: the one of an
// earlier NetworkConfiguration, or of an earlier address.
var errGoing = errors.New("the allocation is still being released")

// allocations are IPAllocations by their names.
type allocations map[string]*v1alpha2.IPAllocation

// dropUnwanted deletes the allocations of interfaces that are no longer there. It
// returns those that it has read of the others.
func (f *function) dropUnwanted(ctx context.Context, nc *v1alpha1.NetworkConfiguration, nn *v1alpha2.NetworkNamespace) (allocations, error) {
	known, err := f.dropForgotten(ctx, nc)
	if err != nil {
		return nil, err
	}
	for _, name := range unwanted(nc, nn) {
		a, err := known[name], error(nil)
		if a == nil {
			a = &v1alpha2.IPAllocation{}
			err = f.kube.Get(ctx, nc.Namespace, name, a)
		}
		switch {
		case kube.NotFound(err), err == nil && (a.Spec.NetworkConfigurationName != nc.Name || a.DeletionTimestamp != nil):
		case err != nil:
			return nil, err
		default:
			if err := f.kube.Delete(ctx, a); err != nil {
				return nil, err
			}
		}
	}
	return known, nil
}

// dropForgotten deletes the allocations of interfaces that were taken away, also before
// the status told of them, and returns all that it has read. Only a change of the spec
// takes one away.
func (f *function) dropForgotten(ctx context.Context, nc *v1alpha1.NetworkConfiguration) (allocations, error) {
	if nc.Generation < 2 {
		return nil, nil
	}
	list := &v1alpha2.IPAllocationList{}
	if err := f.kube.List(ctx, nc.Namespace, v1alpha2.LabelNetworkConfiguration+"="+kube.LabelValue(nc.Name), list); err != nil {
		return nil, err
	}
	known := allocations{}
	for i := range list.Items {
		a := &list.Items[i]
		known[a.Name] = a
		if !metav1.IsControlledBy(a, nc) || a.DeletionTimestamp != nil || hasInterface(nc, a.Spec.InterfaceName) {
			continue
		}
		if err := f.kube.Delete(ctx, a); err != nil {
			return nil, err
		}
		now := metav1.Now()
		a.DeletionTimestamp = &now
	}
	return known, nil
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
