package main

import (
	"context"
	"errors"
	"fmt"
	"strings"

	coordinationv1 "k8s.io/api/coordination/v1"
	"k8s.io/apimachinery/pkg/api/meta"

	"github.com/vitistack/stack/apis/network/ipam"
	"github.com/vitistack/stack/apis/v1alpha1"
	"github.com/vitistack/stack/apis/v1alpha2"
	"github.com/vitistack/stack/functions/internal/kube"
	"github.com/vitistack/stack/functions/internal/reconcile"
)

// annotationMAC has the MAC address that a Lease records for its holder. Such a Lease has no
// label of a network, so that a listing of addresses does not include it.
const annotationMAC = "vitistack.io/mac-address"

const reasonDuplicateMAC = "DuplicateMACAddress"

// errDuplicateMAC says that another IPAllocation of the network has the MAC address.
type errDuplicateMAC struct{ mac, by string }

func (e errDuplicateMAC) Error() string {
	return fmt.Sprintf("MAC address %s is also that of IPAllocation %s in the same network: use another MAC address for the interface (for that of a Machine, delete the Machine and create it again without macAddress in spec.networks), "+
		"or delete the Machine or NetworkConfiguration of that IPAllocation", e.mac, e.by)
}

// macToClaim returns the MAC address that an IPAllocation has to claim before it gets an
// address, or nothing if the status of its NetworkConfiguration shows that it has it. Of the
// IPAllocations of an interface, that of the first family claims it.
func macToClaim(nc *v1alpha1.NetworkConfiguration, nn *v1alpha2.NetworkNamespace, a *v1alpha2.IPAllocation) string {
	if served := families(nn); len(served) == 0 || ipam.FamilyOf(a, nn) != served[0] {
		return ""
	}
	known, allocated := knownMAC(nc, a.Spec.InterfaceName)
	if mac := specMAC(nc, a.Spec.InterfaceName); mac != known || !allocated {
		return mac
	}
	return ""
}

// specMAC returns the MAC address of an interface in the spec of a NetworkConfiguration, or nothing.
func specMAC(nc *v1alpha1.NetworkConfiguration, name string) string {
	for _, i := range nc.Spec.NetworkInterfaces {
		if i.Name == name {
			return i.MACAddress.Normalized()
		}
	}
	return ""
}

// knownMAC returns the MAC address of an interface in the status of a NetworkConfiguration, or nothing, and whether the
// interface has its addresses. An interface that waits for an address has claimed its MAC address before.
func knownMAC(nc *v1alpha1.NetworkConfiguration, name string) (mac string, allocated bool) {
	for _, s := range nc.Status.NetworkInterfaces {
		if s.Name == name {
			return s.MACAddress.Normalized(), s.IPAllocated
		}
	}
	return "", false
}

// releaseFormerMAC releases the MAC address that an interface had before its present one.
func (r configurationReconciler) releaseFormerMAC(ctx context.Context, nc *v1alpha1.NetworkConfiguration, nn *v1alpha2.NetworkNamespace, a *v1alpha2.IPAllocation) error {
	had, _ := knownMAC(nc, a.Spec.InterfaceName)
	if mac := macToClaim(nc, nn, a); had == "" || mac == "" || mac == had {
		return nil
	}
	return r.leases.releaseMAC(ctx, nn.Name, had, holderOf(a, 0))
}

// releaseOutdatedMACs releases the MAC addresses that IPAllocations have claimed for nc if its spec has changed since and
// names other ones, so that other interfaces can have them. The status does not show them to a later delivery.
func (r configurationReconciler) releaseOutdatedMACs(ctx context.Context, nc *v1alpha1.NetworkConfiguration, nn *v1alpha2.NetworkNamespace, held []v1alpha2.IPAllocation) error {
	now := &v1alpha1.NetworkConfiguration{}
	if err := r.kube.Get(ctx, nc.Namespace, nc.Name, now); err != nil && !kube.NotFound(err) {
		return err
	}
	for i := range held {
		claimed := macToClaim(nc, nn, &held[i])
		if claimed == "" || claimed == specMAC(now, held[i].Spec.InterfaceName) {
			continue
		}
		if err := r.leases.releaseMAC(ctx, nn.Name, claimed, holderOf(&held[i], 0)); err != nil {
			return err
		}
	}
	return nil
}

// repairMACs corrects the records of MAC addresses of a NetworkConfiguration whose status is not that of the spec before, or not Ready: a delivery for
// an earlier spec may have claimed the MAC addresses of that spec, and released the former ones, without a status that says so. The first are free for
// other interfaces then, and interfaces that have a former one again claim it. known are its IPAllocations. It returns a conflict if the spec has changed
// since it was read, and a UserError if another interface has got a former MAC address meanwhile.
func (r configurationReconciler) repairMACs(ctx context.Context, nc *v1alpha1.NetworkConfiguration, nn *v1alpha2.NetworkNamespace, known allocations) error {
	changes := nc.Generation - max(nc.Status.ObservedGeneration, 0)
	if nc.Generation < 2 || changes == 0 || changes == 1 && meta.IsStatusConditionTrue(nc.Status.Conditions, v1alpha1.ConditionReady) {
		return nil
	}
	claimed, err := r.leases.listMACs(ctx, nc.Namespace)
	if err != nil {
		return err
	}
	for _, a := range known {
		served := families(nn)
		if a.DeletionTimestamp != nil || len(served) == 0 || ipam.FamilyOf(a, nn) != served[0] {
			continue
		}
		if err := r.repairMAC(ctx, nc, nn, a, claimed[string(a.UID)]); err != nil {
			return err
		}
	}
	return nil
}

// repairMAC is repairMACs for one IPAllocation, which holds claimed.
func (r configurationReconciler) repairMAC(ctx context.Context, nc *v1alpha1.NetworkConfiguration, nn *v1alpha2.NetworkNamespace, a *v1alpha2.IPAllocation, claimed []coordinationv1.Lease) error {
	mac, has := specMAC(nc, a.Spec.InterfaceName), false
	for _, lease := range claimed {
		if lease.Annotations[annotationMAC] == mac {
			has = true
			continue
		}
		if err := r.kube.CheckSpecCurrent(ctx, nc); err != nil { // after the list: a later spec claims its MAC addresses later
			return err
		}
		if err := r.kube.DeleteExactly(ctx, &lease); err != nil {
			return err
		}
	}
	if has || macToClaim(nc, nn, a) != "" {
		return nil
	}
	_, err := r.leases.claimMAC(ctx, nn.Name, mac, holderOf(a, 0))
	if twin := (errDuplicateMAC{}); errors.As(err, &twin) {
		return reconcile.UserError{Reason: reasonDuplicateMAC, Message: twin.Error()}
	}
	return err
}

// listMACs returns the Leases of the MAC addresses of a namespace by the UIDs of their holders.
func (l *leaseStore) listMACs(ctx context.Context, namespace string) (map[string][]coordinationv1.Lease, error) {
	list := &coordinationv1.LeaseList{}
	selector := v1alpha1.LabelManagedBy + "=" + managedBy + "," + v1alpha1.LabelHolder + ",!" + v1alpha2.LabelNetworkNamespace
	if err := l.kube.List(ctx, namespace, selector, list); err != nil {
		return nil, err
	}
	claimed := map[string][]coordinationv1.Lease{}
	for _, lease := range list.Items {
		if uid := holderUID(&lease); lease.Annotations[annotationMAC] != "" {
			claimed[uid] = append(claimed[uid], lease)
		}
	}
	return claimed, nil
}

// claimMAC records that h has a MAC address in a network, and reports whether this call has
// created the record. It succeeds if h has the address already, or if mac is empty. Of several
// holders that claim one address all but one get errDuplicateMAC.
func (l *leaseStore) claimMAC(ctx context.Context, network, mac string, h holder) (created bool, err error) {
	if mac == "" {
		return false, nil
	}
	lease := l.newLease(macLeaseName(network, mac), h)
	lease.Annotations[annotationMAC] = mac
	existing, err := l.create(ctx, lease)
	switch {
	case err != nil || existing == nil || holderUID(existing) == h.uid:
	case h.had(existing):
		before := existing.DeepCopy()
		h.mark(existing)
		_, err = l.kube.Patch(ctx, before, existing)
	default:
		err = errDuplicateMAC{mac, existing.Annotations[annotationHolder]}
	}
	return err == nil && existing == nil, err
}

// releaseMAC releases a MAC address, if h has it.
func (l *leaseStore) releaseMAC(ctx context.Context, network, mac string, h holder) error {
	return l.release(ctx, macLeaseName(network, mac), h)
}

// macLeaseName returns the name of the Lease of a MAC address in a network.
func macLeaseName(network, mac string) string {
	return kube.Name(network, "mac", strings.ReplaceAll(mac, ":", "-"))
}
