package main

import (
	"context"
	"net/netip"
	"strings"
	"time"

	coordinationv1 "k8s.io/api/coordination/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/vitistack/stack/apis/network/ipam"
	"github.com/vitistack/stack/apis/v1alpha1"
	"github.com/vitistack/stack/apis/v1alpha2"
	"github.com/vitistack/stack/functions/internal/coalesce"
	"github.com/vitistack/stack/functions/internal/kube"
)

// Marks on the Lease of an address.
const (
	annotationHolder  = "vitistack.io/holder"
	annotationAddress = "vitistack.io/address"
	managedBy         = "allocate-ip"
)

// leaseStore records which IPAllocation holds which address of a network. Each address with a
// holder has a Lease whose name derives from the address, so that the API server decides
// between two that claim it. An address that was released and must not be allocated yet has a
// Lease without a holder.
type leaseStore struct {
	kube     *kube.Client
	now      func() time.Time
	listings coalesce.Calls[listing]
}

// holder is an IPAllocation as its Leases record it.
type holder struct {
	uid             string
	namespace, name string
	// former are the UIDs under which the IPAllocation had its addresses before it was created again.
	former []string
	// ttl is the number of seconds after which a Lease expires. 0 means never.
	ttl int32
}

func holderOf(a *v1alpha2.IPAllocation, ttl int32) holder {
	return holder{uid: string(a.UID), namespace: a.Namespace, name: a.Name, former: v1alpha1.FormerUIDs(a), ttl: ttl}
}

// errAddressTaken says that an address has another holder, with its name.
type errAddressTaken struct{ by string }

func (e errAddressTaken) Error() string { return "the address is held by " + e.by }

func takenError(lease *coordinationv1.Lease) error {
	if holderUID(lease) == "" {
		return errAddressTaken{by: "its reuse delay (spec.ipAllocation.static.reuseDelaySeconds)"}
	}
	return errAddressTaken{by: "IPAllocation " + lease.Annotations[annotationHolder]}
}

// claimAddress records that h holds the address. It succeeds if h holds it already. Of several
// holders that claim one address, all but one get errAddressTaken.
func (l *leaseStore) claimAddress(ctx context.Context, network string, a netip.Addr, h holder) error {
	lease := l.addressLease(network, a, h)
	existing, err := l.create(ctx, lease)
	switch {
	case err != nil || existing == nil || holderUID(existing) == h.uid:
		return err
	case !l.isReusable(existing) && !h.had(existing):
		return takenError(existing)
	}
	lease.ResourceVersion = existing.ResourceVersion
	return l.kube.Update(ctx, lease)
}

// create creates a Lease, or returns the existing Lease of its name. It returns errRefused if a quota or a policy refuses the Lease.
func (l *leaseStore) create(ctx context.Context, lease *coordinationv1.Lease) (existing *coordinationv1.Lease, err error) {
	err = l.kube.Create(ctx, lease)
	if message, rejected := kube.RejectionMessage(err); rejected {
		return nil, errRefused{message}
	}
	if !kube.AlreadyExists(err) {
		return nil, err
	}
	existing = &coordinationv1.Lease{}
	return existing, l.kube.Get(ctx, lease.Namespace, lease.Name, existing)
}

// checkAddressFree returns errAddressTaken if the address of a Lease has a holder, or must not be
// allocated yet.
func (l *leaseStore) checkAddressFree(ctx context.Context, namespace, name string) error {
	lease := &coordinationv1.Lease{}
	err := l.kube.Get(ctx, namespace, name, lease)
	switch {
	case kube.NotFound(err):
		return nil
	case err != nil || l.isReusable(lease):
		return err
	default:
		return takenError(lease)
	}
}

// releaseAll releases every address that h holds. They are not allocated again before delay is
// over.
func (l *leaseStore) releaseAll(ctx context.Context, h holder, delay time.Duration) error {
	list := &coordinationv1.LeaseList{}
	if err := l.kube.List(ctx, h.namespace, v1alpha1.LabelHolder+"="+h.uid, list); err != nil {
		return err
	}
	for i := range list.Items {
		if err := l.releaseLease(ctx, &list.Items[i], delay); err != nil && !kube.Conflict(err) && !kube.NotFound(err) {
			return err
		}
	}
	return nil
}

// releaseAddress releases one address, if h holds it.
func (l *leaseStore) releaseAddress(ctx context.Context, network string, a netip.Addr, h holder) error {
	return l.release(ctx, leaseName(network, a), h)
}

// release releases the Lease of a name, if h holds it.
func (l *leaseStore) release(ctx context.Context, name string, h holder) error {
	lease := &coordinationv1.Lease{}
	err := l.kube.Get(ctx, h.namespace, name, lease)
	if kube.NotFound(err) || (err == nil && holderUID(lease) != h.uid) {
		return nil
	}
	if err != nil {
		return err
	}
	return l.releaseLease(ctx, lease, 0)
}

func (l *leaseStore) releaseLease(ctx context.Context, lease *coordinationv1.Lease, delay time.Duration) error {
	if _, isMAC := lease.Annotations[annotationMAC]; delay <= 0 || isMAC {
		return l.kube.DeleteExactly(ctx, lease)
	}
	now, seconds := metav1.NewMicroTime(l.now()), int32(delay/time.Second)
	delete(lease.Labels, v1alpha1.LabelHolder)
	delete(lease.Annotations, annotationHolder)
	lease.Spec = coordinationv1.LeaseSpec{RenewTime: &now, LeaseDurationSeconds: &seconds}
	return l.kube.Update(ctx, lease)
}

// deleteUnused deletes the Lease of a name if no object uses its address: its holder does not
// exist, has released it or has another address, or the Lease has no holder and its delay is
// over. It reports whether it has deleted the Lease.
func (l *leaseStore) deleteUnused(ctx context.Context, namespace, name string) (bool, error) {
	lease := &coordinationv1.Lease{}
	err := l.kube.Get(ctx, namespace, name, lease)
	if kube.NotFound(err) || (err == nil && lease.Labels[v1alpha1.LabelManagedBy] != managedBy) {
		return false, nil
	}
	if err != nil {
		return false, err
	}
	if uid := holderUID(lease); uid != "" {
		a := &v1alpha2.IPAllocation{}
		err := l.kube.Get(ctx, namespace, lease.Annotations[annotationHolder], a)
		if err != nil && !kube.NotFound(err) {
			return false, err
		}
		_, isMAC := lease.Annotations[annotationMAC]
		other := !isMAC && a.Status.Address != "" && a.Status.Address != lease.Annotations[annotationAddress]
		holds := string(a.UID) == uid || v1alpha1.HadUID(a, uid)
		if err == nil && holds && !other && a.Status.Phase != v1alpha2.IPAllocationReleased {
			return false, nil
		}
	} else if !l.isReusable(lease) {
		return false, nil
	}
	err = l.kube.DeleteExactly(ctx, lease)
	return err == nil, err
}

// renew restarts the time after which an address expires. It returns errAddressTaken if the
// address has another holder.
func (l *leaseStore) renew(ctx context.Context, network string, a netip.Addr, h holder) error {
	lease := &coordinationv1.Lease{}
	err := l.kube.Get(ctx, h.namespace, leaseName(network, a), lease)
	if kube.NotFound(err) {
		return l.claimAddress(ctx, network, a, h)
	}
	if err != nil {
		return err
	}
	if holderUID(lease) != h.uid && !h.had(lease) {
		return takenError(lease)
	}
	before := lease.DeepCopy()
	h.mark(lease)
	lease.Spec = l.addressLease(network, a, h).Spec
	lease.Spec.AcquireTime = before.Spec.AcquireTime
	_, err = l.kube.Patch(ctx, before, lease)
	return err
}

// listing is what the Leases of a network say, or the error of reading them. Deliveries share
// it, so it must not be changed.
type listing struct {
	// taken has the addresses that cannot be allocated.
	taken map[netip.Addr]bool
	// held has the addresses of holders by their UIDs.
	held map[string]netip.Addr
	err  error
}

// free returns the number of addresses of a pool that can be allocated.
func (seen listing) free(p ipam.Pool) uint64 {
	free := p.Size()
	for a := range seen.taken {
		if p.Contains(a) {
			free--
		}
	}
	return free
}

// listShared reads a network's Leases. Concurrent callers share one request and its result.
func (l *leaseStore) listShared(ctx context.Context, namespace, network string) (listing, error) {
	seen := l.listings.Do(ctx, namespace+"/"+network, func(ctx context.Context) listing {
		return l.list(ctx, namespace, network)
	})
	return seen, seen.err
}

func (l *leaseStore) list(ctx context.Context, namespace, network string) listing {
	list := &coordinationv1.LeaseList{}
	selector := v1alpha2.LabelNetworkNamespace + "=" + kube.LabelValue(network) + "," + v1alpha1.LabelManagedBy + "=" + managedBy
	if err := l.kube.List(ctx, namespace, selector, list); err != nil {
		return listing{err: err}
	}
	seen := listing{taken: make(map[netip.Addr]bool, len(list.Items)), held: make(map[string]netip.Addr, len(list.Items))}
	for i := range list.Items {
		a, err := netip.ParseAddr(list.Items[i].Annotations[annotationAddress])
		if err != nil {
			continue
		}
		if uid := holderUID(&list.Items[i]); uid != "" {
			seen.held[uid] = a
		}
		if !l.isReusable(&list.Items[i]) {
			seen.taken[a] = true
		}
	}
	return seen
}

// isReusable reports whether an address with a Lease may be allocated: the Lease has no
// holder, and its delay is over. A Lease with a holder is never taken over here, however old
// it is, because its holder may only be slow.
func (l *leaseStore) isReusable(lease *coordinationv1.Lease) bool {
	s := lease.Spec
	if holderUID(lease) != "" {
		return false
	}
	return s.RenewTime == nil || s.LeaseDurationSeconds == nil ||
		!l.now().Before(s.RenewTime.Add(time.Duration(*s.LeaseDurationSeconds)*time.Second))
}

func (l *leaseStore) addressLease(network string, a netip.Addr, h holder) *coordinationv1.Lease {
	lease := l.newLease(leaseName(network, a), h)
	lease.Labels[v1alpha2.LabelNetworkNamespace] = kube.LabelValue(network)
	lease.Annotations[annotationAddress] = a.String()
	if h.ttl > 0 {
		lease.Spec.RenewTime, lease.Spec.LeaseDurationSeconds = lease.Spec.AcquireTime, &h.ttl
	}
	return lease
}

// newLease returns a Lease of a name with a holder.
func (l *leaseStore) newLease(name string, h holder) *coordinationv1.Lease {
	now := metav1.NewMicroTime(l.now())
	return &coordinationv1.Lease{
		ObjectMeta: metav1.ObjectMeta{
			Namespace: h.namespace, Name: name,
			Labels:      map[string]string{v1alpha1.LabelManagedBy: managedBy, v1alpha1.LabelHolder: h.uid},
			Annotations: map[string]string{annotationHolder: h.name},
		},
		Spec: coordinationv1.LeaseSpec{HolderIdentity: &h.uid, AcquireTime: &now},
	}
}

func holderUID(lease *coordinationv1.Lease) string {
	if lease.Spec.HolderIdentity == nil {
		return ""
	}
	return *lease.Spec.HolderIdentity
}

// leaseName returns the name of the Lease of an address in a network, the same for every notation.
func leaseName(network string, a netip.Addr) string {
	return kube.Name(network, strings.NewReplacer(".", "-", ":", "-").Replace(a.StringExpanded()))
}
