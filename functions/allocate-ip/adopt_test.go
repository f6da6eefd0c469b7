package main

import (
	"errors"
	"net/netip"
	"testing"

	coordinationv1 "k8s.io/api/coordination/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/vitistack/stack/apis/v1alpha1"
	"github.com/vitistack/stack/apis/v1alpha2"
	"github.com/vitistack/stack/events"
	"github.com/vitistack/stack/functions/internal/kube"
)

// TestAdoptAddress restores an IPAllocation with another UID, with and without its status and its Lease. It keeps its
// address, and becomes the holder of the Lease.
func TestAdoptAddress(t *testing.T) {
	t.Parallel()
	for _, tc := range []struct {
		reason                  string
		former, withStatus      bool
		withoutLease, requested bool
		want                    string
	}{
		{reason: "the Lease is taken over", former: true, withStatus: true, want: "10.0.0.77"},
		{reason: "a lost Lease is created", former: true, withStatus: true, withoutLease: true, want: "10.0.0.77"},
		{reason: "the Lease says which address it had", former: true, want: "10.0.0.77"},
		{reason: "it requests the address that it had", former: true, requested: true, want: "10.0.0.77"},
		{reason: "another object has the address", requested: true, want: ""},
	} {
		t.Run(tc.reason, func(t *testing.T) {
			t.Parallel()
			s := setUp(t)
			s.network("net", "10.0.0.0/24", "", v1alpha2.StaticPool{IPv4Gateway: "10.0.0.1"})
			f := s.replica(s.config)
			old := &v1alpha2.IPAllocation{ObjectMeta: metav1.ObjectMeta{Namespace: s.namespace, Name: "web-eth0", UID: "former"}}
			address := netip.MustParseAddr("10.0.0.77")
			if !tc.withoutLease {
				if err := f.leases.claimAddress(t.Context(), "net", address, holderOf(old, 0)); err != nil {
					t.Fatal(err)
				}
			}
			a := &v1alpha2.IPAllocation{ObjectMeta: metav1.ObjectMeta{Namespace: s.namespace, Name: "web-eth0"}}
			a.Spec.NetworkNamespaceName = "net"
			if tc.former {
				a.Annotations = map[string]string{v1alpha1.AnnotationFormerUIDs: "former"}
			}
			if tc.requested {
				a.Spec.RequestedAddress = "10.0.0.77"
			}
			if err := s.kube.Create(t.Context(), a); err != nil {
				t.Fatal(err)
			}
			if tc.withStatus {
				before := a.DeepCopy()
				a.Status.Phase, a.Status.Address = v1alpha2.IPAllocationAllocated, "10.0.0.77"
				if _, err := s.kube.PatchStatus(t.Context(), before, a); err != nil {
					t.Fatal(err)
				}
			}
			for range 2 {
				if err := kube.OnConflict(func() error {
					return f.allocations().reconcileAllocation(t.Context(), s.namespace, "web-eth0", events.TypeResync)
				}); err != nil {
					t.Fatal(err)
				}
				if tc.former {
					if _, err := f.leases.deleteUnused(t.Context(), s.namespace, leaseName("net", address)); err != nil {
						t.Fatal(err)
					}
				}
			}
			if err := s.kube.Get(t.Context(), s.namespace, "web-eth0", a); err != nil || a.Status.Address != tc.want {
				t.Errorf("got address %q, want %q: %v", a.Status.Address, tc.want, err)
			}
			lease, holder := &coordinationv1.Lease{}, "former"
			if tc.want != "" {
				holder = string(a.UID)
			}
			if err := s.kube.Get(t.Context(), s.namespace, leaseName("net", address), lease); err != nil || holderUID(lease) != holder || lease.Labels[v1alpha1.LabelHolder] != holder {
				t.Errorf("the Lease has holder %s and label %s, want %s: %v", holderUID(lease), lease.Labels[v1alpha1.LabelHolder], holder, err)
			}
		})
	}
}

// TestAdoptOnce has two IPAllocations of the same former UID adopt an address and a MAC address: one of them gets both.
func TestAdoptOnce(t *testing.T) {
	t.Parallel()
	s := setUp(t)
	f := s.replica(s.config)
	address, former := netip.MustParseAddr("10.0.0.77"), holder{uid: "former", namespace: s.namespace, name: "old"}
	if err := f.leases.claimAddress(t.Context(), "net", address, former); err != nil {
		t.Fatal(err)
	}
	if _, err := f.leases.claimMAC(t.Context(), "net", "52:54:00:00:00:01", former); err != nil {
		t.Fatal(err)
	}
	one := holder{uid: "one", namespace: s.namespace, name: "one", former: []string{"former"}}
	two := holder{uid: "two", namespace: s.namespace, name: "two", former: []string{"former"}}
	for range 2 {
		if err := f.leases.adopt(t.Context(), "net", address, one); err != nil {
			t.Fatal(err)
		}
		if _, err := f.leases.claimMAC(t.Context(), "net", "52:54:00:00:00:01", one); err != nil {
			t.Fatal(err)
		}
	}
	if err := f.leases.adopt(t.Context(), "net", address, two); !errors.As(err, new(errAddressTaken)) {
		t.Errorf("the second one adopts the address: %v", err)
	}
	if err := f.leases.renew(t.Context(), "net", address, former); !errors.As(err, new(errAddressTaken)) {
		t.Errorf("the former one renews the address: %v", err)
	}
	if _, err := f.leases.claimMAC(t.Context(), "net", "52:54:00:00:00:01", two); !errors.As(err, new(errDuplicateMAC)) {
		t.Errorf("the second one adopts the MAC address: %v", err)
	}
}
