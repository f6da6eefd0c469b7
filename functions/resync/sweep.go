package main

import (
	"context"
	"time"

	"github.com/cloudevents/sdk-go/v2/event"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"

	"github.com/vitistack/stack/events"
	"github.com/vitistack/stack/functions/internal/kube"
)

// leases are the records of who holds which address.
var leases = kind{name: "Lease", resource: schema.GroupVersionResource{Group: "coordination.k8s.io", Version: "v1", Resource: "leases"}}

// addressLeases selects them.
const addressLeases = "vitistack.io/managed-by=allocate-ip"

// grace is for whoever has just made a Lease to write its address into the status
// of its IPAllocation.
const grace = 2 * time.Minute

// lease is what matters here of a Lease.
type lease struct {
	Metadata struct {
		Namespace         string            `json:"namespace"`
		Name              string            `json:"name"`
		UID               string            `json:"uid"`
		ResourceVersion   string            `json:"resourceVersion"`
		CreationTimestamp metav1.Time       `json:"creationTimestamp"`
		Annotations       map[string]string `json:"annotations"`
	} `json:"metadata"`
	Spec struct {
		HolderIdentity       string            `json:"holderIdentity"`
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

// forsaken tells whether a Lease keeps an address from being given out for
// nobody: its holder is gone or has settled on another address, or it has no
// holder and its delay is over. held has the address of each holder.
func forsaken(l lease, held map[string]string, now time.Time) bool {
	if now.Sub(l.Metadata.CreationTimestamp.Time) < grace {
		return false
	}
	if l.Spec.HolderIdentity == "" {
		return l.Spec.RenewTime == nil || !now.Before(l.Spec.RenewTime.Add(time.Duration(l.Spec.LeaseDurationSeconds)*time.Second))
	}
	address, exists := held[l.Spec.HolderIdentity]
	return !exists || (address != "" && address != l.Metadata.Annotations["vitistack.io/address"])
}

// sweep asks for another look at each forsaken Lease, and returns how many those
// are.
func (f *function) sweep(ctx context.Context, cause event.Event, held map[string]string) (int, error) {
	sent := 0
	next := kube.Page{Limit: pageSize, Selector: addressLeases}
	for {
		var p leasePage
		if err := f.lister.ListInto(ctx, leases.resource, next, &p); err != nil {
			return sent, err
		}
		for _, l := range p.Items {
			if !forsaken(l, held, f.now()) {
				continue
			}
			ref := events.Ref{APIVersion: leases.resource.GroupVersion().String(), Kind: leases.name, Namespace: l.Metadata.Namespace, Name: l.Metadata.Name}
			if err := f.sender.Send(ctx, events.LookAgain("/functions/"+name, ref, l.Metadata.UID, l.Metadata.ResourceVersion+"."+cause.ID())); err != nil {
				return sent, err
			}
			sent++
		}
		if next.Continue = p.Metadata.Continue; next.Continue == "" {
			return sent, nil
		}
	}
}
