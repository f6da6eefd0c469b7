package main

import (
	"context"
	"net/netip"
	"strings"
	"time"

	coordinationv1 "k8s.io/api/coordination/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/vitistack/stack/apis/v1alpha1"
	"github.com/vitistack/stack/apis/v1alpha2"
	"github.com/vitistack/stack/functions/internal/kube"
	"github.com/vitistack/stack/functions/internal/merge"
	"github.com/vitistack/stack/functions/internal/pool"
)

// Marks on the Lease of an address.
const (
	labelHolder       = "vitistack.io/holder"
	annotationHolder  = "vitistack.io/holder"
	annotationAddress = "vitistack.io/address"
	managedBy         = "allocate-ip"
)

// ledger records who holds which address of a network. There is one Lease for
// each address that has a holder; the Lease's name says which, so that the API
// server lets one of two writers win. An address that was given back but must not
// be given out again yet has a Lease without a holder.
type ledger struct {
	kube     *kube.Client
	now      func() time.Time
	listings merge.Calls[listing]
}

// holder is an IPAllocation, as the ledger knows it.
type holder struct {
	uid             string
	namespace, name string
	// ttl is after how many seconds a Lease lapses, 0 meaning never.
	ttl int32
}

func holderOf(a *v1alpha2.IPAllocation, ttl int32) holder {
	return holder{uid: string(a.UID), namespace: a.Namespace, name: a.Name, ttl: ttl}
}

// errTaken says that an address has another holder, by whose name it is.
type errTaken struct{ by string }

func (e errTaken) Error() string { return "the address is held by " + e.by }

func takenBy(lease *coordinationv1.Lease) error {
	if holderUID(lease) == "" {
		return errTaken{by: "nobody, but kept back for reuseDelaySeconds"}
	}
	return errTaken{by: "IPAllocation " + lease.Annotations[annotationHolder]}
}

// take records that h holds the address. It is no error if h holds it already.
// Of any number of holders that ask for one address, all but one get errTaken.
func (l *ledger) take(ctx context.Context, network string, a netip.Addr, h holder) error {
	lease := l.lease(network, a, h)
	err := l.kube.Create(ctx, lease)
	if !kube.AlreadyExists(err) {
		return err
	}
	old := &coordinationv1.Lease{}
	if err := l.kube.Get(ctx, h.namespace, lease.Name, old); err != nil {
		return err
	}
	switch {
	case holderUID(old) == h.uid:
		return nil
	case !l.reusable(old):
		return takenBy(old)
	}
	lease.ResourceVersion = old.ResourceVersion
	return l.kube.Update(ctx, lease)
}

// vacant is errTaken where the address of a Lease has a holder, or must not be given
// out yet.
func (l *ledger) vacant(ctx context.Context, namespace, name string) error {
	lease := &coordinationv1.Lease{}
	err := l.kube.Get(ctx, namespace, name, lease)
	switch {
	case kube.NotFound(err):
		return nil
	case err != nil || l.reusable(lease):
		return err
	default:
		return takenBy(lease)
	}
}

// releaseAll gives back every address that h holds. For delay they are not given
// out again.
func (l *ledger) releaseAll(ctx context.Context, h holder, delay time.Duration) error {
	list := &coordinationv1.LeaseList{}
	if err := l.kube.List(ctx, h.namespace, labelHolder+"="+h.uid, list); err != nil {
		return err
	}
	for i := range list.Items {
		if err := l.giveBack(ctx, &list.Items[i], delay); err != nil && !kube.Conflict(err) && !kube.NotFound(err) {
			return err
		}
	}
	return nil
}

// release gives one address back, if h holds it.
func (l *ledger) release(ctx context.Context, network string, a netip.Addr, h holder) error {
	lease := &coordinationv1.Lease{}
	err := l.kube.Get(ctx, h.namespace, leaseName(network, a), lease)
	if kube.NotFound(err) || (err == nil && holderUID(lease) != h.uid) {
		return nil
	}
	if err != nil {
		return err
	}
	return l.giveBack(ctx, lease, 0)
}

func (l *ledger) giveBack(ctx context.Context, lease *coordinationv1.Lease, delay time.Duration) error {
	if _, isMAC := lease.Annotations[annotationMAC]; delay <= 0 || isMAC {
		return l.kube.DeleteExactly(ctx, lease)
	}
	now, seconds := metav1.NewMicroTime(l.now()), int32(delay/time.Second)
	delete(lease.Labels, labelHolder)
	delete(lease.Annotations, annotationHolder)
	lease.Spec = coordinationv1.LeaseSpec{RenewTime: &now, LeaseDurationSeconds: &seconds}
	return l.kube.Update(ctx, lease)
}

// sweep deletes the Lease of a name if it keeps an address from being given out
// for nobody: its holder is gone, has released it or settled on another address, or
// it has no holder and its delay is over. It reports whether it has.
func (l *ledger) sweep(ctx context.Context, namespace, name string) (bool, error) {
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
		if err == nil && string(a.UID) == uid && !other && a.Status.Phase != v1alpha2.IPAllocationReleased {
			return false, nil
		}
	} else if !l.reusable(lease) {
		return false, nil
	}
	err = l.kube.DeleteExactly(ctx, lease)
	return err == nil, err
}

// renew starts the time again after which the address lapses. It returns errTaken
// where the address has another holder by now.
func (l *ledger) renew(ctx context.Context, network string, a netip.Addr, h holder) error {
	lease := &coordinationv1.Lease{}
	err := l.kube.Get(ctx, h.namespace, leaseName(network, a), lease)
	if kube.NotFound(err) {
		return l.take(ctx, network, a, h)
	}
	if err != nil {
		return err
	}
	if holderUID(lease) != h.uid {
		return takenBy(lease)
	}
	before := lease.DeepCopy()
	lease.Spec = l.lease(network, a, h).Spec
	lease.Spec.AcquireTime = before.Spec.AcquireTime
	_, err = l.kube.Patch(ctx, before, lease)
	return err
}

// listing is what the Leases of a network say, or why nobody knows. It is shared, so
// nobody may change it.
type listing struct {
	// taken has the addresses that cannot be given out.
	taken map[netip.Addr]bool
	// held has the addresses of holders by their UIDs.
	held map[string]netip.Addr
	err  error
}

// free is the number of addresses of a pool that can be given out.
func (seen listing) free(p pool.Pool) uint64 {
	free := p.Size()
	for a := range seen.taken {
		if p.Contains(a) {
			free--
		}
	}
	return free
}

// read looks at a network's Leases. Who does so at the same time shares one request, and
// what it says.
func (l *ledger) read(ctx context.Context, namespace, network string) (listing, error) {
	seen := l.listings.Do(ctx, namespace+"/"+network, func(ctx context.Context) listing {
		return l.list(ctx, namespace, network)
	})
	return seen, seen.err
}

func (l *ledger) list(ctx context.Context, namespace, network string) listing {
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
		if !l.reusable(&list.Items[i]) {
			seen.taken[a] = true
		}
	}
	return seen
}

// reusable tells whether an address that has a Lease may be given out: it has no
// holder, and its delay is over. A Lease that has a holder is never taken away
// here, however old it is: its holder may be alive, and only slow.
func (l *ledger) reusable(lease *coordinationv1.Lease) bool {
	s := lease.Spec
	if holderUID(lease) != "" {
		return false
	}
	return s.RenewTime == nil || s.LeaseDurationSeconds == nil ||
		!l.now().Before(s.RenewTime.Add(time.Duration(*s.LeaseDurationSeconds)*time.Second))
}

func (l *ledger) lease(network string, a netip.Addr, h holder) *coordinationv1.Lease {
	lease := l.leaseOf(leaseName(network, a), h)
	lease.Labels[v1alpha2.LabelNetworkNamespace] = kube.LabelValue(network)
	lease.Annotations[annotationAddress] = a.String()
	if h.ttl > 0 {
		lease.Spec.RenewTime, lease.Spec.LeaseDurationSeconds = lease.Spec.AcquireTime, &h.ttl
	}
	return lease
}

// leaseOf is a Lease of a name that has a holder.
func (l *ledger) leaseOf(name string, h holder) *coordinationv1.Lease {
	now := metav1.NewMicroTime(l.now())
	return &coordinationv1.Lease{
		ObjectMeta: metav1.ObjectMeta{
			Namespace: h.namespace, Name: name,
			Labels:      map[string]string{v1alpha1.LabelManagedBy: managedBy, labelHolder: h.uid},
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

// leaseName is the one name that an address has in a network, however it is
// written.
func leaseName(network string, a netip.Addr) string {
	return kube.Name(network, strings.NewReplacer(".", "-", ":", "-").Replace(a.StringExpanded()))
}
