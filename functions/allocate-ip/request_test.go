package main

import (
	"fmt"
	"net/netip"
	"slices"
	"testing"

	coordinationv1 "k8s.io/api/coordination/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/vitistack/stack/apis/v1alpha1"
	"github.com/vitistack/stack/apis/v1alpha2"
	"github.com/vitistack/stack/functions/internal/kube"
	"github.com/vitistack/stack/tests/stand/feed"
)

// asking is the interface that asks for an address, or for any where there is none.
func asking(address string) v1alpha1.InterfaceSpec {
	i := eth0()
	if address != "" {
		i.IPv4Addresses = []v1alpha2.IPv4Address{v1alpha2.IPv4Address(address)}
	}
	return i
}

// beforehand is an allocation that a user makes for a NetworkConfiguration to come.
func (s *stand) beforehand(nc, address string) {
	s.Helper()
	a := &v1alpha2.IPAllocation{ObjectMeta: metav1.ObjectMeta{Namespace: s.namespace, Name: nc + "-eth0"}, Spec: v1alpha2.IPAllocationSpec{
		NetworkNamespaceName: "net", NetworkConfigurationName: nc, InterfaceName: "eth0", RequestedAddress: address,
	}}
	if err := s.kube.Create(s.Context(), a); err != nil {
		s.Fatal(err)
	}
}

// TestMadeBeforehand has a user's own allocation serve a NetworkConfiguration, and be
// released like any other.
func TestMadeBeforehand(t *testing.T) {
	t.Parallel()
	s := setUp(t)
	s.serve(1)
	const delay = 3600
	s.network("net", "10.0.0.0/24", "", v1alpha2.StaticPool{IPv4Gateway: "10.0.0.1", ReuseDelaySeconds: delay})
	s.beforehand("web", "10.0.0.50")
	s.configuration("web", "net", eth0())
	nc := s.until("web", "NetworkConfigured")
	if got := nc.Status.NetworkInterfaces[0].IPv4Addresses; !slices.Equal(got, []string{"10.0.0.50"}) {
		t.Errorf("a user asked for 10.0.0.50, got %v", got)
	}
	a := s.says("web-eth0", "Allocated")
	if !slices.Contains(a.Finalizers, v1alpha1.FinalizerStaticIP) || len(a.OwnerReferences) > 0 {
		t.Errorf("a user's allocation has finalizers %v and owners %v", a.Finalizers, a.OwnerReferences)
	}
	for _, obj := range []kube.Object{nc, a} {
		if err := s.kube.Delete(t.Context(), obj); err != nil {
			t.Fatal(err)
		}
	}
	feed.Until(t, "the allocation is gone", func() (bool, string) {
		err := s.kube.Get(t.Context(), s.namespace, a.Name, &v1alpha2.IPAllocation{})
		return kube.NotFound(err), fmt.Sprint(err)
	})
	lease := &coordinationv1.Lease{}
	if err := s.kube.Get(t.Context(), s.namespace, leaseName("net", netip.MustParseAddr("10.0.0.50")), lease); err != nil {
		t.Fatalf("nothing keeps the address back: %v", err)
	}
	if got := lease.Spec.LeaseDurationSeconds; holderUID(lease) != "" || got == nil || *got != delay {
		t.Errorf("the Lease of the address has holder %q for %v seconds, want none for %d", holderUID(lease), got, delay)
	}
	s.configuration("next", "net", asking("10.0.0.50"))
	s.until("next", "AddressTaken")
}
