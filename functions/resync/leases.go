package main

import (
	"context"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"

	"github.com/vitistack/stack/apis/v1alpha1"
	"github.com/vitistack/stack/apis/v1alpha2"
	"github.com/vitistack/stack/events"
	"github.com/vitistack/stack/functions/internal/kube"
)

// leases record which object holds which address.
var leases = kind{name: "Lease", resource: schema.GroupVersionResource{Group: "coordination.k8s.io", Version: "v1", Resource: "leases"}}

// heldLeases name their holder in a label, so that their metadata is enough. Those of create-vm
// are the VMIDs of Proxmox VE that Machines hold. freeLeases have no holder, and keep an
// address from others until a time in their spec.
var (
	heldLeases = kube.Page{Limit: pageSize, Selector: "vitistack.io/managed-by in (allocate-ip,create-vm),vitistack.io/holder", Metadata: true}
	freeLeases = kube.Page{Limit: pageSize, Selector: addressLeases + ",!vitistack.io/holder"}
)

const (
	addressLeases = "vitistack.io/managed-by=allocate-ip"
	labelHolder   = "vitistack.io/holder"
	createVM      = "create-vm"
	phaseReleased = string(v1alpha2.IPAllocationReleased)
)

// leaseGrace is the time that the function which has created a Lease gets to write its address
// into the status of the IPAllocation.
const leaseGrace = 2 * time.Minute

// lease has the fields of a Lease that decide whether it is used.
type lease struct {
	Metadata struct {
		Namespace         string            `json:"namespace"`
		Name              string            `json:"name"`
		UID               string            `json:"uid"`
		ResourceVersion   string            `json:"resourceVersion"`
		CreationTimestamp metav1.Time       `json:"creationTimestamp"`
		Labels            map[string]string `json:"labels"`
		Annotations       map[string]string `json:"annotations"`
	} `json:"metadata"`
	Spec struct {
		RenewTime            *metav1.MicroTime `json:"renewTime"`
		LeaseDurationSeconds int32             `json:"leaseDurationSeconds"`
	} `json:"spec"`
}

type leasePage struct {
	Metadata struct {
		Continue string `json:"continue"`
	} `json:"metadata"`
	Items []lease `json:"items"`
}

// isUnused reports whether no object uses the address of a Lease: its holder does not exist,
// has released it or has another address, or the Lease has no holder and its delay is over.
// held maps the UIDs of holders to their addresses.
func isUnused(l lease, held map[string]string, now time.Time) bool {
	if now.Sub(l.Metadata.CreationTimestamp.Time) < leaseGrace {
		return false
	}
	holder := l.Metadata.Labels[labelHolder]
	if holder == "" {
		return l.Spec.RenewTime == nil || !now.Before(l.Spec.RenewTime.Add(time.Duration(l.Spec.LeaseDurationSeconds)*time.Second))
	}
	address, exists := held[holder]
	if _, isMAC := l.Metadata.Annotations["vitistack.io/mac-address"]; isMAC {
		return !exists
	}
	return !exists || (address != "" && address != l.Metadata.Annotations["vitistack.io/address"])
}

// sendUnusedLeases sends an event for each Lease that isUnused, and returns how many.
func (p *round) sendUnusedLeases(ctx context.Context) (int, error) {
	sent := 0
	for _, next := range []kube.Page{heldLeases, freeLeases} {
		for more := true; more; more = next.Continue != "" {
			var list leasePage
			if err := p.api.ListInto(ctx, leases.resource, next, &list); err != nil {
				return sent, err
			}
			for _, l := range list.Items {
				if p.isOrphan(l) {
					p.orphans = append(p.orphans, v1alpha1.Orphan{ID: l.Metadata.Namespace + "/" + l.Metadata.Name, UID: l.Metadata.Labels[labelHolder]})
				}
				if l.Metadata.Labels[v1alpha1.LabelManagedBy] == createVM || !isUnused(l, p.held, p.now()) {
					continue
				}
				ref := events.Ref{APIVersion: leases.resource.GroupVersion().String(), Kind: leases.name, Namespace: l.Metadata.Namespace, Name: l.Metadata.Name}
				if err := p.sender.Send(ctx, p.event(ref, l.Metadata.UID, l.Metadata.ResourceVersion)); err != nil {
					return sent, err
				}
				sent++
			}
			next.Continue = list.Metadata.Continue
		}
	}
	return sent, nil
}
