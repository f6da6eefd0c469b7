package main

import (
	"context"
	"errors"
	"slices"

	networkplan "github.com/vitistack/stack/apis/network/plan"
	"github.com/vitistack/stack/apis/v1alpha1"
	"github.com/vitistack/stack/apis/v1alpha2"
	"github.com/vitistack/stack/events"
	"github.com/vitistack/stack/functions/internal/kube"
	"github.com/vitistack/stack/functions/internal/network"
	"github.com/vitistack/stack/functions/internal/reconcile"
)

// reconcileAllocation reconciles one IPAllocation, and the NetworkConfiguration that waits for
// it. Unless the event is of resync, it does nothing for an idle IPAllocation.
func (r allocationReconciler) reconcileAllocation(ctx context.Context, namespace, name, why string) error {
	a := &v1alpha2.IPAllocation{}
	if err := r.kube.Get(ctx, namespace, name, a); err != nil {
		if kube.NotFound(err) {
			return nil
		}
		return err
	}
	switch {
	case v1alpha1.IsPaused(a), why != events.TypeResync && r.isIdle(a, why):
		return nil
	case a.DeletionTimestamp != nil:
		return r.deleteAllocation(ctx, a)
	default:
		return r.reconcileActive(ctx, a, why == events.TypeResync)
	}
}

// isIdle reports whether there is nothing to do for an IPAllocation: it has its address, or
// none to release, or the delivery that has just created it for a NetworkConfiguration
// allocates its address.
func (r allocationReconciler) isIdle(a *v1alpha2.IPAllocation, why string) bool {
	switch {
	case a.DeletionTimestamp != nil:
		return !slices.Contains(a.Finalizers, v1alpha1.FinalizerStaticIP)
	case a.Status.Phase == v1alpha2.IPAllocationAllocated && !isRenewalDue(a, r.now()) && !kube.ReconcileRequested(a):
		return true
	default:
		return events.IsAdd(why) && a.Spec.NetworkConfigurationName != ""
	}
}

// reconcileActive allocates the address of an IPAllocation, and requeues the
// NetworkConfiguration that waits for it. If it is full, it also creates a missing Lease of the address.
func (r allocationReconciler) reconcileActive(ctx context.Context, a *v1alpha2.IPAllocation, full bool) error {
	nn, err := network.Find(ctx, r.kube, a.Namespace, a.Spec.NetworkNamespaceName)
	var unresolved network.Unresolved
	if err != nil && !errors.As(err, &unresolved) {
		return err
	}
	before := a.DeepCopy()
	if outcome, ok := checkNetwork(a, nn, unresolved); !ok {
		_, err := r.writeAllocation(ctx, before, a, outcome)
		return err
	}
	nc, err := r.configurationOf(ctx, a)
	if err != nil {
		return err
	}
	mac := ""
	if a.Status.Address == "" {
		mac = macToClaim(nc, nn, a)
	}
	changed, err := r.allocateAddress(ctx, nn, nc, a, mac, full)
	if err != nil || !changed {
		return err
	}
	if a.Spec.NetworkConfigurationName == "" {
		return nil
	}
	return r.configurations().reconcileConfiguration(ctx, a.Namespace, a.Spec.NetworkConfigurationName, true)
}

// configurationOf returns the NetworkConfiguration of an IPAllocation, which is empty if there
// is none.
func (r allocationReconciler) configurationOf(ctx context.Context, a *v1alpha2.IPAllocation) (*v1alpha1.NetworkConfiguration, error) {
	nc := &v1alpha1.NetworkConfiguration{}
	if a.Spec.NetworkConfigurationName == "" {
		return nc, nil
	}
	err := r.kube.Get(ctx, a.Namespace, a.Spec.NetworkConfigurationName, nc)
	if kube.NotFound(err) {
		return nc, nil
	}
	return nc, err
}

// checkNetwork writes why the network of an IPAllocation cannot give it a static address, and
// reports whether it can. An IPAllocation that has its address keeps it.
func checkNetwork(a *v1alpha2.IPAllocation, nn *v1alpha2.NetworkNamespace, unresolved network.Unresolved) (reconcile.Outcome, bool) {
	if nn == nil {
		return setPending(a, unresolved.Reason, unresolved.Message), false
	}
	if problem := networkplan.CheckStatic(nn); problem != "" {
		return setFailed(a, "NetworkNotStatic", problem), false
	}
	if problem := waitsForNetwork(nn); problem != "" && a.Status.Address == "" {
		return setPending(a, "NetworkNotReady", problem), false
	}
	return reconcile.Outcome{}, true
}

// deleteAllocation releases the addresses and removes the finalizer, unless the
// NetworkConfiguration needs the address. Before another IPAllocation can get the address, the
// NetworkConfiguration no longer shows it, and the IPAllocation is Released.
func (r allocationReconciler) deleteAllocation(ctx context.Context, a *v1alpha2.IPAllocation) error {
	if !slices.Contains(a.Finalizers, v1alpha1.FinalizerStaticIP) {
		return nil
	}
	nn := &v1alpha2.NetworkNamespace{}
	if err := r.kube.Get(ctx, a.Namespace, a.Spec.NetworkNamespaceName, nn); err != nil && !kube.NotFound(err) {
		return err
	}
	address := a.Status.Address
	if address != "" {
		if needed, err := r.withdrawAddress(ctx, nn, a); needed || err != nil {
			return err
		}
		before := a.DeepCopy()
		if _, err := r.writeAllocation(ctx, before, a, setReleased(a, "Released", "address "+address+" is released")); err != nil {
			return err
		}
	}
	if err := r.releaseAddresses(ctx, a, nn); err != nil {
		return err
	}
	before := a.DeepCopy()
	kube.RemoveFinalizer(a, v1alpha1.FinalizerStaticIP)
	if _, err := r.kube.Patch(ctx, before, a); err != nil && !kube.NotFound(err) {
		return err
	}
	events.Report(ctx, string(v1alpha2.IPAllocationReleased), "Released address "+address)
	return r.configurations().reconcileConfiguration(ctx, a.Namespace, a.Spec.NetworkConfigurationName, true)
}

// withdrawAddress removes the address of an IPAllocation that is being deleted from the status
// of its NetworkConfiguration. If the NetworkConfiguration needs it, or a virtual machine has
// it, the address stays, and needed is true.
func (r allocationReconciler) withdrawAddress(ctx context.Context, nn *v1alpha2.NetworkNamespace, a *v1alpha2.IPAllocation) (needed bool, err error) {
	nc := &v1alpha1.NetworkConfiguration{}
	err = r.kube.Get(ctx, a.Namespace, a.Spec.NetworkConfigurationName, nc)
	switch {
	case kube.NotFound(err):
		return false, nil
	case err != nil:
		return false, err
	}
	if needed = needsAddress(nc, nn, a); !needed {
		user, err := network.UserOf(ctx, r.kube, nc, a.Status.Address)
		if err != nil {
			return false, err
		}
		needed = user != ""
	}
	switch {
	case !needed:
		if err = r.configurations().reconcileConfiguration(ctx, a.Namespace, nc.Name, true); errors.Is(err, errReleasing) {
			err = nil
		}
		return false, err
	case waitsForNetwork(nn) != "":
		return true, nil
	}
	_, err = r.allocateAddress(ctx, nn, nc, a, "", true)
	return true, err
}
