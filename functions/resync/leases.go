package main

import (
	"context"
	"strings"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"

	"github.com/vitistack/stack/apis/v1alpha1"
	"github.com/vitistack/stack/apis/v1alpha2"
	"github.com/vitistack/stack/events"
	"github.com/vitistack/stack/functions/internal/kube"
	"github.com/vitistack/stack/functions/internal/orphans"
)

// leases record which object holds which address.
var leases = kind{name: "Lease", resource: schema.GroupVersionResource{Group: "coordination.k8s.io", Version: "v1", Resource: "leases"}}

// addressLeases and vmidLeases name their holder in a label and in an annotation, so that their
// metadata is enough. delayLeases have no holder, and keep an address from others until a time in
// their spec.
var (
	addressLeases = kube.Page{Limit: pageSize, Selector: managedByAllocateIP + ",vitistack.io/holder", Metadata: true}
	delayLeases   = kube.Page{Limit: pageSize, Selector: managedByAllocateIP + ",!vitistack.io/holder"}
	vmidLeases    = kube.Page{Limit: pageSize, Selector: "vitistack.io/managed-by=create-vm,vitistack.io/holder", Metadata: true}
)

// leaseSteps come after the kinds. Only a full round looks for orphans among the VMIDs. A requested
// round that is longer than a slice leaves the addresses to the full round, because it would have
// to list the IPAllocations again.
var leaseSteps = []step{
	{"Leases of addresses", func(ctx context.Context, p *round) (bool, error) {
		if !p.full && p.all == nil {
			return true, nil
		}
		return forEach(ctx, p, leases.resource, addressLeases, func(l lease) error { return p.inspectAddress(ctx, l) })
	}},
	{"IPAllocations without a Lease", func(ctx context.Context, p *round) (bool, error) { return p.readUnleased(ctx) }},
	{"Leases of delays", func(ctx context.Context, p *round) (bool, error) {
		return forEach(ctx, p, leases.resource, delayLeases, func(l lease) error { return p.sendIfUnused(ctx, l, nil) })
	}},
	{"Leases of VMIDs", func(ctx context.Context, p *round) (bool, error) {
		if !p.full {
			return true, nil
		}
		return forEach(ctx, p, leases.resource, vmidLeases, func(l lease) error { return p.inspectVMID(ctx, l) })
	}},
}

const (
	managedByAllocateIP = "vitistack.io/managed-by=allocate-ip"
	labelHolder         = v1alpha1.LabelHolder
	annotationAddress   = "vitistack.io/address"
	phaseReleased       = string(v1alpha2.IPAllocationReleased)
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

func (l lease) key() string { return l.Metadata.Namespace + "/" + l.Metadata.Name }

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
	return !exists || (address != "" && address != l.Metadata.Annotations[annotationAddress])
}

// inspectAddress compares the Lease of an address with the IPAllocations of its namespace. Its
// holder is older than the Lease, and so is among them if it exists.
func (p *round) inspectAddress(ctx context.Context, l lease) error {
	a, err := p.allocationsOf(ctx, l.Metadata.Namespace)
	if err != nil {
		return err
	}
	if address := l.Metadata.Annotations[annotationAddress]; address != "" && a.allocated[l.Metadata.Labels[labelHolder]] == address {
		p.progress.Leased++
	}
	if p.isYoung(l) {
		return nil
	}
	if !a.exists[l.Metadata.Labels[labelHolder]] {
		p.addOrphan(l)
	}
	return p.sendIfUnused(ctx, l, a.held)
}

// inspectVMID looks for the Machine that holds the VMID of a Lease.
func (p *round) inspectVMID(ctx context.Context, l lease) error {
	namespace, name, named := strings.Cut(l.Metadata.Annotations[v1alpha1.LabelMachine], "/")
	if !named || p.isYoung(l) {
		return nil
	}
	m := &v1alpha1.Machine{}
	err := p.api.Get(ctx, namespace, name, m)
	holder := l.Metadata.Labels[labelHolder]
	if kube.NotFound(err) || err == nil && string(m.UID) != holder && !v1alpha1.HadUID(m, holder) {
		p.addOrphan(l)
		return nil
	}
	return err
}

// isYoung reports whether the holder of a Lease may be newer than what was read of it.
func (p *round) isYoung(l lease) bool {
	return p.now().Sub(l.Metadata.CreationTimestamp.Time) < leaseGrace
}

// sendIfUnused sends allocate-ip an event for a Lease that isUnused.
func (p *round) sendIfUnused(ctx context.Context, l lease, held map[string]string) error {
	if !isUnused(l, held, p.now()) {
		return nil
	}
	p.progress.Leases++
	ref := events.Ref{APIVersion: leases.resource.GroupVersion().String(), Kind: leases.name, Namespace: l.Metadata.Namespace, Name: l.Metadata.Name}
	_, err := p.post(ctx, p.event(ref, l.Metadata.UID, l.Metadata.ResourceVersion))
	return err
}

// addOrphan notes a Lease whose holder does not exist. Only full rounds look for orphans. Of too
// many, the first ones are kept, which are the same in each round.
func (p *round) addOrphan(l lease) {
	if p.full && len(p.progress.Orphans) < orphans.Most {
		p.progress.Orphans = append(p.progress.Orphans, v1alpha1.Orphan{ID: l.key(), UID: l.Metadata.Labels[labelHolder]})
	}
}
