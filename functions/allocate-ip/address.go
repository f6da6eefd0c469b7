package main

import (
	"context"
	"errors"
	"net/netip"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/vitistack/stack/apis/v1alpha1"
	"github.com/vitistack/stack/apis/v1alpha2"
	"github.com/vitistack/stack/functions/internal/ipam"
	"github.com/vitistack/stack/functions/internal/kube"
	"github.com/vitistack/stack/functions/internal/network"
	"github.com/vitistack/stack/functions/internal/reconcile"
)

// allocateAddress allocates or renews the address of an IPAllocation, and writes the result
// into its status. It reports whether the status has changed. An IPAllocation that has waited
// for an address requeues the next. mac is the MAC address that no other IPAllocation of the
// network may have, or empty.
func (f *function) allocateAddress(ctx context.Context, nn *v1alpha2.NetworkNamespace, a *v1alpha2.IPAllocation, mac string) (bool, error) {
	before, waited := a.DeepCopy(), isPoolExhausted(a)
	if kube.AddFinalizer(a, v1alpha1.FinalizerStaticIP) {
		if _, err := f.kube.Patch(ctx, before, a); err != nil {
			return false, err
		}
		before = a.DeepCopy()
	}
	p, invalid := ipam.New(nn, familyOf(a, nn))
	h := holderOf(a, ttlOf(nn))
	var address netip.Addr
	var until validity
	taken, verdict := f.leases.claimMAC(ctx, nn.Name, mac, h)
	if twin := (errDuplicateMAC{}); a.Status.Address != "" && errors.As(verdict, &twin) {
		return false, reconcile.UserError{Reason: reasonDuplicateMAC, Message: twin.Error()} // it keeps its address
	}
	if verdict == nil {
		address, until, verdict = f.obtainAddress(ctx, nn, p, invalid, a, h)
	}
	if verdict != nil && !isResult(verdict) {
		return false, verdict
	}
	changed, err := f.writeAllocation(ctx, before, a, setAllocationResult(a, nn, p, address, until, verdict))
	if address.IsValid() && mayBeReleased(err, taken && !changed) {
		err = errors.Join(err, f.releaseSuperfluous(ctx, nn.Name, address, mac, a, h))
	}
	if err == nil && errors.Is(verdict, errExpired) {
		err = f.releaseAddresses(ctx, a, nn)
	}
	if err == nil && changed && waited && a.Status.Phase == v1alpha2.IPAllocationAllocated {
		err = f.requeueOldest(ctx, a.Namespace, nn.Name)
	}
	return changed, err
}

// mayBeReleased reports whether another delivery may have released what this one has just
// claimed: the IPAllocation has changed or was deleted, or nothing was written that would have
// shown so.
func mayBeReleased(err error, unwritten bool) bool {
	return kube.Conflict(err) || kube.NotFound(err) || unwritten
}

// obtainAddress returns the address that an IPAllocation has, whatever its pool has become, or
// a new one, and how long it is valid.
func (f *function) obtainAddress(ctx context.Context, nn *v1alpha2.NetworkNamespace, p ipam.Pool, invalid error, a *v1alpha2.IPAllocation, h holder) (netip.Addr, validity, error) {
	if a.Status.Phase == v1alpha2.IPAllocationReleased {
		return netip.Addr{}, validity{}, errExpired
	}
	if have, err := netip.ParseAddr(a.Status.Address); err == nil {
		until, err := f.renewAddress(ctx, nn.Name, have, a, h)
		return have, until, err
	}
	if closed := network.CheckOpen(nn); closed != "" {
		return netip.Addr{}, validity{}, errNetworkClosed{closed}
	}
	if invalid != nil {
		return netip.Addr{}, validity{}, errInvalidPool{invalid}
	}
	if a.Spec.RequestedAddress == "" {
		got, err := f.selectAddress(ctx, nn, p, a, h)
		return got, f.validityFor(h.ttl), err
	}
	requested, err := netip.ParseAddr(a.Spec.RequestedAddress)
	if err != nil || !p.Contains(requested) {
		return netip.Addr{}, validity{}, errOutsidePool{a.Spec.RequestedAddress}
	}
	return requested, f.validityFor(h.ttl), f.leases.claimAddress(ctx, nn.Name, requested, h)
}

// renewAddress renews an address that expires while its NetworkConfiguration exists, and
// releases it once that has been gone for longer than its validity.
func (f *function) renewAddress(ctx context.Context, network string, have netip.Addr, a *v1alpha2.IPAllocation, h holder) (validity, error) {
	if h.ttl > 0 && a.Status.ExpiresAt != nil && !f.isRenewalDue(a) {
		return validity{expires: a.Status.ExpiresAt, check: a.Status.NextCheckTime}, nil
	}
	if h.ttl == 0 && a.Status.ExpiresAt == nil {
		return validity{}, nil
	}
	if a.Spec.NetworkConfigurationName != "" {
		err := f.kube.Get(ctx, a.Namespace, a.Spec.NetworkConfigurationName, &v1alpha1.NetworkConfiguration{})
		if err != nil && !kube.NotFound(err) {
			return validity{}, err
		}
		if err != nil && a.Status.ExpiresAt != nil {
			return f.checkExpiry(a)
		}
	}
	return f.validityFor(h.ttl), f.leases.renew(ctx, network, have, h)
}

// checkExpiry returns errExpired if the time of an address is over and no NetworkConfiguration
// needs it.
func (f *function) checkExpiry(a *v1alpha2.IPAllocation) (validity, error) {
	if f.now().Before(a.Status.ExpiresAt.Time) {
		return validity{expires: a.Status.ExpiresAt, check: a.Status.ExpiresAt}, nil
	}
	return validity{}, errExpired
}

// releaseAddresses releases the addresses of an IPAllocation, and requeues the one that has
// waited longest. If the network delays the reuse of addresses, resync does that later.
func (f *function) releaseAddresses(ctx context.Context, a *v1alpha2.IPAllocation, nn *v1alpha2.NetworkNamespace) error {
	delay := reuseDelay(nn)
	if err := f.leases.releaseAll(ctx, holderOf(a, 0), delay); err != nil || delay > 0 {
		return err
	}
	return f.requeueOldest(ctx, a.Namespace, a.Spec.NetworkNamespaceName)
}

// releaseSuperfluous releases an address and a MAC address that another delivery for the same
// IPAllocation has made superfluous, by claiming a different address, or by releasing the
// IPAllocation.
func (f *function) releaseSuperfluous(ctx context.Context, network string, address netip.Addr, mac string, a *v1alpha2.IPAllocation, h holder) error {
	now := &v1alpha2.IPAllocation{}
	err := f.kube.Get(ctx, a.Namespace, a.Name, now)
	if err != nil && !kube.NotFound(err) {
		return err
	}
	undecided := now.Status.Address == "" && now.DeletionTimestamp == nil
	if err == nil && string(now.UID) == h.uid && (undecided || now.Status.Address == address.String()) {
		return nil
	}
	if err := f.leases.releaseAddress(ctx, network, address, h); err != nil {
		return err
	}
	if gone := err != nil || string(now.UID) != h.uid || now.DeletionTimestamp != nil; gone && mac != "" {
		if err := f.leases.releaseMAC(ctx, network, mac, h); err != nil {
			return err
		}
	}
	return f.requeueOldest(ctx, a.Namespace, network)
}

// writeAllocation writes the status if it differs, which it reports, and records an Event. The
// Event of an address for a NetworkConfiguration is recorded on the NetworkConfiguration.
func (f *function) writeAllocation(ctx context.Context, before, a *v1alpha2.IPAllocation, outcome reconcile.Outcome) (bool, error) {
	if a.Spec.NetworkConfigurationName != "" && outcome.Reason == reasonAllocated {
		outcome.Changed = false
	}
	return reconcile.PatchStatus(ctx, f.kube, before, a, string(a.Status.Phase), outcome)
}

// isRenewalDue reports whether the address of an IPAllocation is due for renewal.
func (f *function) isRenewalDue(a *v1alpha2.IPAllocation) bool {
	return a.Status.NextCheckTime != nil && !f.now().Before(a.Status.NextCheckTime.Time)
}

// validity says when an address expires and when it is renewed. It is empty if addresses do
// not expire.
type validity struct{ expires, check *metav1.Time }

// validityFor returns the validity of an address that is claimed or renewed now. It is renewed
// after half of ttl, which is in seconds.
func (f *function) validityFor(ttl int32) validity {
	if ttl == 0 {
		return validity{}
	}
	whole := time.Duration(ttl) * time.Second
	expires := metav1.NewTime(f.now().Add(whole).Truncate(time.Second))
	check := metav1.NewTime(expires.Add(-whole / 2))
	return validity{expires: &expires, check: &check}
}
