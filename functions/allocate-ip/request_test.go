package main

import (
	"fmt"
	"net/http"
	"net/netip"
	"slices"
	"strings"
	"testing"
	"time"

	coordinationv1 "k8s.io/api/coordination/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/rest"

	"github.com/vitistack/stack/apis/v1alpha1"
	"github.com/vitistack/stack/apis/v1alpha2"
	"github.com/vitistack/stack/events"
	"github.com/vitistack/stack/functions/internal/kube"
	"github.com/vitistack/stack/functions/internal/network"
	"github.com/vitistack/stack/tests/stand/feed"
)

// asking returns an interface that requests an address, or any address if it is empty.
func asking(address string) v1alpha1.InterfaceSpec {
	i := eth0()
	if address != "" {
		i.IPv4Addresses = []v1alpha2.IPv4Address{v1alpha2.IPv4Address(address)}
	}
	return i
}

// changeRequest changes the request of a NetworkConfiguration's interface to an address, or to any address if it
// is empty.
func (s *env) changeRequest(nc, address string) error {
	now := &v1alpha1.NetworkConfiguration{}
	return kube.OnConflict(func() error {
		if err := s.kube.Get(s.Context(), s.namespace, nc, now); err != nil {
			return err
		}
		before := now.DeepCopy()
		i := asking(address)
		i.MACAddress = macFor(nc, i.Name)
		now.Spec.NetworkInterfaces = []v1alpha1.InterfaceSpec{i}
		_, err := s.kube.Patch(s.Context(), before, now)
		return err
	})
}

// awaitAddress waits until a NetworkConfiguration has a reason for its present generation, and checks the
// address of its interface.
func (s *env) awaitAddress(name, reason, address string) {
	s.Helper()
	nc := &v1alpha1.NetworkConfiguration{}
	feed.Until(s.T, fmt.Sprintf("%s is %s, with %q", name, reason, address), func() (bool, string) {
		if err := s.kube.Get(s.Context(), s.namespace, name, nc); err != nil {
			return false, err.Error()
		}
		got := ""
		if i := nc.Status.NetworkInterfaces; len(i) > 0 && len(i[0].IPv4Addresses) > 0 {
			got = i[0].IPv4Addresses[0]
		}
		ok := reasonOf(nc.Status.Conditions) == reason && nc.Status.ObservedGeneration == nc.Generation
		return ok && got == address, fmt.Sprintf("it has %q: %s", got, nc.Status.Message)
	})
}

// createAllocation creates an IPAllocation before the NetworkConfiguration that it is for, as a user may.
func (s *env) createAllocation(nc, address string) {
	s.Helper()
	a := &v1alpha2.IPAllocation{ObjectMeta: metav1.ObjectMeta{Namespace: s.namespace, Name: nc + "-eth0"}, Spec: v1alpha2.IPAllocationSpec{
		NetworkNamespaceName: "net", NetworkConfigurationName: nc, InterfaceName: "eth0", RequestedAddress: address,
	}}
	if err := s.kube.Create(s.Context(), a); err != nil {
		s.Fatal(err)
	}
}

// TestCreatedBeforehand has a user's own IPAllocation serve a NetworkConfiguration. It is released
// like any other.
func TestCreatedBeforehand(t *testing.T) {
	t.Parallel()
	s := setUp(t)
	s.serve(1)
	const delay = 3600
	s.network("net", "10.0.0.0/24", "", v1alpha2.StaticPool{IPv4Gateway: "10.0.0.1", ReuseDelaySeconds: delay})
	s.createAllocation("web", "10.0.0.50")
	s.configuration("web", "net", eth0())
	nc := s.awaitReason("web", "NetworkConfigured")
	if got := nc.Status.NetworkInterfaces[0].IPv4Addresses; !slices.Equal(got, []string{"10.0.0.50"}) {
		t.Errorf("the user requested 10.0.0.50, got %v", got)
	}
	a := s.awaitAllocation("web-eth0", "Allocated")
	if !slices.Contains(a.Finalizers, v1alpha1.FinalizerStaticIP) || len(a.OwnerReferences) > 0 {
		t.Errorf("a user's allocation has finalizers %v and owners %v", a.Finalizers, a.OwnerReferences)
	}
	for _, obj := range []kube.Object{nc, a} {
		if err := s.kube.Delete(t.Context(), obj); err != nil {
			t.Fatal(err)
		}
	}
	feed.Until(t, "the IPAllocation is deleted", func() (bool, string) {
		err := s.kube.Get(t.Context(), s.namespace, a.Name, &v1alpha2.IPAllocation{})
		return kube.NotFound(err), fmt.Sprint(err)
	})
	lease := &coordinationv1.Lease{}
	if err := s.kube.Get(t.Context(), s.namespace, leaseName("net", netip.MustParseAddr("10.0.0.50")), lease); err != nil {
		t.Fatalf("the address must be free: %v", err)
	}
	if got := lease.Spec.LeaseDurationSeconds; holderUID(lease) != "" || got == nil || *got != delay {
		t.Errorf("the Lease of the address has holder %q for %v seconds, want none for %d", holderUID(lease), got, delay)
	}
	s.configuration("next", "net", asking("10.0.0.50"))
	s.awaitReason("next", "AddressTaken")
}

// TestExpiredBeforehand creates a NetworkConfiguration after the user's IPAllocation for it has
// expired.
func TestExpiredBeforehand(t *testing.T) {
	t.Parallel()
	s := setUp(t)
	s.network("net", "10.0.0.0/24", "", v1alpha2.StaticPool{IPv4Gateway: "10.0.0.1", TTLSeconds: 60})
	f, now := s.replica(s.config), time.Now()
	f.now = func() time.Time { return now }
	f.leases.now = f.now
	s.createAllocation("web", "10.0.0.50")
	for range 2 {
		if err := f.allocations().reconcileAllocation(t.Context(), s.namespace, "web-eth0", events.TypeResync); err != nil {
			t.Fatal(err)
		}
		now = now.Add(61 * time.Second)
	}
	s.serve(1)
	s.configuration("web", "net", eth0())
	nc := s.awaitReason("web", "Lapsed")
	if !strings.Contains(nc.Status.Message, "delete the IPAllocation") {
		t.Errorf("the message %q does not name the remedy", nc.Status.Message)
	}
	if err := s.kube.Delete(t.Context(), s.awaitAllocation("web-eth0", "Lapsed")); err != nil {
		t.Fatal(err)
	}
	s.awaitReason("web", "NetworkConfigured")
	s.requireConsistentLeases()
}

// TestNamespaceDeleted deletes every object of a namespace at once while a machine runs.
func TestNamespaceDeleted(t *testing.T) {
	t.Parallel()
	s := setUp(t)
	s.serve(1)
	s.network("net", "10.0.0.0/24", "", v1alpha2.StaticPool{IPv4Gateway: "10.0.0.1"})
	s.configuration("web", "net", asking("10.0.0.77"))
	nc := s.awaitReason("web", "NetworkConfigured")
	edit := func(change func(*v1alpha1.NetworkConfiguration, string)) {
		t.Helper()
		err := kube.OnConflict(func() error {
			if err := s.kube.Get(t.Context(), s.namespace, nc.Name, nc); err != nil {
				return err
			}
			before := nc.DeepCopy()
			change(nc, "web")
			_, err := s.kube.Patch(t.Context(), before, nc)
			return err
		})
		if err != nil {
			t.Fatal(err)
		}
	}
	edit(network.AddUser)
	a := s.awaitAllocation("web-eth0", "Allocated")
	for _, obj := range []kube.Object{nc, a} {
		if err := s.kube.Delete(t.Context(), obj); err != nil {
			t.Fatal(err)
		}
	}
	if a = s.awaitAllocation(a.Name, reasonInUse); a.Status.Address != "10.0.0.77" {
		t.Errorf("a machine uses the address, but the IPAllocation has %q", a.Status.Address)
	}
	edit(network.RemoveUser)
	f := s.replica(s.config)
	if err := kube.OnConflict(func() error {
		return f.allocations().reconcileAllocation(t.Context(), s.namespace, a.Name, events.TypeResync)
	}); err != nil {
		t.Fatal(err)
	}
	if gone, err := s.kube.Gone(t.Context(), a, v1alpha1.FinalizerStaticIP); !gone || err != nil {
		t.Errorf("the IPAllocation is not needed by any object, but still exists: %v", err)
	}
}

// TestDeletedInUse deletes the IPAllocation of a NetworkConfiguration that uses it. It is released
// once the NetworkConfiguration requests another address or is deleted.
func TestDeletedInUse(t *testing.T) {
	t.Parallel()
	s := setUp(t)
	s.serve(1)
	s.network("net", "10.0.0.0/24", "", v1alpha2.StaticPool{IPv4Gateway: "10.0.0.1"})
	f := s.replica(s.config)
	resync := func(name string) {
		t.Helper()
		if err := kube.OnConflict(func() error {
			return f.allocations().reconcileAllocation(t.Context(), s.namespace, name, events.TypeResync)
		}); err != nil {
			t.Fatal(err)
		}
	}
	inUse := func(nc, address string) *v1alpha2.IPAllocation {
		t.Helper()
		a := s.awaitAllocation(nc+"-eth0", "Allocated")
		if err := s.kube.Delete(t.Context(), a); err != nil {
			t.Fatal(err)
		}
		if a = s.awaitAllocation(a.Name, reasonInUse); a.Status.Phase != v1alpha2.IPAllocationAllocated || a.Status.Address != address {
			t.Errorf("the address is in use, but the IPAllocation is %s with %q", a.Status.Phase, a.Status.Address)
		}
		s.awaitAddress(nc, "NetworkConfigured", address)
		return a
	}
	s.configuration("web", "net", asking("10.0.0.77"))
	s.awaitReason("web", "NetworkConfigured")
	a := inUse("web", "10.0.0.77")
	s.configuration("next", "net", asking("10.0.0.77"))
	s.awaitReason("next", "AddressTaken")

	if err := s.changeRequest("web", "10.0.0.78"); err != nil {
		t.Fatal(err)
	}
	s.awaitReason("web", "WaitingForAddress")
	resync(a.Name)
	s.awaitAddress("web", "NetworkConfigured", "10.0.0.78")
	a = inUse("web", "10.0.0.78")
	if err := s.kube.Delete(t.Context(), s.awaitReason("web", "NetworkConfigured")); err != nil {
		t.Fatal(err)
	}
	resync(a.Name)
	if gone, err := s.kube.Gone(t.Context(), a, v1alpha1.FinalizerStaticIP); !gone || err != nil {
		t.Errorf("the IPAllocation is not needed by any object, but still exists: %v", err)
	}
	resync("next-eth0")
	s.awaitAddress("next", "NetworkConfigured", "10.0.0.77")
	s.requireConsistentLeases()
}

func TestRequestChanges(t *testing.T) {
	t.Parallel()
	s := setUp(t)
	s.serve(2)
	s.network("net", "10.0.0.0/24", "", v1alpha2.StaticPool{IPv4Gateway: "10.0.0.1", IPv4RangeEnd: "10.0.0.99"})
	s.configuration("holder", "net", asking("10.0.0.77"))
	s.awaitReason("holder", "NetworkConfigured")
	const okay, taken, outside = "NetworkConfigured", "AddressTaken", "AddressOutsidePool"
	for name, tc := range map[string]struct {
		reason, asked, was, asks, is, has string
	}{
		"refused": {"the request follows the message of the earlier rejection", "10.0.0.77", taken, "10.0.0.78", okay, "10.0.0.78"},
		"another": {"it requests an address other than its own", "10.0.0.70", okay, "10.0.0.79", okay, "10.0.0.79"},
		"some":    {"it now requests one address instead of any", "", okay, "10.0.0.50", okay, "10.0.0.50"},
		"taken":   {"a machine uses its present address", "10.0.0.71", okay, "10.0.0.77", taken, "10.0.0.71"},
		"outside": {"a machine uses its present address", "10.0.0.72", okay, "10.0.1.72", outside, "10.0.0.72"},
		"any":     {"its present address satisfies a request for any", "10.0.0.73", okay, "", okay, "10.0.0.73"},
	} {
		s.configuration(name, "net", asking(tc.asked))
		s.awaitReason(name, tc.was)
		if err := s.changeRequest(name, tc.asks); err != nil {
			t.Fatal(err)
		}
		t.Log(tc.reason)
		s.awaitAddress(name, tc.is, tc.has)
	}
	// A user's own IPAllocation is never changed.
	s.createAllocation("theirs", "10.0.0.60")
	s.configuration("theirs", "net", eth0())
	s.awaitAddress("theirs", okay, "10.0.0.60")
	if err := s.changeRequest("theirs", "10.0.0.61"); err != nil {
		t.Fatal(err)
	}
	s.awaitReason("theirs", "AllocationNameTaken")
	if err := s.kube.Delete(t.Context(), s.awaitAllocation("theirs-eth0", "Allocated")); err != nil {
		t.Fatal(err)
	}
	s.awaitAddress("theirs", okay, "10.0.0.61")
	// A rejected request that is withdrawn blocks nothing.
	s.configuration("none", "net", asking("10.0.0.77"))
	s.awaitReason("none", taken)
	if err := s.changeRequest("none", ""); err != nil {
		t.Fatal(err)
	}
	s.awaitReason("none", okay)
	feed.Until(t, "every released address is free", func() (bool, string) {
		leases := &coordinationv1.LeaseList{}
		err := s.kube.List(t.Context(), s.namespace, v1alpha2.LabelNetworkNamespace, leases)
		return err == nil && len(leases.Items) == 9, fmt.Sprint(len(leases.Items))
	})
	s.requireConsistentLeases()
}

// TestSameAllocationName has the names of two NetworkConfigurations and their interfaces give the same name of an IPAllocation. The second one says whose it is, and
// what to do.
func TestSameAllocationName(t *testing.T) {
	t.Parallel()
	s := setUp(t)
	s.serve(2)
	s.network("net", "10.0.0.0/24", "", v1alpha2.StaticPool{IPv4Gateway: "10.0.0.1"})
	named := func(name, mac string) v1alpha1.InterfaceSpec {
		return v1alpha1.InterfaceSpec{Name: name, MACAddress: v1alpha1.MACAddress(mac)}
	}
	s.configuration("web-db", "net", named("eth0", "02:00:00:00:00:01"))
	s.awaitReason("web-db", "NetworkConfigured")
	s.configuration("web", "net", named("db-eth0", "02:00:00:00:00:02"))
	nc := s.awaitReason("web", "AllocationNameTaken")
	const want = "IPAllocation web-db-eth0 belongs to interface eth0 of NetworkConfiguration web-db, and interface db-eth0 would have one of the same name: give interface db-eth0 another name"
	if !strings.HasPrefix(nc.Status.Message, want) {
		t.Errorf("got %s", nc.Status.Message)
	}
	before := nc.DeepCopy()
	nc.Spec.NetworkInterfaces = []v1alpha1.InterfaceSpec{named("db0", "02:00:00:00:00:02")}
	if _, err := s.kube.Patch(t.Context(), before, nc); err != nil {
		t.Fatal(err)
	}
	s.awaitReason("web", "NetworkConfigured")
	s.requireConsistentLeases()
}

// TestFamilyNotServed requests an address of a family that the network lacks at first.
func TestFamilyNotServed(t *testing.T) {
	t.Parallel()
	s := setUp(t)
	s.serve(1)
	s.network("net", "10.0.0.0/24", "", v1alpha2.StaticPool{IPv4Gateway: "10.0.0.1"})
	i := asking("10.0.0.5")
	i.IPv6Addresses = []v1alpha2.IPv6Address{"2001:db8::5"}
	s.configuration("web", "net", i)
	nc := s.awaitReason("web", "IPv6NotServed")
	if nc.Status.Phase != v1alpha1.NetworkConfigurationError || !strings.Contains(nc.Status.Message, "requests 2001:db8::5") {
		t.Errorf("phase %s, message %q", nc.Status.Phase, nc.Status.Message)
	}
	s.change("net", func(nn *v1alpha2.NetworkNamespace) { nn.Status.IPv4Prefix, nn.Status.IPv6Prefix = "", "2001:db8::/64" })
	s.awaitReason("web", "IPv4NotServed")
	s.change("net", func(nn *v1alpha2.NetworkNamespace) { nn.Status.IPv4Prefix = "10.0.0.0/24" })
	s.awaitAddress("web", "NetworkConfigured", "10.0.0.5")
	s.requireConsistentLeases()
}

// TestProcessDiesWhileAddressIsReleased kills the function after each write of a release, while
// another NetworkConfiguration requests the address. At no time are both Ready with it.
func TestProcessDiesWhileAddressIsReleased(t *testing.T) {
	t.Parallel()
	s := setUp(t)
	s.network("net", "10.0.0.0/24", "", v1alpha2.StaticPool{IPv4Gateway: "10.0.0.1"})
	check, healthy := &schedule{env: s}, s.replica(s.config)
	healthy.sender = silent{}
	reconcile := func(f *function, name string) {
		_ = kube.OnConflict(func() error { return f.configurations().reconcileConfiguration(t.Context(), s.namespace, name, true) })
		_ = kube.OnConflict(func() error {
			return f.allocations().reconcileAllocation(t.Context(), s.namespace, name+"-eth0", events.TypeResync)
		})
		check.checkUnique()
	}
	for n := range int32(9) {
		for reason, asks := range map[string]string{"the address is replaced": "10.0.0.78", "a person deletes the allocation": ""} {
			s.configuration("web", "net", asking("10.0.0.77"))
			reconcile(healthy, "web")
			a := s.awaitAllocation("web-eth0", "Allocated")
			if asks == "" {
				if err := s.kube.Delete(t.Context(), a); err != nil {
					t.Fatal(err)
				}
			} else if err := s.changeRequest("web", asks); err != nil {
				t.Fatal(err)
			}
			config, d := rest.CopyConfig(s.config), &dying{}
			d.left.Store(n)
			config.Wrap(func(rt http.RoundTripper) http.RoundTripper { d.RoundTripper = rt; return d })
			dies := s.replica(config)
			dies.sender = silent{}
			reconcile(dies, "web")
			s.configuration("next", "net", asking("10.0.0.77"))
			for range 2 {
				reconcile(healthy, "next")
				reconcile(healthy, "web")
			}
			reconcile(healthy, "next")
			t.Log(reason)
			if asks == "" {
				s.awaitAddress("web", "NetworkConfigured", "10.0.0.77")
			} else {
				s.awaitAddress("web", "NetworkConfigured", asks)
				s.awaitAddress("next", "NetworkConfigured", "10.0.0.77")
			}
			for _, name := range []string{"web", "next"} {
				meta := metav1.ObjectMeta{Namespace: s.namespace, Name: name}
				_ = s.kube.Delete(t.Context(), &v1alpha1.NetworkConfiguration{ObjectMeta: meta})
				meta.Name += "-eth0"
				_ = s.kube.Delete(t.Context(), &v1alpha2.IPAllocation{ObjectMeta: meta})
				reconcile(healthy, name)
			}
		}
	}
	if n := s.requireConsistentLeases(); n > 0 {
		t.Errorf("%d addresses have no holder", n)
	}
}
