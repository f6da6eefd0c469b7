package main

import (
	"context"
	"errors"
	"fmt"
	"net/netip"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/cloudevents/sdk-go/v2/event"
	coordinationv1 "k8s.io/api/coordination/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/vitistack/stack/apis/network/ipam"
	"github.com/vitistack/stack/apis/v1alpha1"
	"github.com/vitistack/stack/apis/v1alpha2"
	"github.com/vitistack/stack/events"
	"github.com/vitistack/stack/functions/internal/kube"
	"github.com/vitistack/stack/tests/stand/feed"
)

func TestReleaseDelaysReuse(t *testing.T) {
	t.Parallel()
	s := setUp(t)
	nn := s.network("net", "10.0.0.0/30", "", v1alpha2.StaticPool{IPv4Gateway: "10.0.0.1", ReuseDelaySeconds: 60})
	now := time.Now()
	clock := func() time.Time { return now }
	f := s.replica(s.config)
	f.leases.now = clock
	p, err := ipam.New(nn, v1alpha2.IPv4)
	if err != nil {
		t.Fatal(err)
	}
	choose := func(uid string) (netip.Addr, error) {
		a := &v1alpha2.IPAllocation{ObjectMeta: metav1.ObjectMeta{Namespace: s.namespace, Name: "a" + uid, UID: types.UID(uid)}}
		return f.allocations().claimFromPool(t.Context(), nn, p, a, holderOf(a, 0))
	}
	if _, err := choose("1"); err != nil {
		t.Fatal(err)
	}
	if err := f.leases.releaseAll(t.Context(), holder{uid: "1", namespace: s.namespace, name: "a1"}, reuseDelay(nn)); err != nil {
		t.Fatal(err)
	}
	if _, err := choose("2"); !errors.Is(err, errExhausted) {
		t.Errorf("within the delay: got %v, want the pool to be exhausted", err)
	}
	now = now.Add(61 * time.Second)
	if a, err := choose("2"); err != nil || a.String() != "10.0.0.2" {
		t.Errorf("after the delay: got %s, %v", a, err)
	}
	if _, err := f.leases.deleteUnused(t.Context(), s.namespace, leaseName("net", netip.MustParseAddr("10.0.0.2"))); err != nil {
		t.Fatal(err)
	}
	if err := s.kube.Get(t.Context(), s.namespace, leaseName("net", netip.MustParseAddr("10.0.0.2")), &coordinationv1.Lease{}); !kube.NotFound(err) {
		t.Errorf("the unused Lease of a holder that does not exist must be deleted, got %v", err)
	}
}

// TestInterfaceGoesEarly removes an interface after its allocation and before the status mentions it.
// Only the IPAllocation itself records the address.
func TestInterfaceGoesEarly(t *testing.T) {
	t.Parallel()
	s := setUp(t)
	s.network("net", "10.0.0.0/24", "", v1alpha2.StaticPool{IPv4Gateway: "10.0.0.1"})
	s.configuration("web", "net", eth0(), v1alpha1.InterfaceSpec{Name: "eth1", MACAddress: "02:00:00:00:00:02"})
	nc := &v1alpha1.NetworkConfiguration{}
	if err := s.kube.Get(t.Context(), s.namespace, "web", nc); err != nil {
		t.Fatal(err)
	}
	nn := &v1alpha2.NetworkNamespace{}
	if err := s.kube.Get(t.Context(), s.namespace, "net", nn); err != nil {
		t.Fatal(err)
	}
	f := s.replica(s.config)
	for _, want := range requiredAllocations(nc, nn) {
		if _, err := f.configurations().ensureAllocation(t.Context(), nc, nn, want, nil); err != nil {
			t.Fatal(err)
		}
	}
	before := nc.DeepCopy()
	nc.Spec.NetworkInterfaces = nc.Spec.NetworkInterfaces[:1]
	if _, err := s.kube.Patch(t.Context(), before, nc); err != nil {
		t.Fatal(err)
	}
	s.serve(1)
	s.awaitReason("web", "NetworkConfigured")
	feed.Until(t, "the IPAllocation of the removed interface is deleted", func() (bool, string) {
		err := s.kube.Get(t.Context(), s.namespace, "web-eth1", &v1alpha2.IPAllocation{})
		return kube.NotFound(err), fmt.Sprint(err)
	})
	s.requireConsistentLeases()
}

func TestTTL(t *testing.T) {
	t.Parallel()
	s := setUp(t)
	s.network("net", "10.0.0.0/24", "", v1alpha2.StaticPool{IPv4Gateway: "10.0.0.1", TTLSeconds: 60})
	now := time.Now()
	f := s.replica(s.config)
	f.now = func() time.Time { return now }
	f.leases.now = f.now
	nc := s.configuration("web", "net", eth0())
	reconcile := func() *v1alpha2.IPAllocation {
		t.Helper()
		a := &v1alpha2.IPAllocation{}
		if err := errors.Join(f.allocations().reconcileAllocation(t.Context(), s.namespace, "web-eth0", events.TypeRefUpdate), s.kube.Get(t.Context(), s.namespace, "web-eth0", a)); err != nil {
			t.Fatal(err)
		}
		return a
	}
	if err := f.configurations().reconcileConfiguration(t.Context(), s.namespace, "web", true); err != nil {
		t.Fatal(err)
	}
	first := reconcile()
	now = now.Add(31 * time.Second)
	second := reconcile()
	if !second.Status.ExpiresAt.After(first.Status.ExpiresAt.Time) {
		t.Errorf("after half of the TTL, the expiry %v is not after %v", second.Status.ExpiresAt, first.Status.ExpiresAt)
	}
	if err := s.kube.Get(t.Context(), s.namespace, "web", nc); err != nil {
		t.Fatal(err)
	}
	if got := nc.Status.NetworkInterfaces[0].AllocationExpiry; !got.Equal(second.Status.ExpiresAt) {
		t.Errorf("the NetworkConfiguration reports %v, its allocation %v", got, second.Status.ExpiresAt)
	}
	if err := s.kube.Delete(t.Context(), nc); err != nil {
		t.Fatal(err)
	}
	now = now.Add(31 * time.Second)
	if a := reconcile(); a.Status.Phase != "Allocated" {
		t.Errorf("an address stays allocated until it expires, got phase %s", a.Status.Phase)
	}
	now = now.Add(31 * time.Second)
	if a := reconcile(); a.Status.Phase != "Released" || a.Status.Address != "" {
		t.Errorf("an expired address is released, got phase %s with address %q", a.Status.Phase, a.Status.Address)
	}
	s.requireConsistentLeases()
}

// change edits a network and writes its status first, because the present spec decides the terms of a
// moved segment.
func (s *env) change(name string, edit func(*v1alpha2.NetworkNamespace)) {
	s.Helper()
	for _, status := range []bool{true, false} {
		nn := &v1alpha2.NetworkNamespace{}
		if err := s.kube.Get(s.Context(), s.namespace, name, nn); err != nil {
			s.Fatal(err)
		}
		before := nn.DeepCopy()
		edit(nn)
		write := s.kube.Patch
		if status {
			write = s.kube.PatchStatus
		}
		if _, err := write(s.Context(), before, nn); err != nil {
			s.Fatal(err)
		}
	}
}

// awaitAllocation waits until an allocation has a reason, and returns the allocation.
func (s *env) awaitAllocation(name, reason string) *v1alpha2.IPAllocation {
	s.Helper()
	var a *v1alpha2.IPAllocation
	feed.Until(s.T, name+" is "+reason, func() (bool, string) {
		a = &v1alpha2.IPAllocation{}
		if err := s.kube.Get(s.Context(), s.namespace, name, a); err != nil {
			return false, err.Error()
		}
		return reasonOf(a.Status.Conditions) == reason, string(a.Status.Phase) + ": " + a.Status.Message
	})
	return a
}

// TestPoolMoves excludes allocated addresses from the pool: first a part of the range, then the whole
// segment.
func TestPoolMoves(t *testing.T) {
	t.Parallel()
	s := setUp(t)
	s.network("net", "10.0.0.0/24", "", v1alpha2.StaticPool{IPv4Gateway: "10.0.0.1"})
	s.serve(1)
	i := eth0()
	i.IPv4Addresses = []v1alpha2.IPv4Address{"10.0.0.77"}
	s.configuration("web", "net", i)
	own := &v1alpha2.IPAllocation{ObjectMeta: metav1.ObjectMeta{Namespace: s.namespace, Name: "own"}}
	own.Spec = v1alpha2.IPAllocationSpec{NetworkNamespaceName: "net", RequestedAddress: "10.0.0.78"}
	if err := s.kube.Create(t.Context(), own); err != nil {
		t.Fatal(err)
	}
	s.awaitReason("web", "NetworkConfigured")
	s.awaitAllocation("own", "Allocated")

	check := func(what, reason, says string) {
		t.Helper()
		for name, address := range map[string]string{"web-eth0": "10.0.0.77", "own": "10.0.0.78"} {
			a := s.awaitAllocation(name, reason)
			if a.Status.Phase != "Allocated" || a.Status.Address != address || a.Status.Gateway != "10.0.0.1" || a.Status.Prefix != 24 {
				t.Errorf("%s: %s has %+v, want to keep %s", what, name, a.Status, address)
			}
		}
		var nc *v1alpha1.NetworkConfiguration
		feed.Until(t, what+": the NetworkConfiguration says "+says, func() (bool, string) {
			nc = s.awaitReason("web", "NetworkConfigured")
			return strings.HasSuffix(nc.Status.Message, says), nc.Status.Message
		})
		if got := nc.Status.NetworkInterfaces[0]; got.IPv4Addresses[0] != "10.0.0.77" || got.IPv4Subnet != "10.0.0.0/24" || got.IPv4Gateway != "10.0.0.1" {
			t.Errorf("%s: the interface has %+v", what, got)
		}
	}
	s.change("net", func(nn *v1alpha2.NetworkNamespace) { nn.Spec.IPAllocation.Static.IPv4RangeEnd = "10.0.0.50" })
	check("the range shrank", reasonOutside, ": 10.0.0.77")
	s.change("net", func(nn *v1alpha2.NetworkNamespace) { nn.Spec.IPAllocation.Static.IPv4RangeEnd = "10.0.0.99" })
	check("the range grew again", "Allocated", "every interface has its addresses")
	s.change("net", func(nn *v1alpha2.NetworkNamespace) {
		nn.Status.IPv4Prefix, nn.Status.IPv4Gateway = "10.9.0.0/24", "10.9.0.1"
	})
	check("the segment moved", reasonOutside, ": 10.0.0.77")
	s.requireConsistentLeases()
}

// TestControlPlaneIsKept allocates an address for a control plane whose cluster names that address as
// its endpoint.
func TestControlPlaneIsKept(t *testing.T) {
	t.Parallel()
	s := setUp(t)
	s.network("net", "10.0.0.0/29", "", v1alpha2.StaticPool{IPv4Gateway: "10.0.0.1", IPv4RangeEnd: "10.0.0.4"})
	cluster := &v1alpha1.KubernetesCluster{ObjectMeta: metav1.ObjectMeta{Namespace: s.namespace, Name: "shop"}}
	cluster.Spec.Topology = v1alpha1.ClusterTopology{Version: "1.33", ControlPlane: v1alpha1.ControlPlaneTopology{Replicas: 1}}
	cluster.Spec.ControlPlaneEndpoint = &v1alpha1.ControlPlaneEndpoint{Mode: v1alpha1.EndpointVIP, Address: "10.0.0.3"}
	if err := s.kube.Create(t.Context(), cluster); err != nil {
		t.Fatal(err)
	}
	feed.Until(t, "the API server's cache has the cluster", func() (bool, string) {
		list := &v1alpha1.KubernetesClusterList{}
		err := s.kube.ListCached(t.Context(), s.namespace, "", list)
		return len(list.Items) == 1, fmt.Sprint(err)
	})
	s.serve(1)
	for _, name := range []string{"one", "two", "three"} {
		s.configuration(name, "net", eth0())
	}
	feed.Until(t, "two of three NetworkConfigurations have an address", func() (bool, string) {
		list := &v1alpha2.IPAllocationList{}
		if err := s.kube.List(t.Context(), s.namespace, "", list); err != nil {
			return false, err.Error()
		}
		var got []string
		waiting := 0
		for _, a := range list.Items {
			if a.Status.Address != "" {
				got = append(got, a.Status.Address)
			} else if isPoolExhausted(&a) {
				waiting++
			}
		}
		slices.Sort(got)
		return waiting == 1 && slices.Equal(got, []string{"10.0.0.2", "10.0.0.4"}), strings.Join(got, ", ")
	})
	vip := &v1alpha2.IPAllocation{ObjectMeta: metav1.ObjectMeta{Namespace: s.namespace, Name: "shop-vip"}}
	vip.Spec = v1alpha2.IPAllocationSpec{NetworkNamespaceName: "net", RequestedAddress: "10.0.0.3"}
	if err := s.kube.Create(t.Context(), vip); err != nil {
		t.Fatal(err)
	}
	if got := s.awaitAllocation("shop-vip", "Allocated").Status.Address; got != "10.0.0.3" {
		t.Errorf("the control plane requests the endpoint of its cluster, and got %s", got)
	}
}

// TestOldestIsServedFirstOfARange enlarges a range by one address while several requests wait. The
// oldest request gets it, even though its name sorts last.
func TestOldestIsServedFirstOfARange(t *testing.T) {
	t.Parallel()
	s := setUp(t)
	s.network("net", "10.0.0.0/24", "", v1alpha2.StaticPool{IPv4RangeStart: "10.0.0.10", IPv4RangeEnd: "10.0.0.10"})
	s.serve(2)
	s.configuration("holder", "net", eth0())
	s.awaitReason("holder", "NetworkConfigured")
	for _, name := range []string{"c", "b"} {
		s.configuration(name, "net", eth0())
		s.awaitReason(name, "PoolExhausted")
		next := time.Now().Truncate(time.Second).Add(time.Second) // creation timestamps have a resolution of one second
		feed.Until(t, "the next second", func() (bool, string) { return time.Now().After(next), "" })
	}
	s.change("net", func(nn *v1alpha2.NetworkNamespace) { nn.Spec.IPAllocation.Static.IPv4RangeEnd = "10.0.0.11" })
	s.configuration("a", "net", eth0())
	s.awaitReason("c", "NetworkConfigured")
	s.awaitReason("a", "PoolExhausted")
	s.awaitReason("b", "PoolExhausted")
	s.change("net", func(nn *v1alpha2.NetworkNamespace) { nn.Spec.IPAllocation.Static.IPv4RangeEnd = "10.0.0.13" })
	s.awaitReason("b", "NetworkConfigured")
	s.awaitReason("a", "NetworkConfigured")
	s.requireConsistentLeases()
}

// requeued is a broker that delivers nothing and records the names of the requeued objects.
type requeued struct{ names []string }

func (w *requeued) Send(_ context.Context, e event.Event) error {
	ref, err := events.RefOf(e)
	w.names = append(w.names, ref.Name)
	return err
}

// TestNextIsRequeued releases one address while three requests wait: the event that requeues the next
// one is enough.
func TestNextIsRequeued(t *testing.T) {
	t.Parallel()
	s := setUp(t)
	f, sent := s.replica(s.config), &requeued{}
	f.sender = sent
	look := func(name string) {
		if err := f.configurations().reconcileConfiguration(t.Context(), s.namespace, name, false); err != nil {
			t.Fatal(err)
		}
	}
	s.network("net", "10.0.0.0/24", "", v1alpha2.StaticPool{IPv4RangeStart: "10.0.0.10", IPv4RangeEnd: "10.0.0.10"})
	for _, name := range []string{"holder", "a", "b"} {
		s.configuration(name, "net", eth0())
		look(name)
	}
	s.change("net", func(nn *v1alpha2.NetworkNamespace) { nn.Spec.IPAllocation.Static.IPv4RangeEnd = "10.0.0.11" })
	look("a")
	s.awaitReason("a", "NetworkConfigured")
	if want := []string{"b-eth0"}; !slices.Equal(sent.names, want) {
		t.Errorf("requeued: %v, want %v", sent.names, want)
	}
}

// TestNetworkRequeuesWhatWaitsForIt changes a network while a NetworkConfiguration waits for it, for
// each reason to wait.
func TestNetworkRequeuesWhatWaitsForIt(t *testing.T) {
	t.Parallel()
	s := setUp(t)
	f, sent := s.replica(s.config), &requeued{}
	f.sender = sent
	s.network("net", "10.0.0.0/24", "", v1alpha2.StaticPool{IPv4RangeStart: "10.0.0.10", IPv4RangeEnd: "10.0.0.10"})
	s.configuration("nic", "net", eth0())
	none, nic := []string(nil), []string{"nic"}
	count := func(nn *v1alpha2.NetworkNamespace) {
		nn.Status.IPAllocationSummary = &v1alpha2.IPAllocationSummary{AllocatedCount: 1}
	}
	for _, step := range []struct {
		reason string
		waits  string
		full   bool
		change func(nn *v1alpha2.NetworkNamespace)
		want   []string
	}{
		{"no delivery has written its condition", "", false, func(*v1alpha2.NetworkNamespace) {}, nic},
		{"the network may have the requested VLAN now", "VLANMismatch", false, func(nn *v1alpha2.NetworkNamespace) { nn.Status.VLANID++ }, nic},
		{"the pool may include the address now", "AddressOutsidePool", false, func(nn *v1alpha2.NetworkNamespace) { nn.Spec.IPAllocation.Static.IPv4RangeEnd = "10.0.0.20" }, nic},
		{"a Machine adds the MAC address, the network does not", "WaitingForMAC", false, count, none},
		{"another object has the address, whatever the pool", "AddressTaken", false, count, none},
		{"another object has the MAC address", reasonDuplicateMAC, false, count, none},
		{"its IPAllocation is requeued instead", "PoolExhausted", true, count, none},
		{"an event may have been lost", "WaitingForMAC", true, func(*v1alpha2.NetworkNamespace) {}, nic},
		{"a user requests a reconcile", "WaitingForMAC", false, func(nn *v1alpha2.NetworkNamespace) {
			metav1.SetMetaDataAnnotation(&nn.ObjectMeta, v1alpha1.AnnotationReconcile, "now")
		}, nic},
	} {
		if step.waits != "" {
			nc := &v1alpha1.NetworkConfiguration{}
			if err := s.kube.Get(t.Context(), s.namespace, "nic", nc); err != nil {
				t.Fatal(err)
			}
			before := nc.DeepCopy()
			setWaiting(nc, step.waits, step.reason)
			if _, err := s.kube.PatchStatus(t.Context(), before, nc); err != nil {
				t.Fatal(err)
			}
		}
		sent.names = nil
		s.change("net", step.change)
		if err := f.requeueNetwork(t.Context(), s.namespace, "net", step.full); err != nil {
			t.Fatal(err)
		}
		if !slices.Equal(sent.names, step.want) {
			t.Errorf("%s: requeued %v, want %v", step.reason, sent.names, step.want)
		}
	}
	nn := &v1alpha2.NetworkNamespace{ObjectMeta: metav1.ObjectMeta{Namespace: s.namespace, Name: "net"}}
	if err := errors.Join(s.kube.Delete(t.Context(), nn), f.requeueNetwork(t.Context(), s.namespace, "net", false)); err != nil {
		t.Fatal(err)
	}
}
