package main

import (
	"fmt"
	"net/http"
	"net/netip"
	"sync"
	"sync/atomic"
	"testing"

	"k8s.io/client-go/rest"

	"github.com/vitistack/stack/apis/v1alpha2"
	"github.com/vitistack/stack/functions/internal/pool"
)

// requests are what an address may cost of the API server, from the event of its
// NetworkConfiguration to the status that has it: two reads, the allocation, the
// clusters, one for the Lease, two statuses, and an Event for people. Where few
// addresses are left, two places of its own are taken, which is four, and it asks
// which others are, and who waits longer.
const (
	requestsAtLeast = 8
	requestsAtMost  = 14
)

type counting struct {
	http.RoundTripper
	n *atomic.Int64
}

func (c counting) RoundTrip(r *http.Request) (*http.Response, error) {
	c.n.Add(1)
	return c.RoundTripper.RoundTrip(r)
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
			var n atomic.Int64
			config := rest.CopyConfig(own.config)
			config.Wrap(func(next http.RoundTripper) http.RoundTripper { return counting{next, &n} })
			counted := own.replica(config)
			taken := 0
			for i, percent := range []int{0, 50, 95} {
				taken = own.fill(nn, taken, min(size*percent/100, 1000))
				for j := range 3 {
					name := fmt.Sprintf("c%d-%d", i, j)
					own.configuration(name, "net", eth0())
					n.Store(0)
					if err := counted.settleConfiguration(t.Context(), own.namespace, name, true); err != nil {
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

// fill gives the next addresses of a network to others.
func (s *stand) fill(nn *v1alpha2.NetworkNamespace, from, to int) int {
	s.Helper()
	family := v1alpha2.IPv4
	if nn.Status.IPv4Prefix == "" {
		family = v1alpha2.IPv6
	}
	p, err := pool.New(nn, family)
	if err != nil {
		s.Fatal(err)
	}
	l := s.replica(s.config).ledger
	var group sync.WaitGroup
	places := make(chan int)
	for range 8 {
		group.Go(func() {
			for i := range places {
				h := holder{uid: fmt.Sprint(i), namespace: s.namespace, name: fmt.Sprintf("other%d", i)}
				_ = l.take(s.Context(), nn.Name, p.At(uint64(i)), h) // unless somebody has it
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
