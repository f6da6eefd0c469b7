package main

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"net/netip"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/vitistack/stack/apis/network/ipam"
	networkplan "github.com/vitistack/stack/apis/network/plan"
	"github.com/vitistack/stack/apis/v1alpha1"
	"github.com/vitistack/stack/apis/v1alpha2"
	"github.com/vitistack/stack/functions/internal/kube"
	"github.com/vitistack/stack/functions/internal/network"
	"github.com/vitistack/stack/functions/internal/reconcile"
)

// reconcileConfiguration reads a NetworkConfiguration and allocates its addresses.
func (r configurationReconciler) reconcileConfiguration(ctx context.Context, namespace, name string, full bool) error {
	nc := &v1alpha1.NetworkConfiguration{}
	if err := r.kube.Get(ctx, namespace, name, nc); err != nil {
		if kube.NotFound(err) {
			return nil
		}
		return err
	}
	return r.allocateAddresses(ctx, nc, full)
}

// allocateAddresses allocates the addresses of each interface of a NetworkConfiguration. Unless it is
// full, it does nothing if the status says that every interface has them.
func (r configurationReconciler) allocateAddresses(ctx context.Context, nc *v1alpha1.NetworkConfiguration, full bool) error {
	if v1alpha1.IsPaused(nc) || nc.DeletionTimestamp != nil || (isComplete(nc) && !full) {
		return nil
	}
	before := nc.DeepCopy()
	nn, err := network.Find(ctx, r.kube, nc.Namespace, network.NameFor(nc))
	var unresolved network.Unresolved
	switch {
	case errors.As(err, &unresolved):
		return r.writeConfiguration(ctx, before, nc, setWaiting(nc, unresolved.Reason, unresolved.Message))
	case err != nil:
		return err
	}
	if ours, problem := networkplan.ServesStatic(nn, nc.Spec.Provider); !ours {
		if problem == "" {
			return nil
		}
		return r.writeConfiguration(ctx, before, nc, setWaiting(nc, "ProviderMismatch", problem))
	}
	nc.Status.NetworkNamespaceName = nn.Name
	if problem := waitsForNetwork(nn); problem != "" {
		if network.IsConfigured(nc) {
			return nil // it keeps what it has
		}
		return r.writeConfiguration(ctx, before, nc, setWaiting(nc, "NetworkNotReady", problem))
	}
	if problem := networkplan.CheckVLAN(nc, nn); problem != "" {
		return r.writeConfiguration(ctx, before, nc, setRefused(nc, "VLANMismatch", problem))
	}
	known, err := r.deleteObsolete(ctx, nc, nn)
	if err != nil {
		return err
	}
	return r.allocateInterfaces(ctx, before, nc, nn, known)
}

// allocateInterfaces creates the IPAllocations of a NetworkConfiguration, allocates their
// addresses, and writes the result into its status. While an IPAllocation is being released it
// returns errReleasing, after it has removed its address from the status.
func (r configurationReconciler) allocateInterfaces(ctx context.Context, before, nc *v1alpha1.NetworkConfiguration, nn *v1alpha2.NetworkNamespace, known allocations) error {
	held, err := r.ensureAllocations(ctx, nc, nn, known)
	foreign, refused := errNameTaken{}, reconcile.UserError{}
	switch {
	case errors.As(err, &foreign):
		return r.writeConfiguration(ctx, before, nc, setWaiting(nc, "AllocationNameTaken", foreign.Error()))
	case errors.As(err, &refused):
		return r.writeConfiguration(ctx, before, nc, setRefused(nc, refused.Reason, refused.Message))
	case err != nil && !errors.Is(err, errReleasing):
		return err
	}
	unwritten := r.writeConfiguration(ctx, before, nc, setConfigurationResult(nc, nn, held))
	if kube.Conflict(unwritten) {
		return cmp.Or(r.releaseOutdatedMACs(ctx, before, nn, held), unwritten)
	}
	if unwritten != nil {
		return unwritten
	}
	return err
}

// ensureAllocations returns the IPAllocations of a NetworkConfiguration. An IPAllocation that is
// being released has no status, and its error is errReleasing. known are IPAllocations from a list,
// which need no request of their own.
func (r configurationReconciler) ensureAllocations(ctx context.Context, nc *v1alpha1.NetworkConfiguration, nn *v1alpha2.NetworkNamespace, known allocations) (held []v1alpha2.IPAllocation, going error) {
	if err := checkFamilies(nc, nn); err != nil {
		return nil, err
	}
	if err := r.repairMACs(ctx, nc, nn, known); err != nil {
		return nil, err
	}
	for _, want := range requiredAllocations(nc, nn) {
		a, err := r.ensureAllocation(ctx, nc, nn, want, known[want.Name])
		switch {
		case errors.Is(err, errReleasing):
			a, going = want, err
		case err != nil:
			return nil, err
		}
		held = append(held, *a)
	}
	return held, going
}

// ensureAllocation creates the IPAllocation of one interface, unless it is known, and allocates
// its address.
func (r configurationReconciler) ensureAllocation(ctx context.Context, nc *v1alpha1.NetworkConfiguration, nn *v1alpha2.NetworkNamespace, want, known *v1alpha2.IPAllocation) (*v1alpha2.IPAllocation, error) {
	a, err := known, error(nil)
	if a == nil {
		a = want.DeepCopy()
		err = r.kube.Create(ctx, a)
	}
	if message, rejected := kube.RejectionMessage(err); rejected {
		return nil, reconcile.UserError{Reason: reasonRefused, Message: errRefused{message}.Error()}
	}
	if kube.AlreadyExists(err) {
		err = r.kube.Get(ctx, want.Namespace, want.Name, a)
		known = a
	}
	if err == nil && known != nil {
		err = r.checkExisting(ctx, nc, nn, a, want)
	}
	if err != nil {
		return nil, err
	}
	if _, err := r.allocations().allocateAddress(ctx, nn, nc, a, macToClaim(nc, nn, a), false); err != nil {
		return a, err
	}
	return a, r.releaseFormerMAC(ctx, nc, nn, a)
}

// checkExisting returns an error if an existing IPAllocation differs from the required one. An
// IPAllocation of this NetworkConfiguration with another address than the interface requests is
// deleted, unless the requested address is not available: then the interface keeps its address.
func (r configurationReconciler) checkExisting(ctx context.Context, nc *v1alpha1.NetworkConfiguration, nn *v1alpha2.NetworkNamespace, a, want *v1alpha2.IPAllocation) error {
	switch {
	case isOrphaned(a, nc) || (a.DeletionTimestamp != nil && !needsAddress(nc, nn, a)):
		return fmt.Errorf("allocate %s/%s: %w", a.Namespace, a.Name, errReleasing)
	case !isForInterface(a, want):
		return errNameTaken{a.Name, want.Spec.InterfaceName, otherInterface(a, want)}
	case !needsOtherAddress(a, want):
		return nil
	case !metav1.IsControlledBy(a, nc):
		return errNameTaken{name: a.Name}
	case a.Status.Address != "":
		if err := r.checkUnused(ctx, nc, a); err != nil {
			return err
		}
		if err := r.checkRequestedAddress(ctx, nn, want); err != nil {
			return err
		}
	}
	if err := r.deleteUnneeded(ctx, nc, a); err != nil {
		return err
	}
	return fmt.Errorf("replace %s/%s: %w", a.Namespace, a.Name, errReleasing)
}

// deleteUnneeded deletes an IPAllocation that the spec of a NetworkConfiguration does not require. It
// returns a conflict if the spec has changed since it was read, because the new spec may require it.
func (r configurationReconciler) deleteUnneeded(ctx context.Context, nc *v1alpha1.NetworkConfiguration, a *v1alpha2.IPAllocation) error {
	if err := r.kube.CheckSpecCurrent(ctx, nc); err != nil {
		return err
	}
	return r.kube.Delete(ctx, a)
}

// checkUnused returns a UserError if a virtual machine has the address of an allocation, because it
// would continue to use it after it is allocated to another object.
func (r configurationReconciler) checkUnused(ctx context.Context, nc *v1alpha1.NetworkConfiguration, a *v1alpha2.IPAllocation) error {
	user, err := network.UserOf(ctx, r.kube, nc, a.Status.Address)
	if err != nil || user == "" {
		return err
	}
	return reconcile.UserError{Reason: "AddressInUse", Message: fmt.Sprintf("interface %s keeps %s, which Machine %s uses: request %s, or delete Machine %s first",
		a.Spec.InterfaceName, a.Status.Address, user, a.Status.Address, user)}
}

// checkRequestedAddress returns a UserError if the address that an interface requests is not
// available.
func (r configurationReconciler) checkRequestedAddress(ctx context.Context, nn *v1alpha2.NetworkNamespace, want *v1alpha2.IPAllocation) error {
	p, _ := ipam.New(nn, want.Spec.IPFamily) // an invalid pool contains no addresses
	requested, result := p.Requested(want.Spec.RequestedAddress)
	if result == nil {
		result = r.leases.checkAddressFree(ctx, want.Namespace, leaseName(nn.Name, requested))
	}
	if result == nil || !isResult(result) {
		return result
	}
	outcome := setAllocationResult(want.DeepCopy(), nn, p, netip.Addr{}, validity{}, result)
	return reconcile.UserError{Reason: outcome.Reason, Message: outcome.Message}
}

// errNameTaken says that an IPAllocation has the name of the one of an interface: one that a user has created for another network, or that of another
// interface whose name gives the same one, as eth0 of web-db gives web-db-eth0, and db-eth0 of web. The other interface needs it, so that its deletion does not help.
type errNameTaken struct{ name, iface, other string }

func (e errNameTaken) Error() string {
	if e.other != "" {
		return fmt.Sprintf("IPAllocation %s belongs to %s, and interface %s would have one of the same name: give interface %s another name, or, if a Machine has added it, create that Machine again with another name",
			e.name, e.other, e.iface, e.iface)
	}
	return "IPAllocation " + e.name + " is not for this interface: delete it to have a new one created"
}

// errReleasing says that an IPAllocation of the same name is being deleted: that of an earlier
// NetworkConfiguration, or of an earlier address.
var errReleasing = errors.New("the allocation is still being released")

// allocations are IPAllocations by their names.
type allocations map[string]*v1alpha2.IPAllocation

// deleteObsolete deletes the allocations of interfaces that are no longer there. It
// returns the other IPAllocations that it has read.
func (r configurationReconciler) deleteObsolete(ctx context.Context, nc *v1alpha1.NetworkConfiguration, nn *v1alpha2.NetworkNamespace) (allocations, error) {
	known, err := r.deleteRemoved(ctx, nc)
	if err != nil {
		return nil, err
	}
	for _, name := range obsoleteNames(nc, nn) {
		a, err := known[name], error(nil)
		if a == nil {
			a = &v1alpha2.IPAllocation{}
			err = r.kube.Get(ctx, nc.Namespace, name, a)
		}
		switch {
		case kube.NotFound(err), err == nil && (a.Spec.NetworkConfigurationName != nc.Name || a.DeletionTimestamp != nil):
		case err != nil:
			return nil, err
		default:
			if err := r.deleteUnneeded(ctx, nc, a); err != nil {
				return nil, err
			}
		}
	}
	return known, nil
}

// deleteRemoved deletes the allocations of interfaces that were removed, also before
// the status listed them, and returns all that it has read. Only a change of the spec removes
// an interface. A conflict says that the spec has changed since it was read.
func (r configurationReconciler) deleteRemoved(ctx context.Context, nc *v1alpha1.NetworkConfiguration) (allocations, error) {
	if nc.Generation < 2 {
		return nil, nil
	}
	list := &v1alpha2.IPAllocationList{}
	if err := r.kube.List(ctx, nc.Namespace, v1alpha2.LabelNetworkConfiguration+"="+kube.LabelValue(nc.Name), list); err != nil {
		return nil, err
	}
	known := allocations{}
	for i := range list.Items {
		a := &list.Items[i]
		known[a.Name] = a
		if !metav1.IsControlledBy(a, nc) || a.DeletionTimestamp != nil || hasInterface(nc, a.Spec.InterfaceName) {
			continue
		}
		if err := r.deleteUnneeded(ctx, nc, a); err != nil {
			return nil, err
		}
		now := metav1.Now()
		a.DeletionTimestamp = &now
	}
	return known, nil
}

// writeConfiguration patches the status if it has changed, and records an Event if the reason
// has, unless the Events of the Machine say the same.
func (r configurationReconciler) writeConfiguration(ctx context.Context, before, nc *v1alpha1.NetworkConfiguration, outcome reconcile.Outcome) error {
	outcome.Changed = outcome.Changed && !network.IsReportedByMachine(before, nc)
	_, err := reconcile.PatchStatus(ctx, r.kube, before, nc, string(nc.Status.Phase), outcome)
	return err
}
