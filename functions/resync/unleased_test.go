package main

import (
	"slices"
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/vitistack/stack/apis/v1alpha1"
	"github.com/vitistack/stack/apis/v1alpha2"
	"github.com/vitistack/stack/events"
	"github.com/vitistack/stack/functions/internal/kube"
)

// allocated creates an IPAllocation that is Ready with an address.
func (r *rounds) allocated(name, address string) *v1alpha2.IPAllocation {
	r.Helper()
	a := &v1alpha2.IPAllocation{ObjectMeta: metav1.ObjectMeta{Namespace: r.namespace, Name: name}, Spec: v1alpha2.IPAllocationSpec{NetworkNamespaceName: "net"}}
	if err := r.client.Create(r.Context(), a); err != nil {
		r.Fatal(err)
	}
	before := a.DeepCopy()
	a.Status.Phase, a.Status.Address, a.Status.ObservedGeneration = v1alpha2.IPAllocationAllocated, address, a.Generation
	kube.SetReady(&a.Status.Conditions, a.Generation, true, "Allocated", "address "+address+" is allocated")
	if _, err := r.client.PatchStatus(r.Context(), before, a); err != nil {
		r.Fatal(err)
	}
	return a
}

// leased creates the Lease of an address.
func (r *rounds) leased(address, holder string) {
	r.Helper()
	l := r.lease("net-"+strings.ReplaceAll(address, ".", "-"), "allocate-ip", holder)
	before := l.DeepCopy()
	l.Annotations = map[string]string{annotationAddress: address}
	if _, err := r.client.Patch(r.Context(), before, l); err != nil {
		r.Fatal(err)
	}
}

// TestUnleased deletes Leases of addresses. A full round sends an event for each IPAllocation that has lost its Lease, and for no
// other one. A round that misses no Lease reads no list a second time.
func TestUnleased(t *testing.T) {
	t.Parallel()
	r := newRounds(t)
	if err := r.client.Create(t.Context(), &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Namespace: r.namespace, Name: v1alpha1.ConfigMapOrphans}}); err != nil {
		t.Fatal(err)
	}
	kept, moved := r.allocated("kept", "10.0.0.5"), r.allocated("moved", "10.0.0.6")
	before := moved.DeepCopy()
	moved.Annotations = map[string]string{v1alpha1.AnnotationFormerUIDs: "former"}
	if _, err := r.client.Patch(t.Context(), before, moved); err != nil {
		t.Fatal(err)
	}
	r.leased("10.0.0.5", string(kept.UID))
	r.leased("10.0.0.6", "former")
	r.lease("net-mac-52-54-00-00-00-01", "allocate-ip", string(kept.UID))
	requeued := func(kind string) (names []string) {
		t.Helper()
		r.sent, r.lists = nil, 0
		r.ahead += 10 * time.Minute
		if err := r.round(kind); err != nil {
			t.Fatal(err)
		}
		for _, text := range r.sent {
			if name, isAllocation := strings.CutPrefix(text, "IPAllocation/"); isAllocation {
				name, _, _ = strings.Cut(name, " ")
				names = append(names, name)
			}
		}
		return names
	}
	if got := requeued(events.TypePing); len(got) > 0 || r.lists != len(steps())-1 {
		t.Errorf("no Lease is lost: events for %v, %d pages, want %d", got, r.lists, len(steps())-1)
	}

	lost := r.allocated("lost", "10.0.0.7")
	r.allocated("other", "10.0.0.8")
	r.leased("10.0.0.8", "thief")
	if got := requeued(events.TypeResyncRequested); len(got) > 0 {
		t.Errorf("only full rounds look for lost Leases: events for %v", got)
	}
	if got := requeued(events.TypePing); !slices.Equal(got, []string{"lost", "other"}) {
		t.Errorf("events for %v, want the two IPAllocations without a Lease", got)
	}
	r.leased("10.0.0.7", string(lost.UID))
	if got := requeued(events.TypePing); !slices.Equal(got, []string{"other"}) {
		t.Errorf("events for %v, want the one IPAllocation without a Lease", got)
	}
}
