package main

import (
	"context"
	"net/netip"
	"slices"

	coordinationv1 "k8s.io/api/coordination/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/vitistack/stack/apis/v1alpha1"
	"github.com/vitistack/stack/functions/internal/kube"
)

// had reports whether a Lease has a former UID of h.
func (h holder) had(lease *coordinationv1.Lease) bool {
	uid := holderUID(lease)
	return uid != "" && uid != h.uid && slices.Contains(h.former, uid)
}

// mark makes h the holder of a Lease.
func (h holder) mark(lease *coordinationv1.Lease) {
	metav1.SetMetaDataLabel(&lease.ObjectMeta, v1alpha1.LabelHolder, h.uid)
	metav1.SetMetaDataAnnotation(&lease.ObjectMeta, annotationHolder, h.name)
	lease.Spec.HolderIdentity = &h.uid
}

// adopt makes h the holder of the Lease of an address that it had under a former UID, and creates the
// Lease if it is missing. Of several IPAllocations with the same former UID, all but one get
// errAddressTaken. A second call writes nothing.
func (l *leaseStore) adopt(ctx context.Context, network string, a netip.Addr, h holder) error {
	lease := &coordinationv1.Lease{}
	err := l.kube.Get(ctx, h.namespace, leaseName(network, a), lease)
	switch {
	case kube.NotFound(err):
		return l.claimAddress(ctx, network, a, h)
	case err != nil || holderUID(lease) == h.uid:
		return err
	case !h.had(lease):
		return takenError(lease)
	}
	before := lease.DeepCopy()
	h.mark(lease)
	_, err = l.kube.Patch(ctx, before, lease)
	return err
}

// heldBy returns the address that h has, also under a former UID.
func (seen listing) heldBy(h holder) (netip.Addr, bool) {
	for _, uid := range append([]string{h.uid}, h.former...) {
		if a, ok := seen.held[uid]; ok {
			return a, true
		}
	}
	return netip.Addr{}, false
}
