package main

import (
	"net/netip"
	"slices"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/vitistack/stack/apis/network/ipam"
	networkplan "github.com/vitistack/stack/apis/network/plan"
	"github.com/vitistack/stack/apis/v1alpha1"
	"github.com/vitistack/stack/apis/v1alpha2"
)

// addressAction is what a delivery does for the address of an IPAllocation.
type addressAction string

const (
	// actionKeep sends no request: the address is valid, and not due for renewal.
	actionKeep addressAction = "Keep"
	// actionAdopt keeps the address, whose Lease may have a former UID of the IPAllocation, another holder, or be lost.
	actionAdopt addressAction = "Adopt"
	// actionRenew restarts the validity of the address.
	actionRenew addressAction = "Renew"
	// actionClaim claims the address that the IPAllocation requests.
	actionClaim addressAction = "Claim"
	// actionSelect claims any free address of the pool.
	actionSelect addressAction = "Select"
)

// addressPlan says which address a delivery keeps, renews or claims, and how long it is valid
// then. The address of actionSelect is not known yet.
type addressPlan struct {
	action   addressAction
	address  netip.Addr
	validity validity
	// pool is the pool of the network for the family. It contains no address if it is invalid.
	pool ipam.Pool
}

// planAddress decides what to do for the address of an IPAllocation whose NetworkConfiguration
// is nc, or does not exist if nc is empty. An IPAllocation that has an address keeps it,
// whatever its pool has become, until it expires. If the delivery is full, the Lease of a kept address is read. The error
// is a result by isResult: there is nothing to claim.
func planAddress(nn *v1alpha2.NetworkNamespace, nc *v1alpha1.NetworkConfiguration, a *v1alpha2.IPAllocation, now time.Time, full bool) (addressPlan, error) {
	family := ipam.FamilyOf(a, nn)
	p, invalid := ipam.New(nn, family)
	whole := validityFrom(now, ttlOf(nn))
	if a.Status.Phase == v1alpha2.IPAllocationReleased {
		return addressPlan{}, errExpired
	}
	if have, err := netip.ParseAddr(a.Status.Address); err == nil {
		keep := actionKeep
		if full || len(v1alpha1.FormerUIDs(a)) > 0 || a.Status.Phase == v1alpha2.IPAllocationError {
			keep = actionAdopt
		}
		return planRenewal(keep, addressPlan{actionRenew, have, whole, p}, nc, a, now)
	}
	if closed := networkplan.CheckOpen(nn); closed != "" {
		return addressPlan{}, errNetworkClosed{closed}
	}
	if !slices.Contains(families(nn), family) {
		return addressPlan{}, errNotServed{family, nn.Name}
	}
	if invalid != nil {
		return addressPlan{}, errInvalidPool{invalid}
	}
	if a.Spec.RequestedAddress == "" {
		return addressPlan{action: actionSelect, validity: whole, pool: p}, nil
	}
	requested, err := p.Requested(a.Spec.RequestedAddress)
	if err != nil {
		return addressPlan{}, err
	}
	return addressPlan{actionClaim, requested, whole, p}, nil
}

// planRenewal keeps an address that is not due for renewal, by an action, and renews one that is, while its
// NetworkConfiguration exists. Without the NetworkConfiguration the address is valid for the
// rest of its time, and errExpired after that.
func planRenewal(by addressAction, renewal addressPlan, nc *v1alpha1.NetworkConfiguration, a *v1alpha2.IPAllocation, now time.Time) (addressPlan, error) {
	expires, temporary := a.Status.ExpiresAt, renewal.validity.expires != nil
	keep := addressPlan{action: by, address: renewal.address, pool: renewal.pool}
	switch {
	case expires == nil && !temporary:
		return keep, nil
	case expires != nil && temporary && !isRenewalDue(a, now):
		keep.validity = validity{expires: expires, check: a.Status.NextCheckTime}
		return keep, nil
	case expires == nil || a.Spec.NetworkConfigurationName == "" || nc.Name != "":
		return renewal, nil
	case now.Before(expires.Time):
		keep.validity = validity{expires: expires, check: expires}
		return keep, nil
	default:
		return addressPlan{}, errExpired
	}
}

// isRenewalDue reports whether the address of an IPAllocation is due for renewal.
func isRenewalDue(a *v1alpha2.IPAllocation, now time.Time) bool {
	return a.Status.NextCheckTime != nil && !now.Before(a.Status.NextCheckTime.Time)
}

// validity says when an address expires and when it is renewed. It is empty if addresses do
// not expire.
type validity struct{ expires, check *metav1.Time }

// validityFrom returns the validity of an address that is claimed or renewed now. It is renewed
// after half of ttl, which is in seconds.
func validityFrom(now time.Time, ttl int32) validity {
	if ttl == 0 {
		return validity{}
	}
	whole := time.Duration(ttl) * time.Second
	expires := metav1.NewTime(now.Add(whole).Truncate(time.Second))
	check := metav1.NewTime(expires.Add(-whole / 2))
	return validity{expires: &expires, check: &check}
}
