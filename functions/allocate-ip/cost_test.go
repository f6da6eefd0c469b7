package main

import (
	"cmp"
	"fmt"
	"net/http"
	"net/netip"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/cloudevents/sdk-go/v2/event"
	"golang.org/x/sync/errgroup"
	coordinationv1 "k8s.io/api/coordination/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/rest"

	"github.com/vitistack/stack/apis/network/ipam"
	"github.com/vitistack/stack/apis/v1alpha1"
	"github.com/vitistack/stack/apis/v1alpha2"
	"github.com/vitistack/stack/events"
	"github.com/vitistack/stack/functions/internal/kube"
)

// The requests to the API server of a single address, from the event of its NetworkConfiguration
// to the status with the address: two reads, the allocation, the clusters, one for the Lease of the
// MAC address and one for that of the address, two statuses, and a Kubernetes Event. In a nearly full
// pool the function also claims two places by itself (four requests), lists the addresses in use, and
// lists older requests.
const (
	requestsAtLeast = 9
	requestsAtMost  = 15
)

type counting struct {
	http.RoundTripper
	n     *atomic.Int64
	delay time.Duration
}

func (c counting) RoundTrip(r *http.Request) (*http.Response, error) {
	c.n.Add(1)
	time.Sleep(c.delay)
	return c.RoundTripper.RoundTrip(r)
}

// countingFunction returns a process whose requests to the API server are counted, and take longer by a delay.
func (s *env) countingFunction(delay time.Duration) (*function, *atomic.Int64) {
	s.Helper()
	n := &atomic.Int64{}
	config := rest.CopyConfig(s.config)
	config.Wrap(func(next http.RoundTripper) http.RoundTripper { return counting{next, n, delay} })
	return s.replica(config), n
}

// TestCost counts requests in pools of several sizes, until the pool is nearly full.
func TestCost(t *testing.T) {
	t.Parallel()
	s := setUp(t)
	for prefix, size := range map[string]int{"10.1.0.0/24": 253, "10.2.0.0/23": 509, "10.0.0.0/8": 1<<24 - 3, "2001:db8::/64": 1 << 30} {
		t.Run(prefix, func(t *testing.T) {
			t.Parallel()
			own := *s
			own.T, own.namespace = t, s.server.Namespace(t)
			p := netip.MustParsePrefix(prefix)
			v4, v6 := prefix, ""
			if p.Addr().Is6() {
				v4, v6 = "", prefix
			}
			nn := own.network("net", v4, v6, v1alpha2.StaticPool{})
			counted, n := own.countingFunction(0)
			taken := 0
			for i, percent := range []int{0, 50, 95} {
				taken = own.fill(nn, taken, min(size*percent/100, 1000))
				for j := range 3 {
					name := fmt.Sprintf("c%d-%d", i, j)
					own.configuration(name, "net", eth0())
					n.Store(0)
					if err := counted.configurations().reconcileConfiguration(t.Context(), own.namespace, name, true); err != nil {
						t.Fatal(err)
					}
					own.awaitReason(name, "NetworkConfigured")
					if got := n.Load(); got < requestsAtLeast || got > requestsAtMost {
						t.Errorf("with %d taken: %d requests, want %d to %d", taken, got, requestsAtLeast, requestsAtMost)
					}
				}
			}
		})
	}
}

// TestCarried counts the requests for an event that carries its object.
func TestCarried(t *testing.T) {
	t.Parallel()
	s := setUp(t)
	s.network("net", "10.0.0.0/24", "", v1alpha2.StaticPool{IPv4Gateway: "10.0.0.1"})
	s.configuration("web", "net", eth0())
	if err := s.replica(s.config).configurations().reconcileConfiguration(t.Context(), s.namespace, "web", false); err != nil {
		t.Fatal(err)
	}
	nc, a := s.awaitReason("web", "NetworkConfigured"), &v1alpha2.IPAllocation{}
	if err := s.kube.Get(t.Context(), s.namespace, "web-eth0", a); err != nil {
		t.Fatal(err)
	}
	counted, n := s.countingFunction(0)
	now, past := metav1.Now(), metav1.NewTime(time.Now().Add(-time.Minute))
	for name, tc := range map[string]struct {
		reason, eventType string
		carried           kube.Object
		change            func()
		want              int64
	}{
		"OwnStatus":     {reason: "the function's own status write causes no request", carried: nc, change: func() {}},
		"Requested":     {reason: "the annotation requests a reconcile", carried: nc, change: func() { metav1.SetMetaDataAnnotation(&nc.ObjectMeta, v1alpha1.AnnotationReconcile, "now") }, want: 1},
		"NewGeneration": {reason: "the live object decides, and it needs no change", carried: nc, change: func() { nc.Generation++ }, want: 1},
		"LateDuplicate": {reason: "a late duplicate carries an old status", eventType: events.TypeAdd, carried: nc, change: func() { nc.Status = v1alpha1.NetworkConfigurationStatus{} }, want: 1},
		"Deleting":      {reason: "the deletion of its allocations causes events of their own", carried: nc, change: func() { nc.DeletionTimestamp = &now }},
		"Allocated":     {reason: "the function's own status write causes no request", carried: a, change: func() {}},
		"RenewalDue":    {reason: "its renewal is due", carried: a, change: func() { a.Status.NextCheckTime = &past }, want: 1},
		"JustCreated":   {reason: "the delivery that created it allocates its address", eventType: events.TypeAdd, carried: a, change: func() { a.Status = v1alpha2.IPAllocationStatus{} }},
		"Waiting":       {reason: "the live object decides, and it has its address", carried: a, change: func() { a.Status = v1alpha2.IPAllocationStatus{} }, want: 1},
		"Releasing":     {reason: "the live object decides, and it is not being deleted", carried: a, change: func() { a.DeletionTimestamp = &now }, want: 1},
		"Released":      {reason: "its address is released already", carried: a, change: func() { a.DeletionTimestamp, a.Finalizers = &now, nil }},
		"NewCluster":    {reason: "the delivery only starts the process", eventType: events.TypeAdd, carried: &v1alpha1.KubernetesCluster{}, change: func() {}},
	} {
		savedConfiguration, savedAllocation := nc.DeepCopy(), a.DeepCopy()
		tc.change()
		n.Store(0)
		if _, err := counted.handle(t.Context(), carrying(t, cmp.Or(tc.eventType, events.TypeUpdate), tc.carried)); err != nil {
			t.Errorf("%s: %v", name, err)
		}
		if got := n.Load(); got != tc.want {
			t.Errorf("%s: %s: %d requests, want %d", name, tc.reason, got, tc.want)
		}
		*nc, *a = *savedConfiguration, *savedAllocation
	}
	s.requireConsistentLeases()
}

// carrying returns the event of a change as the event source sends it.
func carrying(t *testing.T, eventType string, object kube.Object) event.Event {
	t.Helper()
	e := event.New()
	e.SetID("1")
	e.SetSource("https://kubernetes")
	e.SetType(eventType)
	ref := events.Ref{APIVersion: v1alpha1.GroupVersion.String(), Kind: "NetworkConfiguration", Namespace: object.GetNamespace(), Name: object.GetName()}
	switch object.(type) {
	case *v1alpha2.IPAllocation:
		ref.APIVersion, ref.Kind = v1alpha2.GroupVersion.String(), "IPAllocation"
	case *v1alpha1.KubernetesCluster:
		ref.Kind, ref.Namespace, ref.Name = "KubernetesCluster", "default", "new"
	}
	ref.Set(&e, string(object.GetUID()))
	if err := e.SetData(event.ApplicationJSON, object); err != nil {
		t.Fatal(err)
	}
	return e
}

// fill allocates the addresses with the ordinals from up to to of a network to other holders.
func (s *env) fill(nn *v1alpha2.NetworkNamespace, from, to int) int {
	s.Helper()
	family := v1alpha2.IPv4
	if nn.Status.IPv4Prefix == "" {
		family = v1alpha2.IPv6
	}
	p, err := ipam.New(nn, family)
	if err != nil {
		s.Fatal(err)
	}
	l := s.replica(s.config).leases
	var group sync.WaitGroup
	places := make(chan int)
	for range 8 {
		group.Go(func() {
			for i := range places {
				h := holder{uid: fmt.Sprint(i), namespace: s.namespace, name: fmt.Sprintf("other%d", i)}
				_ = l.claimAddress(s.Context(), nn.Name, p.At(uint64(i)), h) // another holder may have claimed it
			}
		})
	}
	for i := from; i < to; i++ {
		places <- i
	}
	close(places)
	group.Wait()
	return max(from, to)
}

// TestConcurrentDeliveries delivers many events about one NetworkConfiguration at the same time, while the API server is
// slow. They share a reconcile, so that they cost about as much as one.
func TestConcurrentDeliveries(t *testing.T) {
	t.Parallel()
	s := setUp(t)
	s.network("net", "10.0.0.0/24", "", v1alpha2.StaticPool{})
	var interfaces []v1alpha1.InterfaceSpec
	for i := range 3 {
		interfaces = append(interfaces, v1alpha1.InterfaceSpec{Name: fmt.Sprintf("eth%d", i), MACAddress: anyMAC})
	}
	cost := func(name string, deliveries int) int64 {
		s.configuration(name, "net", interfaces...)
		f, n := s.countingFunction(150 * time.Millisecond)
		handle := events.Serialize(f.handle)
		var group errgroup.Group
		for i := range deliveries {
			group.Go(func() error {
				e := event.New()
				e.SetID(fmt.Sprint(i))
				e.SetType(events.TypeUpdate)
				events.Ref{APIVersion: "vitistack.io/v1alpha1", Kind: "NetworkConfiguration", Namespace: s.namespace, Name: name}.Set(&e, "")
				_, err := handle(t.Context(), e)
				return err
			})
		}
		if err := group.Wait(); err != nil {
			t.Fatal(err)
		}
		s.awaitReason(name, "NetworkConfigured")
		return n.Load()
	}
	one, many := cost("one", 1), cost("many", 40)
	if most := one + one/2; many > most {
		t.Errorf("40 deliveries took %d requests, and a single one %d: want at most %d", many, one, most)
	}
}

// TestNewConfiguration delivers the event of a new NetworkConfiguration, at once, late, and after it has changed.
func TestNewConfiguration(t *testing.T) {
	t.Parallel()
	s := setUp(t)
	s.network("net", "10.0.0.0/24", "", v1alpha2.StaticPool{})
	isController := true
	owners := []metav1.OwnerReference{{APIVersion: v1alpha1.GroupVersion.String(), Kind: "Machine", Name: "m", UID: "1", Controller: &isController}}
	for name, tc := range map[string]struct {
		reason  string
		owners  []metav1.OwnerReference
		age     time.Duration
		changes bool
		want    int64
	}{
		"new":     {reason: "the event has all of it", owners: owners},
		"ofuser":  {reason: "the event has all of it"},
		"late":    {reason: "much may have happened since", owners: owners, age: maxCarriedAge, want: 1},
		"changed": {reason: "the write of the status fails with a conflict: one read finds the MAC addresses that are no longer needed, and the live object decides", owners: owners, changes: true, want: 2},
	} {
		nc := &v1alpha1.NetworkConfiguration{
			ObjectMeta: metav1.ObjectMeta{Namespace: s.namespace, Name: name, OwnerReferences: tc.owners},
			Spec:       v1alpha1.NetworkConfigurationSpec{NetworkNamespaceName: "net", NetworkInterfaces: []v1alpha1.InterfaceSpec{{Name: "eth0", MACAddress: macFor(name, "eth0")}}},
		}
		if err := s.kube.Create(t.Context(), nc); err != nil {
			t.Fatal(err)
		}
		in := carrying(t, events.TypeAdd, nc)
		in.SetExtension(events.ArrivalTime, time.Now().Add(-tc.age))
		if tc.changes {
			s.changeConfiguration(nc, func(nc *v1alpha1.NetworkConfiguration) {
				nc.Spec.NetworkInterfaces = append(nc.Spec.NetworkInterfaces, v1alpha1.InterfaceSpec{Name: "eth1", MACAddress: macFor(name, "eth1")})
			})
		}
		reads := &atomic.Int64{}
		config := rest.CopyConfig(s.config)
		config.Wrap(func(next http.RoundTripper) http.RoundTripper { return readsOf{next, "/networkconfigurations/", reads} })
		if _, err := s.replica(config).handle(t.Context(), in); err != nil {
			t.Errorf("%s: %v", name, err)
		}
		if got := reads.Load(); got != tc.want {
			t.Errorf("%s: %s: %d reads, want %d", name, tc.reason, got, tc.want)
		}
		if got := s.awaitReason(name, "NetworkConfigured"); len(got.Status.NetworkInterfaces) != len(nc.Spec.NetworkInterfaces) {
			t.Errorf("%s: %d interfaces have addresses, want %d", name, len(got.Status.NetworkInterfaces), len(nc.Spec.NetworkInterfaces))
		}
	}
	s.requireConsistentLeases()
}

// TestOldEventOfNewConfiguration has a user change a new NetworkConfiguration, and delivers the event of its creation before or
// after another process has handled the change. Nothing of the old spec stays.
func TestOldEventOfNewConfiguration(t *testing.T) {
	t.Parallel()
	s := setUp(t)
	s.network("net", "10.0.0.0/24", "", v1alpha2.StaticPool{})
	for name, isHandled := range map[string]bool{"before": false, "after": true} {
		nc := s.configuration(name, "net", eth0(), v1alpha1.InterfaceSpec{Name: "eth1", MACAddress: anyMAC})
		in := carrying(t, events.TypeAdd, nc)
		in.SetExtension(events.ArrivalTime, time.Now())
		former, next := nc.Spec.NetworkInterfaces[0].MACAddress, macFor(name, "other")
		s.changeConfiguration(nc, func(nc *v1alpha1.NetworkConfiguration) {
			nc.Spec.NetworkInterfaces = []v1alpha1.InterfaceSpec{{Name: "eth0", MACAddress: next}}
		})
		if isHandled {
			if err := s.replica(s.config).configurations().reconcileConfiguration(t.Context(), s.namespace, name, false); err != nil {
				t.Fatal(err)
			}
		}
		if _, err := s.replica(s.config).handle(t.Context(), in); err != nil {
			t.Errorf("%s: %v", name, err)
		}
		if got := s.awaitReason(name, "NetworkConfigured").Status.NetworkInterfaces; len(got) != 1 || got[0].MACAddress != next {
			t.Errorf("%s: the status has %+v", name, got)
		}
		removed := &v1alpha2.IPAllocation{}
		if err := s.kube.Get(t.Context(), s.namespace, name+"-eth1", removed); !kube.NotFound(err) && (err != nil || removed.DeletionTimestamp == nil) {
			t.Errorf("%s: IPAllocation %s-eth1 of the removed interface stays: %v", name, name, err)
		}
		for mac, want := range map[v1alpha1.MACAddress]bool{former: false, next: true} {
			err := s.kube.Get(t.Context(), s.namespace, macLeaseName("net", mac.Normalized()), &coordinationv1.Lease{})
			if got := err == nil; got != want || (err != nil && !kube.NotFound(err)) {
				t.Errorf("%s: the Lease of MAC address %s exists is %v, want %v: %v", name, mac, got, want, err)
			}
		}
	}
	s.requireConsistentLeases()
}

// changeConfiguration changes a NetworkConfiguration as a user does.
func (s *env) changeConfiguration(nc *v1alpha1.NetworkConfiguration, change func(*v1alpha1.NetworkConfiguration)) {
	s.Helper()
	before := nc.DeepCopy()
	change(nc)
	if _, err := s.kube.Patch(s.Context(), before, nc); err != nil {
		s.Fatal(err)
	}
}

// readsOf counts the reads of objects whose paths contain a text.
type readsOf struct {
	http.RoundTripper
	text string
	n    *atomic.Int64
}

func (r readsOf) RoundTrip(req *http.Request) (*http.Response, error) {
	if req.Method == http.MethodGet && strings.Contains(req.URL.Path, r.text) {
		r.n.Add(1)
	}
	return r.RoundTripper.RoundTrip(req)
}
