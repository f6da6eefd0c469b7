package main

import (
	"context"
	"errors"
	"fmt"
	"net/netip"
	"slices"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/vitistack/stack/apis/v1alpha1"
	"github.com/vitistack/stack/apis/v1alpha2"
	"github.com/vitistack/stack/events"
	"github.com/vitistack/stack/functions/internal/kube"
	"github.com/vitistack/stack/functions/internal/network"
	"github.com/vitistack/stack/functions/internal/pool"
)

// settleAllocation brings one IPAllocation a step further, and with it the
// NetworkConfiguration that waits for it. Unless resync is why, it leaves one alone for
// which there is nothing to do.
func (f *function) settleAllocation(ctx context.Context, namespace, name, why string) error {
	a := &v1alpha2.IPAllocation{}
	if err := f.kube.Get(ctx, namespace, name, a); err != nil {
		if kube.NotFound(err) {
			return nil
		}
		return err
	}
	switch {
	case why != events.TypeResync && f.leaves(a, why):
		return nil
	case a.DeletionTimestamp != nil:
		return f.releaseAllocation(ctx, a)
	default:
		return f.serve(ctx, a)
	}
}

// leaves tells whether there is nothing to do for an allocation: it has its address,
// or none to give back, or it has just been made for a NetworkConfiguration, by whoever
// is going to give it its address.
func (f *function) leaves(a *v1alpha2.IPAllocation, why string) bool {
	switch {
	case a.DeletionTimestamp != nil:
		return !slices.Contains(a.Finalizers, v1alpha1.FinalizerStaticIP)
	case a.Status.Phase == v1alpha2.IPAllocationAllocated && !f.due(a) && !kube.AskedFor(a):
		return true
	default:
		return events.IsAdd(why) && a.Spec.NetworkConfigurationName != ""
	}
}

// serve gives an allocation that needs one its address, and tells the
// NetworkConfiguration that waits for that.
func (f *function) serve(ctx context.Context, a *v1alpha2.IPAllocation) error {
	nn, err := network.Find(ctx, f.kube, a.Namespace, a.Spec.NetworkNamespaceName)
	var unresolved network.Unresolved
	if err != nil && !errors.As(err, &unresolved) {
		return err
	}
	before := a.DeepCopy()
	if told, ok := gate(a, nn, unresolved); !ok {
		_, err := f.writeAllocation(ctx, before, a, told)
		return err
	}
	nc, err := f.configurationOf(ctx, a)
	if err != nil {
		return err
	}
	mac := ""
	if a.Status.Address == "" {
		mac = claimed(nc, nn, a)
	}
	changed, err := f.allocate(ctx, nn, a, mac)
	if err != nil || !changed {
		return err
	}
	if a.Spec.NetworkConfigurationName == "" {
		return nil
	}
	return f.settleConfiguration(ctx, a.Namespace, a.Spec.NetworkConfigurationName, true)
}

// configurationOf returns the NetworkConfiguration that an allocation is for, which is
// empty where there is none.
func (f *function) configurationOf(ctx context.Context, a *v1alpha2.IPAllocation) (*v1alpha1.NetworkConfiguration, error) {
	nc := &v1alpha1.NetworkConfiguration{}
	if a.Spec.NetworkConfigurationName == "" {
		return nc, nil
	}
	err := f.kube.Get(ctx, a.Namespace, a.Spec.NetworkConfigurationName, nc)
	if kube.NotFound(err) {
		return nc, nil
	}
	return nc, err
}

// gate keeps an allocation waiting, or refuses it, for as long as its network
// cannot give it a static address. One that has its address keeps it.
func gate(a *v1alpha2.IPAllocation, nn *v1alpha2.NetworkNamespace, unresolved network.Unresolved) (story, bool) {
	if nn == nil {
		return pending(a, unresolved.Reason, unresolved.Message), false
	}
	if ours, _ := servesStatic(nn, ""); !ours {
		return failed(a, "NetworkNotStatic", fmt.Sprintf(
			"NetworkNamespace %s gives addresses out by dhcp: name one whose ipAllocation.type is static", nn.Name)), false
	}
	if problem := notReady(nn); problem != "" && a.Status.Address == "" {
		return pending(a, "NetworkNotReady", problem), false
	}
	return story{}, true
}

// allocate gives an IPAllocation its address, or renews it, and writes what came
// of it into its status. It reports whether the status has changed. One that has
// waited for an address to become free wakes the next that does. mac is the MAC address
// that the allocation has to have to itself in the network, and empty for none.
func (f *function) allocate(ctx context.Context, nn *v1alpha2.NetworkNamespace, a *v1alpha2.IPAllocation, mac string) (bool, error) {
	before, waited := a.DeepCopy(), exhausted(a)
	if kube.AddFinalizer(a, v1alpha1.FinalizerStaticIP) {
		if _, err := f.kube.Patch(ctx, before, a); err != nil {
			return false, err
		}
		before = a.DeepCopy()
	}
	p, invalid := pool.New(nn, familyOf(a, nn))
	h := holderOf(a, ttlOf(nn))
	var address netip.Addr
	var until term
	taken, verdict := f.ledger.takeMAC(ctx, nn.Name, mac, h)
	if twin := (errTwin{}); a.Status.Address != "" && errors.As(verdict, &twin) {
		return false, errRefused{reasonTwin, twin.Error()} // it keeps its address
	}
	if verdict == nil {
		address, until, verdict = f.addressFor(ctx, nn, p, invalid, a, h)
	}
	if verdict != nil && !isVerdict(verdict) {
		return false, verdict
	}
	changed, err := f.writeAllocation(ctx, before, a, conclude(a, nn, p, address, until, verdict))
	if address.IsValid() && mayBeSuperfluous(err, taken && !changed) {
		err = errors.Join(err, f.giveUp(ctx, nn.Name, address, mac, a, h))
	}
	if err == nil && errors.Is(verdict, errLapsed) {
		err = f.free(ctx, a, nn)
	}
	if err == nil && changed && waited && a.Status.Phase == v1alpha2.IPAllocationAllocated {
		err = f.wakeOldest(ctx, a.Namespace, nn.Name)
	}
	return changed, err
}

// mayBeSuperfluous tells whether another delivery may have released what this one has just
// taken: the allocation has changed or gone meanwhile, or nothing was written to it that
// would have shown so.
func mayBeSuperfluous(err error, unwritten bool) bool {
	return kube.Conflict(err) || kube.NotFound(err) || unwritten
}

// addressFor is the address that an allocation has, whatever has become of its
// pool, or gets, and for how long.
func (f *function) addressFor(ctx context.Context, nn *v1alpha2.NetworkNamespace, p pool.Pool, invalid error, a *v1alpha2.IPAllocation, h holder) (netip.Addr, term, error) {
	if a.Status.Phase == v1alpha2.IPAllocationReleased {
		return netip.Addr{}, term{}, errLapsed
	}
	if have, err := netip.ParseAddr(a.Status.Address); err == nil {
		until, err := f.keep(ctx, nn.Name, have, a, h)
		return have, until, err
	}
	if closed := network.Closed(nn); closed != "" {
		return netip.Addr{}, term{}, errClosed{closed}
	}
	if invalid != nil {
		return netip.Addr{}, term{}, errInvalidPool{invalid}
	}
	if a.Spec.RequestedAddress == "" {
		got, err := f.choose(ctx, nn, p, a, h)
		return got, f.termFor(h.ttl), err
	}
	requested, err := netip.ParseAddr(a.Spec.RequestedAddress)
	if err != nil || !p.Contains(requested) {
		return netip.Addr{}, term{}, errOutside{a.Spec.RequestedAddress}
	}
	return requested, f.termFor(h.ttl), f.ledger.take(ctx, nn.Name, requested, h)
}

// keep renews an address that lapses, for as long as its NetworkConfiguration is
// there, and lets it go once that has been gone for longer.
func (f *function) keep(ctx context.Context, network string, have netip.Addr, a *v1alpha2.IPAllocation, h holder) (term, error) {
	if h.ttl > 0 && a.Status.ExpiresAt != nil && !f.due(a) {
		return term{expires: a.Status.ExpiresAt, check: a.Status.NextCheckTime}, nil
	}
	if h.ttl == 0 && a.Status.ExpiresAt == nil {
		return term{}, nil
	}
	if a.Spec.NetworkConfigurationName != "" {
		err := f.kube.Get(ctx, a.Namespace, a.Spec.NetworkConfigurationName, &v1alpha1.NetworkConfiguration{})
		if err != nil && !kube.NotFound(err) {
			return term{}, err
		}
		if err != nil && a.Status.ExpiresAt != nil {
			return f.lapse(a)
		}
	}
	return f.termFor(h.ttl), f.ledger.renew(ctx, network, have, h)
}

// lapse is errLapsed once the time of an address is over that nobody needs any
// more.
func (f *function) lapse(a *v1alpha2.IPAllocation) (term, error) {
	if f.now().Before(a.Status.ExpiresAt.Time) {
		return term{expires: a.Status.ExpiresAt, check: a.Status.ExpiresAt}, nil
	}
	return term{}, errLapsed
}

// free gives the addresses of an allocation back, and wakes who waits for one. After a
// delay it is resync that does.
func (f *function) free(ctx context.Context, a *v1alpha2.IPAllocation, nn *v1alpha2.NetworkNamespace) error {
	delay := reuseDelay(nn)
	if err := f.ledger.releaseAll(ctx, holderOf(a, 0), delay); err != nil || delay > 0 {
		return err
	}
	return f.wakeOldest(ctx, a.Namespace, a.Spec.NetworkNamespaceName)
}

// giveUp releases an address and a MAC address that another delivery for the same
// allocation made superfluous, by settling on a different address, or by releasing the
// allocation.
func (f *function) giveUp(ctx context.Context, network string, address netip.Addr, mac string, a *v1alpha2.IPAllocation, h holder) error {
	now := &v1alpha2.IPAllocation{}
	err := f.kube.Get(ctx, a.Namespace, a.Name, now)
	if err != nil && !kube.NotFound(err) {
		return err
	}
	undecided := now.Status.Address == "" && now.DeletionTimestamp == nil
	if err == nil && string(now.UID) == h.uid && (undecided || now.Status.Address == address.String()) {
		return nil
	}
	if err := f.ledger.release(ctx, network, address, h); err != nil {
		return err
	}
	if gone := err != nil || string(now.UID) != h.uid || now.DeletionTimestamp != nil; gone && mac != "" {
		if err := f.ledger.releaseMAC(ctx, network, mac, h); err != nil {
			return err
		}
	}
	return f.wakeOldest(ctx, a.Namespace, network)
}

// releaseAllocation gives the addresses back and lets the object go, unless its
// NetworkConfiguration needs it. That does not show the address any more then, and the
// allocation says that it is released, before anybody else is given it.
func (f *function) releaseAllocation(ctx context.Context, a *v1alpha2.IPAllocation) error {
	if !slices.Contains(a.Finalizers, v1alpha1.FinalizerStaticIP) {
		return nil
	}
	nn := &v1alpha2.NetworkNamespace{}
	if err := f.kube.Get(ctx, a.Namespace, a.Spec.NetworkNamespaceName, nn); err != nil && !kube.NotFound(err) {
		return err
	}
	address := a.Status.Address
	if address != "" {
		if needed, err := f.part(ctx, nn, a); needed || err != nil {
			return err
		}
		before := a.DeepCopy()
		if _, err := f.writeAllocation(ctx, before, a, released(a, "Released", "address "+address+" is given back")); err != nil {
			return err
		}
	}
	if err := f.free(ctx, a, nn); err != nil {
		return err
	}
	before := a.DeepCopy()
	kube.RemoveFinalizer(a, v1alpha1.FinalizerStaticIP)
	if _, err := f.kube.Patch(ctx, before, a); err != nil && !kube.NotFound(err) {
		return err
	}
	events.Report(ctx, string(v1alpha2.IPAllocationReleased), "Gave back its address "+address)
	return f.settleConfiguration(ctx, a.Namespace, a.Spec.NetworkConfigurationName, true)
}

// part takes the address of an allocation that is being deleted out of the status of
// its NetworkConfiguration. Where that needs it, or a virtual machine has it, it reports
// so, and the address is kept like any other.
func (f *function) part(ctx context.Context, nn *v1alpha2.NetworkNamespace, a *v1alpha2.IPAllocation) (needed bool, err error) {
	nc := &v1alpha1.NetworkConfiguration{}
	err = f.kube.Get(ctx, a.Namespace, a.Spec.NetworkConfigurationName, nc)
	switch {
	case kube.NotFound(err):
		return false, nil
	case err != nil:
		return false, err
	}
	if needed = needs(nc, nn, a); !needed {
		user, err := network.UserOf(ctx, f.kube, nc, a.Status.Address)
		if err != nil {
			return false, err
		}
		needed = user != ""
	}
	switch {
	case !needed:
		if err = f.settleConfiguration(ctx, a.Namespace, nc.Name, true); errors.Is(err, errGoing) {
			err = nil
		}
		return false, err
	case notReady(nn) != "":
		return true, nil
	}
	_, err = f.allocate(ctx, nn, a, "")
	return true, err
}

// writeAllocation patches the status if it has changed, which it reports, and
// tells people if the reason has. That one has its address which a NetworkConfiguration
// needs is told on that.
func (f *function) writeAllocation(ctx context.Context, before, a *v1alpha2.IPAllocation, told story) (bool, error) {
	changed, err := f.kube.PatchStatus(ctx, before, a)
	if err != nil {
		return false, err
	}
	elsewhere := a.Spec.NetworkConfigurationName != "" && told.reason == reasonAllocated
	if told.news && !elsewhere {
		f.kube.Tell(ctx, a, told.warning, told.reason, told.message)
	}
	events.Report(ctx, string(a.Status.Phase), told.message)
	return changed, nil
}

// due tells whether it is time to renew the address of an allocation.
func (f *function) due(a *v1alpha2.IPAllocation) bool {
	return a.Status.NextCheckTime != nil && !f.now().Before(a.Status.NextCheckTime.Time)
}

// term is for how long an address is given: until when, and when to renew it. It
// is empty where addresses don't lapse.
type term struct{ expires, check *metav1.Time }

// termFor is the term of an address that is taken or renewed now. It is renewed
// half way through.
func (f *function) termFor(ttl int32) term {
	if ttl == 0 {
		return term{}
	}
	whole := time.Duration(ttl) * time.Second
	expires := metav1.NewTime(f.now().Add(whole).Truncate(time.Second))
	check := metav1.NewTime(expires.Add(-whole / 2))
	return term{expires: &expires, check: &check}
}
