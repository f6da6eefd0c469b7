package main

import (
	"fmt"
	"strings"
	"testing"
	"time"

	coordinationv1 "k8s.io/api/coordination/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/vitistack/stack/apis/v1alpha1"
	"github.com/vitistack/stack/apis/v1alpha2"
	"github.com/vitistack/stack/events"
	"github.com/vitistack/stack/functions/internal/kube"
	"github.com/vitistack/stack/functions/internal/network"
	"github.com/vitistack/stack/tests/stand/feed"
)

// machine creates a Machine whose virtual machine uses an address of a NetworkConfiguration, which is
// kept for it.
func (s *env) machine(name, nc, address string) *v1alpha1.Machine {
	s.Helper()
	m := &v1alpha1.Machine{ObjectMeta: metav1.ObjectMeta{Namespace: s.namespace, Name: name}, Spec: v1alpha1.MachineSpec{Template: "small"}}
	if err := s.kube.Create(s.Context(), m); err != nil {
		s.Fatal(err)
	}
	before := m.DeepCopy()
	m.Status.VMName, m.Status.IPAddresses = name, []string{address}
	if _, err := s.kube.PatchStatus(s.Context(), before, m); err != nil {
		s.Fatal(err)
	}
	if err := s.edit(nc, func(nc *v1alpha1.NetworkConfiguration) { network.AddUser(nc, name) }); err != nil {
		s.Fatal(err)
	}
	return m
}

// TestMachineKeepsItsAddress edits the NetworkConfiguration of a running machine. The machine keeps
// its address, and no other interface gets it before the Machine is deleted.
func TestMachineKeepsItsAddress(t *testing.T) {
	t.Parallel()
	for name, edit := range map[string]func(*v1alpha1.NetworkConfiguration){
		"Address": func(nc *v1alpha1.NetworkConfiguration) {
			nc.Spec.NetworkInterfaces[0].IPv4Addresses = []v1alpha2.IPv4Address{"10.0.0.78"}
		},
		"Interface": func(nc *v1alpha1.NetworkConfiguration) { nc.Spec.NetworkInterfaces = nil },
		"Name":      func(nc *v1alpha1.NetworkConfiguration) { nc.Spec.NetworkInterfaces[0].Name = "eth7" },
		"NoMAC":     func(nc *v1alpha1.NetworkConfiguration) { nc.Spec.NetworkInterfaces[0].MACAddress = "" },
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			s := setUp(t)
			s.network("net", "10.0.0.0/24", "", v1alpha2.StaticPool{IPv4Gateway: "10.0.0.1"})
			f := s.replica(s.config)
			s.configuration("web", "net", asking("10.0.0.77"))
			s.reconcile(f, "web")
			s.awaitReason("web", "NetworkConfigured")
			s.machine("web", "web", "10.0.0.77")
			if err := s.edit("web", edit); err != nil {
				t.Fatal(err)
			}
			resync := func() {
				t.Helper()
				_ = f.configurations().reconcileConfiguration(t.Context(), s.namespace, "web", true) // a WaitError is expected
				if err := kube.OnConflict(func() error {
					return f.allocations().reconcileAllocation(t.Context(), s.namespace, "web-eth0", events.TypeResync)
				}); err != nil {
					t.Fatal(err)
				}
			}
			resync()
			s.configuration("rival", "net", asking("10.0.0.77"))
			s.reconcile(f, "rival")
			s.awaitReason("rival", "AddressTaken")
			if name == "Address" {
				nc := s.awaitReason("web", "AddressInUse")
				if !strings.Contains(nc.Status.Message, "request 10.0.0.77, or delete Machine web") || nc.Status.NetworkInterfaces[0].IPv4Addresses[0] != "10.0.0.77" {
					t.Errorf("status %+v, want it to keep what the machine has", nc.Status)
				}
			}
			if err := s.edit("web", func(nc *v1alpha1.NetworkConfiguration) {
				network.RemoveUser(nc, "web")
				nc.Spec.NetworkInterfaces = nil
			}); err != nil {
				t.Fatal(err)
			}
			resync()
			resync()
			s.reconcile(f, "rival")
			s.awaitReason("rival", "NetworkConfigured")
			s.requireConsistentLeases()
		})
	}
}

// TestClosedNetwork deletes a network that is in use. Existing addresses are kept and renewed, and new
// requests are rejected.
func TestClosedNetwork(t *testing.T) {
	t.Parallel()
	s := setUp(t)
	nn := s.network("net", "10.0.0.0/24", "", v1alpha2.StaticPool{IPv4Gateway: "10.0.0.1", TTLSeconds: 600})
	f := s.replica(s.config)
	s.configuration("web", "net", eth0())
	s.reconcile(f, "web")
	had := s.awaitReason("web", "NetworkConfigured")
	s.change("net", func(nn *v1alpha2.NetworkNamespace) { nn.Finalizers = []string{v1alpha1.FinalizerNetworkNamespace} })
	if err := s.kube.Delete(t.Context(), nn); err != nil {
		t.Fatal(err)
	}
	for _, phase := range []v1alpha2.ProvisioningPhase{v1alpha2.ProvisioningReady, v1alpha2.ProvisioningDeleting} {
		s.change("net", func(nn *v1alpha2.NetworkNamespace) { nn.Status.ProvisioningPhase = phase })
		name := "late-" + strings.ToLower(string(phase))
		s.configuration(name, "net", eth0())
		s.reconcile(f, name)
		nc := s.awaitReason(name, "NetworkDeleting")
		if len(nc.Status.NetworkInterfaces) > 0 && nc.Status.NetworkInterfaces[0].IPAllocated || !strings.Contains(nc.Status.Message, "delete what you created in it (the KubernetesCluster, Machine, NetworkConfiguration or IPAllocation), and create it again in another network") {
			t.Errorf("%s: status %+v, want no address", phase, nc.Status)
		}
		s.reconcile(f, "web")
		if now := s.awaitReason("web", "NetworkConfigured"); now.ResourceVersion != had.ResourceVersion {
			t.Errorf("%s: an unchanged status was written: %+v", phase, now.Status)
		}
		f.now = func() time.Time { return time.Now().Add(5 * time.Minute) }
		if err := f.allocations().reconcileAllocation(t.Context(), s.namespace, "web-eth0", events.TypeResync); err != nil {
			t.Fatal(err)
		}
		f.now = time.Now
		if a := s.awaitAllocation("web-eth0", "Allocated"); a.Status.Phase != v1alpha2.IPAllocationAllocated || !a.Status.ExpiresAt.After(time.Now().Add(10*time.Minute)) {
			t.Errorf("%s: status %+v, want a renewed address", phase, a.Status)
		}
		had = s.awaitReason("web", "NetworkConfigured")
	}
	own := &v1alpha2.IPAllocation{ObjectMeta: metav1.ObjectMeta{Namespace: s.namespace, Name: "own"}, Spec: v1alpha2.IPAllocationSpec{NetworkNamespaceName: "net"}}
	if err := s.kube.Create(t.Context(), own); err != nil {
		t.Fatal(err)
	}
	if err := f.allocations().reconcileAllocation(t.Context(), s.namespace, "own", events.TypeAdd); err != nil {
		t.Fatal(err)
	}
	s.awaitAllocation("own", "NetworkDeleting")
}

// TestLostLeases deletes the Leases of a namespace, as a restore without Leases does. After a full round no other object gets the address of
// an IPAllocation. An IPAllocation whose address another one got in the meantime says so.
func TestLostLeases(t *testing.T) {
	t.Parallel()
	s := setUp(t)
	s.network("net", "10.0.0.0/29", "", v1alpha2.StaticPool{IPv4Gateway: "10.0.0.1"})
	f := s.replica(s.config)
	for _, name := range []string{"web", "stolen"} {
		s.configuration(name, "net", eth0())
		s.reconcile(f, name)
		s.awaitReason(name, "NetworkConfigured")
	}
	web, stolen := s.awaitAllocation("web-eth0", "Allocated"), s.awaitAllocation("stolen-eth0", "Allocated")
	leases := &coordinationv1.LeaseList{}
	if err := s.kube.List(t.Context(), s.namespace, "", leases); err != nil {
		t.Fatal(err)
	}
	for i := range leases.Items {
		if err := s.kube.Delete(t.Context(), &leases.Items[i]); err != nil {
			t.Fatal(err)
		}
	}
	s.configuration("thief", "net", asking(stolen.Status.Address))
	s.reconcile(f, "thief")
	s.awaitReason("thief", "NetworkConfigured")

	for range 2 {
		for _, name := range []string{"web-eth0", "stolen-eth0"} {
			if err := f.allocations().reconcileAllocation(t.Context(), s.namespace, name, events.TypeResync); err != nil {
				t.Fatal(err)
			}
		}
		s.reconcile(f, "stolen")
		a := s.awaitAllocation("stolen-eth0", "AddressTaken")
		if a.Status.Phase != v1alpha2.IPAllocationError || !strings.Contains(a.Status.Message, "IPAllocation thief-eth0") {
			t.Errorf("status %+v, want the name of the other holder", a.Status)
		}
	}
	if now := s.awaitAllocation("web-eth0", "Allocated"); now.Status.Address != web.Status.Address {
		t.Errorf("status %+v, want address %s", now.Status, web.Status.Address)
	}
	if err := s.kube.Delete(t.Context(), s.awaitReason("stolen", "AddressTaken")); err != nil {
		t.Fatal(err)
	}
	if err := s.kube.Delete(t.Context(), stolen); err != nil {
		t.Fatal(err)
	}
	if err := f.allocations().reconcileAllocation(t.Context(), s.namespace, "stolen-eth0", events.TypeResync); err != nil {
		t.Fatal(err)
	}
	for i := range 4 { // of the five addresses two are held
		name := fmt.Sprintf("n%d", i)
		s.configuration(name, "net", eth0())
		s.reconcile(f, name)
		reason := "NetworkConfigured"
		if i == 3 {
			reason = "PoolExhausted"
		}
		s.awaitReason(name, reason)
	}
	if n := s.requireConsistentLeases(); n != 5 {
		t.Errorf("%d addresses are allocated, want 5", n)
	}
}

// TestOtherVLAN names a VLAN that differs from the network's. Another network may use the same
// addresses in it.
func TestOtherVLAN(t *testing.T) {
	t.Parallel()
	s := setUp(t)
	s.network("net", "10.0.0.0/24", "", v1alpha2.StaticPool{IPv4Gateway: "10.0.0.1"}) // its VLAN is 7
	s.serve(1)
	s.configuration("web", "net", eth0())
	s.awaitReason("web", "NetworkConfigured")
	to := func(vlan *v1alpha2.VLANID) {
		t.Helper()
		if err := s.edit("web", func(nc *v1alpha1.NetworkConfiguration) { nc.Spec.VLAN = vlan }); err != nil {
			t.Fatal(err)
		}
	}
	other, own := v1alpha2.VLANID(8), v1alpha2.VLANID(7)
	to(&other)
	if nc := s.awaitReason("web", "VLANMismatch"); !strings.Contains(nc.Status.Message, "leave spec.vlan out, or write 7") || nc.Status.NetworkInterfaces[0].VLAN != "7" {
		t.Errorf("status %+v, want it to keep VLAN 7", nc.Status)
	}
	to(&own)
	s.awaitReason("web", "NetworkConfigured")
	to(&other)
	s.awaitReason("web", "VLANMismatch")
	to(nil)
	s.awaitReason("web", "NetworkConfigured")
}

// TestStaysInItsNetwork leaves spec.networkNamespaceName empty and then creates a second network. The
// NetworkConfiguration stays in the first one.
func TestStaysInItsNetwork(t *testing.T) {
	t.Parallel()
	s := setUp(t)
	s.network("net", "10.0.0.0/24", "", v1alpha2.StaticPool{IPv4Gateway: "10.0.0.1"})
	f := s.replica(s.config)
	s.configuration("web", "", eth0())
	s.reconcile(f, "web")
	had := s.awaitReason("web", "NetworkConfigured")
	s.network("other", "10.1.0.0/24", "", v1alpha2.StaticPool{IPv4Gateway: "10.1.0.1"})
	if err := s.edit("web", func(nc *v1alpha1.NetworkConfiguration) { nc.Spec.Description = "seen again" }); err != nil {
		t.Fatal(err)
	}
	s.reconcile(f, "web")
	feed.Until(t, "the NetworkConfiguration is reconciled again", func() (bool, string) {
		now := s.awaitReason("web", "NetworkConfigured")
		return now.Status.ObservedGeneration == now.Generation && now.Status.NetworkInterfaces[0].IPv4Addresses[0] == had.Status.NetworkInterfaces[0].IPv4Addresses[0], now.Status.Message
	})
	s.configuration("late", "", eth0())
	s.reconcile(f, "late")
	s.awaitReason("late", "NetworkNamespaceAmbiguous")
}

// TestLinkLocalGateway accepts a link-local IPv6 gateway, the kind that most routers announce.
func TestLinkLocalGateway(t *testing.T) {
	t.Parallel()
	s := setUp(t)
	s.network("net", "", "2001:db8::/64", v1alpha2.StaticPool{IPv6Gateway: "fe80::1"})
	f := s.replica(s.config)
	s.configuration("web", "net", eth0())
	s.reconcile(f, "web")
	if got := s.awaitReason("web", "NetworkConfigured").Status.NetworkInterfaces[0]; got.IPv6Gateway != "fe80::1" || got.IPv6Subnet != "2001:db8::/64" || len(got.IPv6Addresses) != 1 {
		t.Errorf("got %+v", got)
	}
}
