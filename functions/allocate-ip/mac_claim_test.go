package main

import (
	"cmp"
	"fmt"
	"net/http"
	"strings"
	"sync"
	"testing"

	coordinationv1 "k8s.io/api/coordination/v1"
	"k8s.io/client-go/rest"

	"github.com/vitistack/stack/apis/v1alpha1"
	"github.com/vitistack/stack/apis/v1alpha2"
	"github.com/vitistack/stack/events"
	"github.com/vitistack/stack/functions/internal/kube"
	"github.com/vitistack/stack/tests/stand/feed"
	"github.com/vitistack/stack/tests/stand/transport"
)

// reconcile has a process reconcile a NetworkConfiguration, as resync requests it.
func (s *env) reconcile(f *function, name string) {
	s.Helper()
	if err := kube.OnConflict(func() error { return f.configurations().reconcileConfiguration(s.Context(), s.namespace, name, true) }); err != nil {
		s.Fatal(err)
	}
}

// edit changes the spec of a NetworkConfiguration.
func (s *env) edit(name string, how func(*v1alpha1.NetworkConfiguration)) error {
	s.Helper()
	return kube.OnConflict(func() error {
		nc := &v1alpha1.NetworkConfiguration{}
		if err := s.kube.Get(s.Context(), s.namespace, name, nc); err != nil {
			return err
		}
		before := nc.DeepCopy()
		how(nc)
		_, err := s.kube.Patch(s.Context(), before, nc)
		return err
	})
}

// TestDuplicateMAC gives an interface the MAC address of another one in the network. The interface
// gets no address, and each remedy in the message leads to Ready.
func TestDuplicateMAC(t *testing.T) {
	t.Parallel()
	s := setUp(t)
	s.network("net", "10.0.0.0/24", "2001:db8::/64", v1alpha2.StaticPool{IPv4Gateway: "10.0.0.1"})
	f := s.replica(s.config)
	with := func(name, mac string) v1alpha1.InterfaceSpec {
		return v1alpha1.InterfaceSpec{Name: name, MACAddress: v1alpha1.MACAddress(mac)}
	}
	s.configuration("first", "net", with("eth0", "52:54:00:aa:bb:cc"))
	s.reconcile(f, "first")
	s.awaitReason("first", "NetworkConfigured")
	s.configuration("second", "net", with("eth0", "52-54-00-AA-BB-CC"))
	s.configuration("both", "net", with("eth0", "52:54:00:00:00:01"), with("eth1", "52:54:00:00:00:01"))
	for name, says := range map[string]string{"second": "IPAllocation first-eth0", "both": "IPAllocation both-eth0"} {
		s.reconcile(f, name)
		nc := s.awaitReason(name, reasonDuplicateMAC)
		last := nc.Status.NetworkInterfaces[len(nc.Status.NetworkInterfaces)-1]
		if nc.Status.Phase != v1alpha1.NetworkConfigurationError || last.IPAllocated || len(last.IPv4Addresses) > 0 || !strings.Contains(nc.Status.Message, says) {
			t.Errorf("%s: phase %s, interface %+v, message %s", name, nc.Status.Phase, last, nc.Status.Message)
		}
	}
	version := s.awaitReason("second", reasonDuplicateMAC).ResourceVersion
	if s.reconcile(f, "second"); s.awaitReason("second", reasonDuplicateMAC).ResourceVersion != version {
		t.Error("an unchanged status was written")
	}
	if err := s.edit("second", func(nc *v1alpha1.NetworkConfiguration) {
		nc.Spec.NetworkInterfaces[0].MACAddress = "52:54:00:aa:bb:cd"
	}); err != nil {
		t.Fatal(err)
	}
	s.reconcile(f, "second")
	s.awaitReason("second", "NetworkConfigured")
	if err := s.edit("both", func(nc *v1alpha1.NetworkConfiguration) {
		nc.Spec.NetworkInterfaces = nc.Spec.NetworkInterfaces[:1]
	}); err != nil {
		t.Fatal(err)
	}
	s.reconcile(f, "both")
	s.awaitReason("both", "NetworkConfigured")
	s.requireConsistentLeases()
}

// TestDuplicateMACIsReleased follows the other remedy of the message: the IPAllocation that has the MAC address stays while its NetworkConfiguration needs
// it, and the interface gets its address once that is deleted.
func TestDuplicateMACIsReleased(t *testing.T) {
	t.Parallel()
	s := setUp(t)
	s.serve(1)
	s.network("net", "10.0.0.0/24", "", v1alpha2.StaticPool{IPv4Gateway: "10.0.0.1"})
	same := v1alpha1.InterfaceSpec{Name: "eth0", MACAddress: "52:54:00:aa:bb:cc"}
	s.configuration("first", "net", same)
	first := s.awaitReason("first", "NetworkConfigured")
	s.configuration("second", "net", same)
	if nc := s.awaitReason("second", reasonDuplicateMAC); !strings.Contains(nc.Status.Message, "or delete the Machine or NetworkConfiguration of that IPAllocation") {
		t.Errorf("the message %q does not name the remedy", nc.Status.Message)
	}
	a := s.awaitAllocation("first-eth0", "Allocated")
	if err := s.kube.Delete(t.Context(), a); err != nil {
		t.Fatal(err)
	}
	s.awaitAllocation(a.Name, reasonInUse)
	if err := s.kube.Delete(t.Context(), first); err != nil {
		t.Fatal(err)
	}
	f := s.replica(s.config)
	for _, name := range []string{a.Name, "second-eth0"} {
		if err := kube.OnConflict(func() error {
			return f.allocations().reconcileAllocation(t.Context(), s.namespace, name, events.TypeResync)
		}); err != nil {
			t.Fatal(err)
		}
	}
	s.awaitReason("second", "NetworkConfigured")
	s.requireConsistentLeases()
}

// TestMACChanges changes the MAC address of an interface. The earlier MAC address is free for other
// interfaces, and a duplicate one changes nothing.
func TestMACChanges(t *testing.T) {
	t.Parallel()
	s := setUp(t)
	s.network("net", "10.0.0.0/24", "", v1alpha2.StaticPool{IPv4Gateway: "10.0.0.1"})
	f := s.replica(s.config)
	for _, name := range []string{"a", "b"} {
		s.configuration(name, "net", eth0())
		s.reconcile(f, name)
	}
	had := s.awaitReason("a", "NetworkConfigured").Status.NetworkInterfaces[0]
	change := func(name string, to v1alpha1.MACAddress, reason string) v1alpha1.InterfaceStatus {
		t.Helper()
		if err := s.edit(name, func(nc *v1alpha1.NetworkConfiguration) { nc.Spec.NetworkInterfaces[0].MACAddress = to }); err != nil {
			t.Fatal(err)
		}
		s.reconcile(f, name)
		return s.awaitReason(name, reason).Status.NetworkInterfaces[0]
	}
	if got := change("a", macFor("b", "eth0"), reasonDuplicateMAC); got.IPv4Addresses[0] != had.IPv4Addresses[0] || got.MACAddress != had.MACAddress {
		t.Errorf("got %+v, want to keep %+v", got, had)
	}
	s.awaitAllocation("a-eth0", "Allocated")
	if got := change("a", "52:54:00:00:00:0a", "NetworkConfigured"); got.IPv4Addresses[0] != had.IPv4Addresses[0] || got.MACAddress != "52:54:00:00:00:0a" {
		t.Errorf("got %+v, want the same address", got)
	}
	change("b", macFor("a", "eth0"), "NetworkConfigured")
	s.requireConsistentLeases()
}

// TestCorrectedMAC corrects the MAC address of an interface that waits for an address of an exhausted pool. The wrong MAC address
// is free for other interfaces.
func TestCorrectedMAC(t *testing.T) {
	t.Parallel()
	s := setUp(t)
	s.network("net", "10.0.0.0/30", "", v1alpha2.StaticPool{IPv4Gateway: "10.0.0.1"})
	f := s.replica(s.config)
	s.configuration("first", "net", eth0())
	s.reconcile(f, "first")
	s.awaitReason("first", "NetworkConfigured")
	s.configuration("late", "net", v1alpha1.InterfaceSpec{Name: "eth0", MACAddress: "52:54:00:00:00:0a"})
	s.reconcile(f, "late")
	s.awaitReason("late", "PoolExhausted")
	if err := s.edit("late", func(nc *v1alpha1.NetworkConfiguration) { nc.Spec.NetworkInterfaces[0].MACAddress = "52:54:00:00:00:0b" }); err != nil {
		t.Fatal(err)
	}
	s.reconcile(f, "late")
	s.awaitReason("late", "PoolExhausted")
	s.configuration("owner", "net", v1alpha1.InterfaceSpec{Name: "eth0", MACAddress: "52:54:00:00:00:0a"})
	s.reconcile(f, "owner")
	s.awaitReason("owner", "PoolExhausted")
	s.configuration("twin", "net", v1alpha1.InterfaceSpec{Name: "eth0", MACAddress: "52:54:00:00:00:0b"})
	s.reconcile(f, "twin")
	s.awaitReason("twin", reasonDuplicateMAC)
}

// TestMACOfAnEndedDelivery changes the MAC address of an interface after a delivery that has ended before it could write the status. Other interfaces
// can have the MAC address that this delivery has claimed, and none can have that of the interface.
func TestMACOfAnEndedDelivery(t *testing.T) {
	t.Parallel()
	const first, second, third = "52:54:00:00:00:0a", "52:54:00:00:00:0b", "52:54:00:00:00:0c"
	for name, tc := range map[string]struct {
		reason string
		// had is the MAC address in the status, and then the one after the delivery has ended.
		had, then v1alpha1.MACAddress
	}{
		"New":       {"the status has no MAC address yet", "", third},
		"Corrected": {"the status has an earlier MAC address", first, third},
		"TakenBack": {"the delivery has released the MAC address in the status", first, first},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			s := setUp(t)
			s.network("net", "10.0.0.0/24", "", v1alpha2.StaticPool{IPv4Gateway: "10.0.0.1"})
			f, ending := s.replica(s.config), s.replica(s.withoutWrites("/networkconfigurations/web/status"))
			change := func(to v1alpha1.MACAddress) {
				t.Helper()
				if err := s.edit("web", func(nc *v1alpha1.NetworkConfiguration) { nc.Spec.NetworkInterfaces[0].MACAddress = to }); err != nil {
					t.Fatal(err)
				}
			}
			s.configuration("web", "net", v1alpha1.InterfaceSpec{Name: "eth0", MACAddress: cmp.Or(tc.had, second)})
			if tc.had != "" {
				s.reconcile(f, "web")
				s.awaitReason("web", "NetworkConfigured")
				change(second)
			}
			if err := ending.configurations().reconcileConfiguration(t.Context(), s.namespace, "web", false); err == nil {
				t.Fatal("the delivery has not ended early")
			}
			change(tc.then)
			s.reconcile(f, "web")
			if got := s.awaitReason("web", "NetworkConfigured").Status.NetworkInterfaces[0]; got.MACAddress != tc.then {
				t.Errorf("%s: got %+v", tc.reason, got)
			}
			s.configuration("other", "net", v1alpha1.InterfaceSpec{Name: "eth0", MACAddress: second})
			s.reconcile(f, "other")
			s.awaitReason("other", "NetworkConfigured")
			s.configuration("twin", "net", v1alpha1.InterfaceSpec{Name: "eth0", MACAddress: tc.then})
			s.reconcile(f, "twin")
			s.awaitReason("twin", reasonDuplicateMAC)
			s.requireConsistentLeases()
		})
	}
}

// withoutWrites returns a configuration with which writes to paths with an ending fail.
func (s *env) withoutWrites(ending string) *rest.Config {
	config := rest.CopyConfig(s.config)
	config.Wrap(func(next http.RoundTripper) http.RoundTripper {
		return transport.Func(func(r *http.Request) (*http.Response, error) {
			if r.Method != http.MethodGet && strings.HasSuffix(r.URL.Path, ending) {
				return nil, errDead
			}
			return next.RoundTrip(r)
		})
	})
	return config
}

// TestOneOfManyHasTheMAC has replicas reconcile interfaces with the same MAC address concurrently.
func TestOneOfManyHasTheMAC(t *testing.T) {
	t.Parallel()
	s := setUp(t)
	s.network("net", "10.0.0.0/24", "", v1alpha2.StaticPool{IPv4Gateway: "10.0.0.1"})
	const many = 8
	var group sync.WaitGroup
	for i := range many {
		name := fmt.Sprintf("n%d", i)
		s.configuration(name, "net", v1alpha1.InterfaceSpec{Name: "eth0", MACAddress: "52:54:00:aa:bb:cc"})
		f := s.replica(s.config)
		group.Go(func() { s.reconcile(f, name) })
	}
	group.Wait()
	reasons := map[string]int{}
	for i := range many {
		nc := &v1alpha1.NetworkConfiguration{}
		if err := s.kube.Get(t.Context(), s.namespace, fmt.Sprintf("n%d", i), nc); err != nil {
			t.Fatal(err)
		}
		reasons[reasonOf(nc.Status.Conditions)]++
	}
	if reasons["NetworkConfigured"] != 1 || reasons[reasonDuplicateMAC] != many-1 || s.requireConsistentLeases() != 1 {
		t.Errorf("got %v, want one to have an address", reasons)
	}
}

// TestSharedByMany adds the interfaces of 100 machines to one NetworkConfiguration, one after another,
// while the function reconciles it.
func TestSharedByMany(t *testing.T) {
	t.Parallel()
	s := setUp(t)
	s.network("net", "10.0.0.0/23", "", v1alpha2.StaticPool{IPv4Gateway: "10.0.0.1"})
	s.configuration("shared", "net")
	s.serve(2)
	const machines = 100
	for i := range machines {
		name := fmt.Sprintf("machine-%d-eth0", i)
		if err := s.edit("shared", func(nc *v1alpha1.NetworkConfiguration) {
			nc.Spec.NetworkInterfaces = append(nc.Spec.NetworkInterfaces, v1alpha1.InterfaceSpec{Name: name, MACAddress: macFor("shared", name)})
		}); err != nil {
			t.Fatal(err)
		}
	}
	feed.Until(t, "every interface has an address", func() (bool, string) {
		nc, allocated := &v1alpha1.NetworkConfiguration{}, &v1alpha2.IPAllocationList{}
		if err := s.kube.Get(t.Context(), s.namespace, "shared", nc); err != nil {
			return false, err.Error()
		}
		if err := s.kube.List(t.Context(), s.namespace, "", allocated); err != nil {
			return false, err.Error()
		}
		reason := reasonOf(nc.Status.Conditions)
		return reason == "NetworkConfigured" && len(nc.Status.NetworkInterfaces) == machines, fmt.Sprint(reason, len(allocated.Items))
	})
	if s.requireConsistentLeases() != machines {
		t.Errorf("%d addresses for %d interfaces", s.requireConsistentLeases(), machines)
	}
	counted, n := s.countingFunction(0)
	s.reconcile(counted, "shared")
	if most := int64(10); n.Load() > most {
		t.Errorf("reconciling an unchanged object took %d requests, want at most %d", n.Load(), most)
	}
	if err := s.edit("shared", func(nc *v1alpha1.NetworkConfiguration) {
		nc.Spec.NetworkInterfaces = nc.Spec.NetworkInterfaces[:machines-5]
	}); err != nil {
		t.Fatal(err)
	}
	feed.Until(t, "the other addresses are released", func() (bool, string) {
		addresses, all := &coordinationv1.LeaseList{}, &coordinationv1.LeaseList{}
		if err := s.kube.List(t.Context(), s.namespace, "", all); err != nil {
			return false, err.Error()
		}
		if err := s.kube.List(t.Context(), s.namespace, v1alpha2.LabelNetworkNamespace, addresses); err != nil {
			return false, err.Error()
		}
		return len(addresses.Items) == machines-5 && len(all.Items) == 2*(machines-5), fmt.Sprint(len(addresses.Items), len(all.Items))
	})
}

// TestInterfaceIsAddedMeanwhile continues a delivery with a stale read of a NetworkConfiguration, after
// another delivery has allocated the address of an interface that the stale read lacks.
func TestInterfaceIsAddedMeanwhile(t *testing.T) {
	t.Parallel()
	s := setUp(t)
	nn := s.network("net", "10.0.0.0/24", "", v1alpha2.StaticPool{IPv4Gateway: "10.0.0.1"})
	f := s.replica(s.config)
	s.configuration("a", "net")
	add := func(name string) *v1alpha1.NetworkConfiguration {
		t.Helper()
		if err := s.edit("a", func(nc *v1alpha1.NetworkConfiguration) {
			nc.Spec.NetworkInterfaces = append(nc.Spec.NetworkInterfaces, v1alpha1.InterfaceSpec{Name: name, MACAddress: macFor("a", name)})
		}); err != nil {
			t.Fatal(err)
		}
		s.reconcile(f, "a")
		return s.awaitReason("a", "NetworkConfigured")
	}
	stale := add("eth0")
	add("eth1")
	if _, err := f.configurations().deleteObsolete(t.Context(), stale, nn); !kube.Conflict(err) {
		t.Errorf("got %v, want a conflict", err)
	}
	if a := s.awaitAllocation("a-eth1", "Allocated"); a.DeletionTimestamp != nil {
		t.Error("the address of an interface that exists is being released")
	}
}

// TestInterfaceReturnsMeanwhile continues a delivery with a read of a NetworkConfiguration without an interface, after the interface
// has been added again. A user created its IPAllocation.
func TestInterfaceReturnsMeanwhile(t *testing.T) {
	t.Parallel()
	s := setUp(t)
	nn := s.network("net", "10.0.0.0/24", "", v1alpha2.StaticPool{IPv4Gateway: "10.0.0.1"})
	f := s.replica(s.config)
	s.createAllocation("a", "10.0.0.60")
	s.configuration("a", "net", eth0())
	s.reconcile(f, "a")
	interfaces := s.awaitReason("a", "NetworkConfigured").Spec.NetworkInterfaces
	write := func(to []v1alpha1.InterfaceSpec) {
		t.Helper()
		if err := s.edit("a", func(nc *v1alpha1.NetworkConfiguration) { nc.Spec.NetworkInterfaces = to }); err != nil {
			t.Fatal(err)
		}
	}
	write(nil)
	stale := s.awaitReason("a", "NetworkConfigured")
	write(interfaces)
	if _, err := f.configurations().deleteObsolete(t.Context(), stale, nn); !kube.Conflict(err) {
		t.Errorf("got %v, want a conflict", err)
	}
	if a := s.awaitAllocation("a-eth0", "Allocated"); a.DeletionTimestamp != nil {
		t.Error("the address of an interface that exists is being released")
	}
}

// TestLateDelivery continues a delivery with a stale read of an interface, after another delivery has
// released the interface's addresses.
func TestLateDelivery(t *testing.T) {
	t.Parallel()
	s := setUp(t)
	s.network("net", "10.0.0.0/24", "", v1alpha2.StaticPool{IPv4Gateway: "10.0.0.1"})
	f := s.replica(s.config)
	s.configuration("a", "net", eth0())
	s.reconcile(f, "a")
	s.awaitReason("a", "NetworkConfigured")
	late, nn := s.awaitAllocation("a-eth0", "Allocated"), &v1alpha2.NetworkNamespace{}
	if err := s.kube.Get(t.Context(), s.namespace, "net", nn); err != nil {
		t.Fatal(err)
	}
	if err := s.edit("a", func(nc *v1alpha1.NetworkConfiguration) { nc.Spec.NetworkInterfaces = nil }); err != nil {
		t.Fatal(err)
	}
	s.reconcile(f, "a")
	deleted := &v1alpha2.IPAllocation{}
	if err := s.kube.Get(t.Context(), s.namespace, late.Name, deleted); err != nil {
		t.Fatal(err)
	}
	if err := f.allocations().deleteAllocation(t.Context(), deleted); err != nil {
		t.Fatal(err)
	}
	if _, err := f.allocations().allocateAddress(t.Context(), nn, &v1alpha1.NetworkConfiguration{}, late, string(macFor("a", "eth0")), false); err != nil && !kube.NotFound(err) {
		t.Fatal(err)
	}
	left := &coordinationv1.LeaseList{}
	if err := s.kube.List(t.Context(), s.namespace, "", left); err != nil {
		t.Fatal(err)
	}
	if len(left.Items) > 0 {
		t.Errorf("%d Leases are left of a removed interface, the first is %s", len(left.Items), left.Items[0].Name)
	}
}
