package main

import (
	"context"
	"crypto/sha256"
	"errors"
	"fmt"
	"net/http"
	"net/netip"
	"os"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/cloudevents/sdk-go/v2/event"
	"github.com/google/go-cmp/cmp"
	coordinationv1 "k8s.io/api/coordination/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/rest"

	"github.com/vitistack/stack/apis/v1alpha1"
	"github.com/vitistack/stack/apis/v1alpha2"
	"github.com/vitistack/stack/functions/internal/kube"
	"github.com/vitistack/stack/tests/stand/apiserver"
	"github.com/vitistack/stack/tests/stand/feed"
)

func TestMain(m *testing.M) { os.Exit(apiserver.Run(m)) }

// stand is an API server on which functions allocate addresses.
type stand struct {
	*testing.T
	server    *apiserver.Server
	config    *rest.Config
	namespace string
	kube      *kube.Client
}

func setUp(t *testing.T) *stand {
	t.Helper()
	server := apiserver.Start(t)
	server.Install(t, "networknamespaces", "networkconfigurations", "ipallocations", "kubernetesclusters", "machines")
	s := &stand{T: t, server: server, config: server.Config(), namespace: server.Namespace(t)}
	s.kube = s.client(s.config)
	return s
}

func (s *stand) client(config *rest.Config) *kube.Client {
	s.Helper()
	c, err := kube.New(config, "test", v1alpha1.AddToScheme, v1alpha2.AddToScheme, kube.Events, leases)
	if err != nil {
		s.Fatal(err)
	}
	return c
}

// replica is one process of the function. What it sends to the broker comes back
// to itself.
func (s *stand) replica(config *rest.Config) *function {
	client := s.client(config)
	f := &function{kube: client, leases: &leaseStore{kube: client, now: time.Now}, now: time.Now}
	f.sender = loop{f}
	return f
}

// silent is a broker that loses everything.
type silent struct{}

func (silent) Send(context.Context, event.Event) error { return nil }

type loop struct{ f *function }

func (l loop) Send(ctx context.Context, e event.Event) error {
	_, err := l.f.handle(ctx, e)
	return err
}

// serve lets replicas of the function serve the namespace.
func (s *stand) serve(replicas int) {
	s.Helper()
	var all []*function
	for range replicas {
		all = append(all, s.replica(s.config))
	}
	var turn atomic.Int64
	handle := func(ctx context.Context, e event.Event) (*event.Event, error) {
		return all[int(turn.Add(1))%replicas].handle(ctx, e)
	}
	feed.Run(s.T, s.config, s.namespace, handle,
		feed.Kind{Resource: v1alpha1.GroupVersion.WithResource("networkconfigurations"), Name: "NetworkConfiguration"},
		feed.Kind{Resource: v1alpha2.GroupVersion.WithResource("ipallocations"), Name: "IPAllocation"},
		feed.Kind{Resource: v1alpha2.GroupVersion.WithResource("networknamespaces"), Name: "NetworkNamespace"},
	)
}

// network makes a network that is provisioned.
func (s *stand) network(name string, v4, v6 string, pool v1alpha2.StaticPool) *v1alpha2.NetworkNamespace {
	s.Helper()
	nn := &v1alpha2.NetworkNamespace{ObjectMeta: metav1.ObjectMeta{Namespace: s.namespace, Name: name}}
	nn.Spec.IPAllocation = &v1alpha2.IPAllocationPolicy{Type: v1alpha2.AllocationStatic, Static: &pool}
	if err := s.kube.Create(s.Context(), nn); err != nil {
		s.Fatal(err)
	}
	before := nn.DeepCopy()
	nn.Status = v1alpha2.NetworkNamespaceStatus{ProvisioningPhase: v1alpha2.ProvisioningReady, IPv4Prefix: v4, IPv6Prefix: v6, VLANID: 7}
	if _, err := s.kube.PatchStatus(s.Context(), before, nn); err != nil {
		s.Fatal(err)
	}
	return nn
}

func (s *stand) configuration(name, network string, interfaces ...v1alpha1.InterfaceSpec) *v1alpha1.NetworkConfiguration {
	s.Helper()
	nc := &v1alpha1.NetworkConfiguration{ObjectMeta: metav1.ObjectMeta{Namespace: s.namespace, Name: name}}
	nc.Spec.NetworkNamespaceName, nc.Spec.NetworkInterfaces = network, slices.Clone(interfaces)
	for i := range nc.Spec.NetworkInterfaces {
		if one := &nc.Spec.NetworkInterfaces[i]; one.MACAddress == anyMAC {
			one.MACAddress = macFor(name, one.Name)
		}
	}
	if err := s.kube.Create(s.Context(), nc); err != nil {
		s.Fatal(err)
	}
	return nc
}

// anyMAC stands for a MAC address of the interface's own, which configuration fills in.
const anyMAC = "02:00:00:00:00:01"

func eth0() v1alpha1.InterfaceSpec {
	return v1alpha1.InterfaceSpec{Name: "eth0", MACAddress: anyMAC}
}

// macFor is the MAC address of an interface of a NetworkConfiguration.
func macFor(nc, iface string) v1alpha1.MACAddress {
	sum := sha256.Sum256([]byte(nc + "/" + iface))
	return v1alpha1.MACAddress(fmt.Sprintf("02:%x:%x:%x:%x:%x", sum[0:1], sum[1:2], sum[2:3], sum[3:4], sum[4:5]))
}

// until waits until the condition Ready of a NetworkConfiguration has a reason.
func (s *stand) until(name, reason string) *v1alpha1.NetworkConfiguration {
	s.Helper()
	nc := &v1alpha1.NetworkConfiguration{}
	feed.Until(s.T, name+" is "+reason, func() (bool, string) {
		nc = &v1alpha1.NetworkConfiguration{}
		if err := s.kube.Get(s.Context(), s.namespace, name, nc); err != nil {
			return false, err.Error()
		}
		for _, c := range nc.Status.Conditions {
			if c.Type == "Ready" {
				return c.Reason == reason, c.Reason + ": " + c.Message
			}
		}
		return false, "no condition"
	})
	return nc
}

// consistent checks that every Lease has one holder that knows it, and every
// address one Lease.
func (s *stand) consistent() (allocated int) {
	s.Helper()
	allocations, all := &v1alpha2.IPAllocationList{}, &coordinationv1.LeaseList{}
	if err := s.kube.List(s.Context(), s.namespace, "", allocations); err != nil {
		s.Fatal(err)
	}
	if err := s.kube.List(s.Context(), s.namespace, "", all); err != nil {
		s.Fatal(err)
	}
	holders := map[string]string{}
	for _, a := range allocations.Items {
		if a.Status.Address == "" {
			continue
		}
		key := a.Spec.NetworkNamespaceName + "/" + a.Status.Address
		if other, taken := holders[key]; taken {
			s.Errorf("%s was given to %s and %s", key, other, a.Name)
		}
		holders[key] = a.Name
	}
	addresses := 0
	for _, l := range all.Items {
		if l.Annotations[annotationMAC] != "" {
			continue
		}
		addresses++
		key := l.Labels[v1alpha2.LabelNetworkNamespace] + "/" + l.Annotations[annotationAddress]
		if holders[key] != l.Annotations[annotationHolder] {
			s.Errorf("Lease %s says %s, but the address is %q's", l.Name, l.Annotations[annotationHolder], holders[key])
		}
	}
	if addresses != len(holders) {
		s.Errorf("%d Leases for %d addresses", addresses, len(holders))
	}
	return len(holders)
}

func TestConfigurationGetsItsAddresses(t *testing.T) {
	t.Parallel()
	s := setUp(t)
	s.serve(1)
	s.configuration("web", "", eth0(), v1alpha1.InterfaceSpec{Name: "eth1"})
	s.until("web", "NoNetworkNamespace")
	s.network("net", "192.168.10.0/24", "2001:db8::/64", v1alpha2.StaticPool{
		IPv4Gateway: "192.168.10.1", IPv6Gateway: "2001:db8::1", IPv4RangeStart: "192.168.10.10", IPv4RangeEnd: "192.168.10.10", DNS: []string{"192.168.10.53"},
	})
	nc := s.until("web", "WaitingForMAC")
	before := nc.DeepCopy()
	nc.Spec.NetworkInterfaces = nc.Spec.NetworkInterfaces[:1]
	if _, err := s.kube.Patch(t.Context(), before, nc); err != nil {
		t.Fatal(err)
	}
	got := s.until("web", "NetworkConfigured").Status
	if len(got.NetworkInterfaces) != 1 || len(got.NetworkInterfaces[0].IPv6Addresses) != 1 {
		t.Fatalf("got %+v", got)
	}
	v6 := netip.MustParseAddr(got.NetworkInterfaces[0].IPv6Addresses[0])
	if !netip.MustParsePrefix("2001:db8::/64").Contains(v6) {
		t.Errorf("IPv6 address %s is not of the network", v6)
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
	s.consistent()
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
	if got := s.until("first", "NetworkConfigured").Status.NetworkInterfaces[0].IPv4Addresses; !slices.Equal(got, []string{"10.0.0.77"}) {
		t.Errorf("asked for 10.0.0.77, got %v", got)
	}
	for name, tc := range map[string]struct{ address, reason, says string }{
		"taken":   {"10.0.0.77", "AddressTaken", "IPAllocation first-eth0"},
		"outside": {"10.0.1.7", "AddressOutsidePool", "10.0.1.7"},
		"gateway": {"10.0.0.1", "AddressOutsidePool", "10.0.0.1"},
	} {
		asking(name, tc.address)
		nc := s.until(name, tc.reason)
		if !strings.Contains(nc.Status.Message, tc.says) || nc.Status.Phase != "Error" {
			t.Errorf("%s: phase %s, message %q, want %q in it", name, nc.Status.Phase, nc.Status.Message, tc.says)
		}
	}
	if n := s.consistent(); n != 1 {
		t.Errorf("%d addresses were given out, want 1: another than the one asked for must never be given", n)
	}
}

func TestOldestIsServedFirst(t *testing.T) {
	t.Parallel()
	s := setUp(t)
	s.network("net", "10.0.0.0/30", "", v1alpha2.StaticPool{IPv4Gateway: "10.0.0.1"})
	s.serve(2)
	s.configuration("holder", "net", eth0())
	s.until("holder", "NetworkConfigured")
	for _, name := range []string{"one", "two"} {
		s.configuration(name, "net", eth0())
		s.until(name, "PoolExhausted")
		next := time.Now().Truncate(time.Second).Add(time.Second) // creation is dated by the second
		feed.Until(t, "the next second", func() (bool, string) { return time.Now().After(next), "" })
	}
	release := func(name string) {
		a := &v1alpha2.IPAllocation{ObjectMeta: metav1.ObjectMeta{Namespace: s.namespace, Name: name + "-eth0"}}
		nc := &v1alpha1.NetworkConfiguration{ObjectMeta: metav1.ObjectMeta{Namespace: s.namespace, Name: name}}
		if err := errors.Join(s.kube.Delete(t.Context(), nc), s.kube.Delete(t.Context(), a)); err != nil {
			t.Fatal(err)
		}
	}
	release("holder")
	s.until("one", "NetworkConfigured")
	s.until("two", "PoolExhausted")
	release("one")
	s.until("two", "NetworkConfigured")
	s.consistent()
}

func TestPoolGrows(t *testing.T) {
	t.Parallel()
	s := setUp(t)
	nn := s.network("net", "10.0.0.0/24", "", v1alpha2.StaticPool{IPv4RangeStart: "10.0.0.10", IPv4RangeEnd: "10.0.0.10"})
	s.serve(2)
	for i := range 6 {
		s.configuration(fmt.Sprintf("c%d", i), "net", eth0())
	}
	feed.Until(t, "one of six has the only address", func() (bool, string) {
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
		s.until(fmt.Sprintf("c%d", i), "NetworkConfigured")
	}
	if n := s.consistent(); n != 6 {
		t.Errorf("%d addresses, want 6", n)
	}
}

// TestBurst asks for more addresses than there are, all at once, of eight replicas.
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
				for range 2 { // every event twice
					if err := kube.OnConflict(func() error { return f.reconcileConfiguration(t.Context(), s.namespace, nc.Name, true) }); err != nil && !kube.Conflict(err) {
						t.Error(err)
					}
				}
			})
		}
	}
	group.Wait()
	if n := s.consistent(); n != size {
		t.Errorf("%d of %d holders have an address, want all %d of the pool", n, holders, size)
	}
}

// dying is the connection of a process that dies: after some writes nothing that
// it sends arrives any more.
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

// TestProcessDiesBetweenWrites kills the function after each of its writes, and
// lets another process take over.
func TestProcessDiesBetweenWrites(t *testing.T) {
	t.Parallel()
	s := setUp(t)
	s.network("net", "10.0.0.0/28", "", v1alpha2.StaticPool{IPv4Gateway: "10.0.0.1"})
	s.configuration("other", "net", eth0())
	if err := s.replica(s.config).reconcileConfiguration(t.Context(), s.namespace, "other", true); err != nil {
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
		_ = s.replica(config).reconcileConfiguration(t.Context(), s.namespace, name, true)
		if err := s.replica(s.config).reconcileConfiguration(t.Context(), s.namespace, name, true); err != nil {
			t.Fatalf("after %d writes: %v", n, err)
		}
		s.until(name, "NetworkConfigured")
	}
	if n := s.consistent(); n != writes+1 {
		t.Errorf("%d addresses for %d holders", n, writes+1)
	}
}
