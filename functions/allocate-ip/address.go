package main

import (
	"context"
	"errors"
	"net/netip"

	"github.com/vitistack/stack/apis/v1alpha1"
	"github.com/vitistack/stack/apis/v1alpha2"
	"github.com/vitistack/stack/functions/internal/kube"
	"github.com/vitistack/stack/functions/internal/reconcile"
)

// allocateAddress allocates or renews the address of an IPAllocation, and writes the result
// into its status. It reports whether the status has changed. An IPAllocation that has waited
// for an address requeues the next. nc is its NetworkConfiguration, and empty if it does not
// exist. mac is the MAC address that no other IPAllocation of the network may have, or empty. If it
// is full, it reads the Lease of an address that stays, and creates a missing one.
func (r allocationReconciler) allocateAddress(ctx context.Context, nn *v1alpha2.NetworkNamespace, nc *v1alpha1.NetworkConfiguration, a *v1alpha2.IPAllocation, mac string, full bool) (bool, error) {
	if err := r.addFinalizer(ctx, a); err != nil {
		return false, err
	}
	before, waited := a.DeepCopy(), isPoolExhausted(a)
	plan, result := planAddress(nn, nc, a, r.now(), full)
	h := holderOf(a, ttlOf(nn))
	taken, refused := r.leases.claimMAC(ctx, nn.Name, mac, h)
	if twin := (errDuplicateMAC{}); a.Status.Address != "" && errors.As(refused, &twin) {
		return false, reconcile.UserError{Reason: reasonDuplicateMAC, Message: twin.Error()} // it keeps its address
	}
	switch {
	case refused != nil:
		plan, result = addressPlan{}, refused
	case result == nil:
		plan.address, result = r.applyPlan(ctx, nn, a, plan, h)
	}
	if result != nil && !isResult(result) {
		return false, result
	}
	changed, err := r.writeAllocation(ctx, before, a, setAllocationResult(a, nn, plan.pool, plan.address, plan.validity, result))
	if plan.address.IsValid() && mayBeReleased(err, taken && !changed) {
		err = errors.Join(err, r.releaseSuperfluous(ctx, nn.Name, plan.address, mac, a, h))
	}
	if err == nil && errors.Is(result, errExpired) {
		err = r.releaseAddresses(ctx, a, nn)
	}
	if err == nil && changed && waited && a.Status.Phase == v1alpha2.IPAllocationAllocated {
		err = r.requeueOldest(ctx, a.Namespace, nn.Name)
	}
	return changed, err
}

// addFinalizer adds the finalizer to an IPAllocation that lacks it.
func (r allocationReconciler) addFinalizer(ctx context.Context, a *v1alpha2.IPAllocation) error {
	before := a.DeepCopy()
	if !kube.AddFinalizer(a, v1alpha1.FinalizerStaticIP) {
		return nil
	}
	_, err := r.kube.Patch(ctx, before, a)
	return err
}

// applyPlan claims or renews the Lease of the planned address, and returns the address.
func (r allocationReconciler) applyPlan(ctx context.Context, nn *v1alpha2.NetworkNamespace, a *v1alpha2.IPAllocation, plan addressPlan, h holder) (netip.Addr, error) {
	switch plan.action {
	case actionAdopt:
		return plan.address, r.leases.adopt(ctx, nn.Name, plan.address, h)
	case actionRenew:
		return plan.address, r.leases.renew(ctx, nn.Name, plan.address, h)
	case actionClaim:
		return plan.address, r.leases.claimAddress(ctx, nn.Name, plan.address, h)
	case actionSelect:
		return r.claimFromPool(ctx, nn, plan.pool, a, h)
	default:
		return plan.address, nil
	}
}

// mayBeReleased reports whether another delivery may have released what this one has just
// claimed: the IPAllocation has changed or was deleted, or nothing was written that would have
// shown so.
func mayBeReleased(err error, unwritten bool) bool {
	return kube.Conflict(err) || kube.NotFound(err) || unwritten
}

// releaseAddresses releases the addresses of an IPAllocation, and requeues the one that has
// waited longest. If the network delays the reuse of addresses, resync does that later.
func (r allocationReconciler) releaseAddresses(ctx context.Context, a *v1alpha2.IPAllocation, nn *v1alpha2.NetworkNamespace) error {
	delay := reuseDelay(nn)
	if err := r.leases.releaseAll(ctx, holderOf(a, 0), delay); err != nil || delay > 0 {
		return err
	}
	return r.requeueOldest(ctx, a.Namespace, a.Spec.NetworkNamespaceName)
}

// releaseSuperfluous releases an address and a MAC address that another delivery for the same
// IPAllocation has made superfluous, by claiming a different address, or by releasing the
// IPAllocation.
func (r allocationReconciler) releaseSuperfluous(ctx context.Context, network string, address netip.Addr, mac string, a *v1alpha2.IPAllocation, h holder) error {
	now := &v1alpha2.IPAllocation{}
	err := r.kube.Get(ctx, a.Namespace, a.Name, now)
	if err != nil && !kube.NotFound(err) {
		return err
	}
	undecided := now.Status.Address == "" && now.DeletionTimestamp == nil
	if err == nil && string(now.UID) == h.uid && (undecided || now.Status.Address == address.String()) {
		return nil
	}
	if err := r.leases.releaseAddress(ctx, network, address, h); err != nil {
		return err
	}
	if gone := err != nil || string(now.UID) != h.uid || now.DeletionTimestamp != nil; gone && mac != "" {
		if err := r.leases.releaseMAC(ctx, network, mac, h); err != nil {
			return err
		}
	}
	return r.requeueOldest(ctx, a.Namespace, network)
}

// writeAllocation writes the status if it differs, which it reports, and records an Event. The
// Event of an address for a NetworkConfiguration is recorded on the NetworkConfiguration.
func (r allocationReconciler) writeAllocation(ctx context.Context, before, a *v1alpha2.IPAllocation, outcome reconcile.Outcome) (bool, error) {
	if a.Spec.NetworkConfigurationName != "" && outcome.Reason == reasonAllocated {
		outcome.Changed = false
	}
	return reconcile.PatchStatus(ctx, r.kube, before, a, string(a.Status.Phase), outcome)
}
