package main

import (
	"cmp"
	"fmt"
	"net/http"
	"net/netip"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/cloudevents/sdk-go/v2/event"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/rest"

	"github.com/vitistack/stack/apis/v1alpha1"
	"github.com/vitistack/stack/apis/v1alpha2"
	"github.com/vitistack/stack/events"
	"github.com/vitistack/stack/functions/internal/ipam"
	"github.com/vitistack/stack/functions/internal/kube"
)

// requests are what an address may cost of the API server, from the event of its
// NetworkConfiguration to the status that has it: two reads, the allocation, the
// clusters, one for the Lease of the MAC address and one for that of the address, two
// statuses, and an Event for people. Where few
// addresses are left, two places of its own are taken, which is four, and it asks
// which others are, and who waits longer.
const (
	requestsAtLeast = 9
	requestsAtMost  = 15
)

type counting struct {
	http.RoundTripper
	n *atomic.Int64
}

func (c counting) RoundTrip(r *http.Request) (*http.Response, error) {
	c.n.Add(1)
	return c.RoundTripper.RoundTrip(r)
}

// counted is a process whose requests to the API server are counted.
func (s *env) counted() (*function, *atomic.Int64) {
	s.Helper()
	n := &atomic.Int64{}
	config := rest.CopyConfig(s.config)
	config.Wrap(func(next http.RoundTripper) http.RoundTripper { return counting{next, n} })
	return s.replica(config), n
}

// TestCost counts requests in pools of several sizes, up to the last twentieth.
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
			counted, n := own.counted()
			taken := 0
			for i, percent := range []int{0, 50, 95} {
				taken = own.fill(nn, taken, min(size*percent/100, 1000))
				for j := range 3 {
					name := fmt.Sprintf("c%d-%d", i, j)
					own.configuration(name, "net", eth0())
					n.Store(0)
					if err := counted.reconcileConfiguration(t.Context(), own.namespace, name, true); err != nil {
						t.Fatal(err)
					}
					own.until(name, "NetworkConfigured")
					if got := n.Load(); got < requestsAtLeast || got > requestsAtMost {
						t.Errorf("with %d taken: %d requests, want %d to %d", taken, got, requestsAtLeast, requestsAtMost)
					}
				}
			}
		})
	}
}

// TestCarried counts the requests that an event costs which carries its object.
func TestCarried(t *testing.T) {
	t.Parallel()
	s := setUp(t)
	s.network("net", "10.0.0.0/24", "", v1alpha2.StaticPool{IPv4Gateway: "10.0.0.1"})
	s.configuration("web", "net", eth0())
	if err := s.replica(s.config).reconcileConfiguration(t.Context(), s.namespace, "web", false); err != nil {
		t.Fatal(err)
	}
	nc, a := s.until("web", "NetworkConfigured"), &v1alpha2.IPAllocation{}
	if err := s.kube.Get(t.Context(), s.namespace, "web-eth0", a); err != nil {
		t.Fatal(err)
	}
	counted, n := s.counted()
	now, past := metav1.Now(), metav1.NewTime(time.Now().Add(-time.Minute))
	for name, tc := range map[string]struct {
		reason, eventType string
		carried           kube.Object
		change            func()
		want              int64
	}{
		"Settled":      {reason: "the event of its own writing", carried: nc, change: func() {}},
		"Asked":        {reason: "a person wants a look", carried: nc, change: func() { metav1.SetMetaDataAnnotation(&nc.ObjectMeta, v1alpha1.AnnotationReconcile, "now") }, want: 1},
		"Changed":      {reason: "the live object decides: it is settled by now", carried: nc, change: func() { nc.Generation++ }, want: 1},
		"New":          {reason: "as in a duplicate that comes late", eventType: events.TypeAdd, carried: nc, change: func() { nc.Status = v1alpha1.NetworkConfigurationStatus{} }, want: 1},
		"Going":        {reason: "its allocations have events of their own", carried: nc, change: func() { nc.DeletionTimestamp = &now }},
		"Allocated":    {reason: "the event of its own writing", carried: a, change: func() {}},
		"Due":          {reason: "it has to be renewed", carried: a, change: func() { a.Status.NextCheckTime = &past }, want: 1},
		"JustMade":     {reason: "who made it gives it its address", eventType: events.TypeAdd, carried: a, change: func() { a.Status = v1alpha2.IPAllocationStatus{} }},
		"Waiting":      {reason: "the live object decides: it has its address", carried: a, change: func() { a.Status = v1alpha2.IPAllocationStatus{} }, want: 1},
		"GivingBack":   {reason: "the live object decides: it does not go", carried: a, change: func() { a.DeletionTimestamp = &now }, want: 1},
		"HasGivenBack": {reason: "nothing is left to do", carried: a, change: func() { a.DeletionTimestamp, a.Finalizers = &now, nil }},
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
	s.consistent()
}

// carrying is the event of a change as the source sends it.
func carrying(t *testing.T, eventType string, object kube.Object) event.Event {
	t.Helper()
	e := event.New()
	e.SetID("1")
	e.SetSource("https://kubernetes")
	e.SetType(eventType)
	ref := events.Ref{APIVersion: v1alpha1.GroupVersion.String(), Kind: "NetworkConfiguration", Namespace: object.GetNamespace(), Name: object.GetName()}
	if _, ok := object.(*v1alpha2.IPAllocation); ok {
		ref.APIVersion, ref.Kind = v1alpha2.GroupVersion.String(), "IPAllocation"
	}
	ref.Set(&e, string(object.GetUID()))
	if err := e.SetData(event.ApplicationJSON, object); err != nil {
		t.Fatal(err)
	}
	return e
}

// fill gives the next addresses of a network to others.
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
				_ = l.claimAddress(s.Context(), nn.Name, p.At(uint64(i)), h) // unless somebody has it
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
