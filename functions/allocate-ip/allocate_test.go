package main

import (
	"errors"
	"fmt"
	"net/http"
	"net/netip"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/rest"

	"github.com/vitistack/stack/apis/v1alpha1"
	"github.com/vitistack/stack/apis/v1alpha2"
	"github.com/vitistack/stack/functions/internal/kube"
	"github.com/vitistack/stack/tests/stand/feed"
)

func TestConfigurationGetsItsAddresses(t *testing.T) {
	t.Parallel()
	s := setUp(t)
	s.serve(1)
	s.configuration("web", "", eth0(), v1alpha1.InterfaceSpec{Name: "eth1"})
	s.awaitReason("web", "NoNetworkNamespace")
	s.network("net", "192.168.10.0/24", "2001:db8::/64", v1alpha2.StaticPool{
		IPv4Gateway: "192.168.10.1", IPv6Gateway: "2001:db8::1", IPv4RangeStart: "192.168.10.10", IPv4RangeEnd: "192.168.10.10", DNS: []string{"192.168.10.53"},
	})
	nc := s.awaitReason("web", "WaitingForMAC")
	before := nc.DeepCopy()
	nc.Spec.NetworkInterfaces = nc.Spec.NetworkInterfaces[:1]
	if _, err := s.kube.Patch(t.Context(), before, nc); err != nil {
		t.Fatal(err)
	}
	got := s.awaitReason("web", "NetworkConfigured").Status
	if len(got.NetworkInterfaces) != 1 || len(got.NetworkInterfaces[0].IPv6Addresses) != 1 {
		t.Fatalf("got %+v", got)
	}
	v6 := netip.MustParseAddr(got.NetworkInterfaces[0].IPv6Addresses[0])
	if !netip.MustParsePrefix("2001:db8::/64").Contains(v6) {
		t.Errorf("IPv6 address %s is not in a prefix of the network", v6)
	}
	want := v1alpha1.InterfaceStatus{
		Name: "eth0", MACAddress: macFor("web", "eth0"), IPv4Addresses: []string{"192.168.10.10"}, IPv6Addresses: []string{v6.String()}, VLAN: "7",
		IPv4Subnet: "192.168.10.0/24", IPv6Subnet: "2001:db8::/64", IPv4Gateway: "192.168.10.1", IPv6Gateway: "2001:db8::1",
		DNS: []string{"192.168.10.53"}, IPAllocated: true, AllocationMethod: "static",
	}
	if diff := cmp.Diff(want, got.NetworkInterfaces[0]); diff != "" || got.Phase != "Ready" || got.NetworkNamespaceName != "net" {
		t.Errorf("phase %s, network %s, interface (-want +got):\n%s", got.Phase, got.NetworkNamespaceName, diff)
	}
	a := &v1alpha2.IPAllocation{}
	if err := s.kube.Get(t.Context(), s.namespace, "web-eth0", a); err != nil {
		t.Fatal(err)
	}
	if a.Status.Phase != "Allocated" || a.Status.Prefix != 24 || a.Status.Gateway != "192.168.10.1" || a.Status.VLANID != 7 {
		t.Errorf("IPAllocation: %+v", a.Status)
	}
	s.requireConsistentLeases()
}

// TestServersKeepTheirAddresses has a network whose DNS servers are in its prefix. Only a machine that requests one of their addresses gets it.
func TestServersKeepTheirAddresses(t *testing.T) {
	t.Parallel()
	s := setUp(t)
	s.serve(1)
	s.network("net", "10.0.0.0/29", "", v1alpha2.StaticPool{IPv4Gateway: "10.0.0.1", DNS: []string{"10.0.0.2", "10.0.0.3", "10.0.0.4", "10.0.0.5"}})
	s.configuration("web", "net", eth0())
	if got := s.awaitReason("web", "NetworkConfigured").Status.NetworkInterfaces[0].IPv4Addresses; !slices.Equal(got, []string{"10.0.0.6"}) {
		t.Errorf("got %v, want the only address that no server has", got)
	}
	resolver := eth0()
	resolver.IPv4Addresses = []v1alpha2.IPv4Address{"10.0.0.3"}
	s.configuration("resolver", "net", resolver)
	if got := s.awaitReason("resolver", "NetworkConfigured").Status.NetworkInterfaces[0].IPv4Addresses; !slices.Equal(got, []string{"10.0.0.3"}) {
		t.Errorf("a machine that requests the address of a DNS server is that server: got %v", got)
	}
	s.configuration("db", "net", eth0())
	s.awaitReason("db", "PoolExhausted")
}

func TestRequestedAddress(t *testing.T) {
	t.Parallel()
	s := setUp(t)
	s.serve(1)
	s.network("net", "10.0.0.0/24", "", v1alpha2.StaticPool{IPv4Gateway: "10.0.0.1"})
	asking := func(name, address string) {
		i := eth0()
		i.IPv4Addresses = []v1alpha2.IPv4Address{v1alpha2.IPv4Address(address)}
		s.configuration(name, "net", i)
	}
	asking("first", "10.0.0.77")
	if got := s.awaitReason("first", "NetworkConfigured").Status.NetworkInterfaces[0].IPv4Addresses; !slices.Equal(got, []string{"10.0.0.77"}) {
		t.Errorf("asked for 10.0.0.77, got %v", got)
	}
	for name, tc := range map[string]struct{ address, reason, says string }{
		"taken":   {"10.0.0.77", "AddressTaken", "IPAllocation first-eth0"},
		"outside": {"10.0.1.7", "AddressOutsidePool", "address 10.0.1.7 is outside of the pool: request one of 10.0.0.2-10.0.0.254,"},
		"gateway": {"10.0.0.1", "AddressOutsidePool", "10.0.0.1"},
	} {
		asking(name, tc.address)
		nc := s.awaitReason(name, tc.reason)
		if !strings.Contains(nc.Status.Message, tc.says) || nc.Status.Phase != "Error" {
			t.Errorf("%s: phase %s, message %q, want %q in it", name, nc.Status.Phase, nc.Status.Message, tc.says)
		}
	}
	if n := s.requireConsistentLeases(); n != 1 {
		t.Errorf("%d addresses were allocated, want 1: a requested address is never replaced by another", n)
	}
}

func TestOldestIsServedFirst(t *testing.T) {
	t.Parallel()
	s := setUp(t)
	s.network("net", "10.0.0.0/30", "", v1alpha2.StaticPool{IPv4Gateway: "10.0.0.1"})
	s.serve(2)
	s.configuration("holder", "net", eth0())
	s.awaitReason("holder", "NetworkConfigured")
	for _, name := range []string{"one", "two"} {
		s.configuration(name, "net", eth0())
		s.awaitReason(name, "PoolExhausted")
		next := time.Now().Truncate(time.Second).Add(time.Second) // creation timestamps have a resolution of one second
		feed.Until(t, "the next second", func() (bool, string) { return time.Now().After(next), "" })
	}
	s.awaitWarning("one", "PoolExhausted")
	release := func(name string) {
		a := &v1alpha2.IPAllocation{ObjectMeta: metav1.ObjectMeta{Namespace: s.namespace, Name: name + "-eth0"}}
		nc := &v1alpha1.NetworkConfiguration{ObjectMeta: metav1.ObjectMeta{Namespace: s.namespace, Name: name}}
		if err := errors.Join(s.kube.Delete(t.Context(), nc), s.kube.Delete(t.Context(), a)); err != nil {
			t.Fatal(err)
		}
	}
	release("holder")
	s.awaitReason("one", "NetworkConfigured")
	s.awaitReason("two", "PoolExhausted")
	release("one")
	s.awaitReason("two", "NetworkConfigured")
	s.requireConsistentLeases()
}

func TestPoolGrows(t *testing.T) {
	t.Parallel()
	s := setUp(t)
	nn := s.network("net", "10.0.0.0/24", "", v1alpha2.StaticPool{IPv4RangeStart: "10.0.0.10", IPv4RangeEnd: "10.0.0.10"})
	s.serve(2)
	for i := range 6 {
		s.configuration(fmt.Sprintf("c%d", i), "net", eth0())
	}
	feed.Until(t, "one of six NetworkConfigurations has the only address", func() (bool, string) {
		list := &v1alpha2.IPAllocationList{}
		if err := s.kube.List(t.Context(), s.namespace, "", list); err != nil {
			return false, err.Error()
		}
		waiting := slices.DeleteFunc(list.Items, func(a v1alpha2.IPAllocation) bool { return !isPoolExhausted(&a) })
		return len(waiting) == 5, fmt.Sprintf("%d wait", len(waiting))
	})
	if err := s.kube.Get(t.Context(), s.namespace, "net", nn); err != nil {
		t.Fatal(err)
	}
	before := nn.DeepCopy()
	nn.Spec.IPAllocation.Static.IPv4RangeEnd = "10.0.0.99"
	if _, err := s.kube.Patch(t.Context(), before, nn); err != nil {
		t.Fatal(err)
	}
	for i := range 6 {
		s.awaitReason(fmt.Sprintf("c%d", i), "NetworkConfigured")
	}
	if n := s.requireConsistentLeases(); n != 6 {
		t.Errorf("%d addresses, want 6", n)
	}
}

// TestBurst requests more addresses than the pool has, all at once, from eight replicas.
func TestBurst(t *testing.T) {
	t.Parallel()
	s := setUp(t)
	s.network("net", "10.0.0.0/25", "", v1alpha2.StaticPool{IPv4Gateway: "10.0.0.1"})
	var replicas []*function
	for range 8 {
		replicas = append(replicas, s.replica(s.config))
	}
	const holders, size = 150, 125
	var group sync.WaitGroup
	for i := range holders {
		nc := s.configuration(fmt.Sprintf("c%d", i), "net", eth0())
		for _, f := range replicas[i%8 : i%8+1] {
			group.Go(func() {
				for range 2 { // every event is delivered twice
					if err := kube.OnConflict(func() error {
						return f.configurations().reconcileConfiguration(t.Context(), s.namespace, nc.Name, true)
					}); err != nil && !kube.Conflict(err) {
						t.Error(err)
					}
				}
			})
		}
	}
	group.Wait()
	if n := s.requireConsistentLeases(); n != size {
		t.Errorf("%d of %d holders have an address, want all %d of the pool", n, holders, size)
	}
}

// dying is the connection of a process that dies: after a number of writes, every request fails.
type dying struct {
	http.RoundTripper
	left atomic.Int32
}

var errDead = errors.New("the process is dead")

func (d *dying) RoundTrip(req *http.Request) (*http.Response, error) {
	if req.Method != http.MethodGet && d.left.Add(-1) < 0 {
		return nil, errDead
	}
	res, err := d.RoundTripper.RoundTrip(req)
	if d.left.Load() < 0 {
		return nil, errDead
	}
	return res, err
}

// TestProcessDiesBetweenWrites kills the function after each of its writes. Another process takes
// over.
func TestProcessDiesBetweenWrites(t *testing.T) {
	t.Parallel()
	s := setUp(t)
	s.network("net", "10.0.0.0/28", "", v1alpha2.StaticPool{IPv4Gateway: "10.0.0.1"})
	s.configuration("other", "net", eth0())
	if err := s.replica(s.config).configurations().reconcileConfiguration(t.Context(), s.namespace, "other", true); err != nil {
		t.Fatal(err)
	}
	const writes = 8
	for n := range writes {
		name := fmt.Sprintf("c%d", n)
		s.configuration(name, "net", eth0())
		config := rest.CopyConfig(s.config)
		d := &dying{}
		d.left.Store(int32(n))
		config.Wrap(func(rt http.RoundTripper) http.RoundTripper { d.RoundTripper = rt; return d })
		_ = s.replica(config).configurations().reconcileConfiguration(t.Context(), s.namespace, name, true)
		if err := s.replica(s.config).configurations().reconcileConfiguration(t.Context(), s.namespace, name, true); err != nil {
			t.Fatalf("after %d writes: %v", n, err)
		}
		s.awaitReason(name, "NetworkConfigured")
	}
	if n := s.requireConsistentLeases(); n != writes+1 {
		t.Errorf("%d addresses for %d holders", n, writes+1)
	}
}
