package main

import (
	"net/http"
	"net/http/httptest"
	"sync/atomic"
	"testing"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/rest"

	"github.com/vitistack/stack/apis/v1alpha1"
	"github.com/vitistack/stack/apis/v1alpha2"
	"github.com/vitistack/stack/events"
	"github.com/vitistack/stack/functions/internal/kube"
	"github.com/vitistack/stack/functions/kea-reserve/kea"
	sim "github.com/vitistack/stack/tests/sim/kea"
	"github.com/vitistack/stack/tests/stand/feed"
	stand "github.com/vitistack/stack/tests/stand/kea"
	"github.com/vitistack/stack/tests/stand/transport"
)

// TestCost counts requests to Kea and to the API server. The counts do not depend on the number of
// existing reservations.
func TestCost(t *testing.T) {
	t.Parallel()
	type cost struct{ kea, kube int64 }
	cases := map[sim.Generation]struct {
		first, again, resync, deletion cost
	}{
		// list-commands, subnet4-list, reservation-get-all, lease4-get-all; subnet4-get;
		// reservation-add; subnet4-list, reservation-get-all; config-write.
		sim.Kea3: {first: cost{9, 6}, again: cost{0, 2}, resync: cost{4, 3}, deletion: cost{6, 4}},
		// list-commands, config-get, lease4-get-all; under the lock config-get,
		// lease4-get-all, config-test, config-get, config-set; config-get; config-write.
		sim.Kea2: {first: cost{10, 9}, again: cost{0, 2}, resync: cost{3, 3}, deletion: cost{9, 7}},
	}
	for generation, want := range cases {
		t.Run(string(generation), func(t *testing.T) {
			t.Parallel()
			b := simulate(t, generation, stand.Options{})
			var asked atomic.Int64
			front := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
				asked.Add(1)
				b.ServeHTTP(w, r)
			}))
			t.Cleanup(front.Close)
			w := newEnv(t, []string{front.URL}, allowedVariable+"=")
			w.network("net", "10.77.0.0/24", nil)
			w.configuration("other", []string{macB}, nil)
			w.reconcile("other")
			w.configuration("vm", []string{macA}, nil)

			called := w.count()
			measure := func(what, eventType string, want cost) {
				t.Helper()
				asked.Store(0)
				called.Store(0)
				w.must(w.deliver("NetworkConfiguration", "vm", eventType))
				if got := (cost{asked.Load(), called.Load()}); got != want {
					t.Errorf("%s: got %d requests to Kea and %d to the API server, want %d and %d", what, got.kea, got.kube, want.kea, want.kube)
				}
			}
			measure("a new reservation", events.TypeRefAdd, want.first)
			measure("the function's own status write", events.TypeRefUpdate, want.again)
			measure("a resync", events.TypeResync, want.resync)
			w.delete("vm")
			measure("its deletion", events.TypeRefUpdate, want.deletion)
			if !w.isDeleted("vm") {
				t.Error("it still exists")
			}
		})
	}
}

// TestCostOfOthers counts the requests to the API server for a NetworkConfiguration whose addresses
// another function allocates.
func TestCostOfOthers(t *testing.T) {
	t.Parallel()
	w := newEnv(t, nil)
	w.network("net", "10.77.0.0/24", func(nn *v1alpha2.NetworkNamespace) {
		nn.Spec.IPAllocation = &v1alpha2.IPAllocationPolicy{Type: v1alpha2.AllocationStatic, Static: &v1alpha2.StaticPool{IPv4Gateway: "10.77.0.1"}}
	})
	w.network("ours", "10.78.0.0/24", nil)
	nc := w.configuration("vm", []string{macA}, func(nc *v1alpha1.NetworkConfiguration) { nc.Spec.NetworkNamespaceName = "net" })
	called := w.count()
	cases := []struct {
		name, reason, eventType string
		change                  func()
		want                    int64
	}{
		{"New", "the network decides which function serves it", events.TypeRefAdd, func() {}, 1},
		{"Reference", "an event without the object", events.TypeRefAdd, func() { nc = nil }, 2},
		{"Earlier", "an object of the same name was in another network", events.TypeRefUpdate, func() { nc.Spec.NetworkNamespaceName = "ours" }, 3},
		{"Served", "allocate-ip has allocated its address", events.TypeRefUpdate, func() {
			nc.Status.NetworkInterfaces = []v1alpha1.InterfaceStatus{{Name: "eth0", AllocationMethod: v1alpha2.AllocationStatic}}
		}, 0},
		{"Deleting", "no address was allocated", events.TypeRefUpdate, func() { nc.DeletionTimestamp = &metav1.Time{Time: w.clock.Now()} }, 0},
	}
	for _, tc := range cases {
		nc = w.get("vm")
		tc.change()
		e := about("NetworkConfiguration", w.namespace, "vm", tc.eventType)
		if nc != nil {
			w.must(feed.Carry(&e, nc))
		}
		called.Store(0)
		_, err := w.f.handle(t.Context(), e)
		w.must(err)
		if got := called.Load(); got != tc.want {
			t.Errorf("%s: %s: %d requests, want %d", tc.name, tc.reason, got, tc.want)
		}
	}
}

// count counts the requests of the function to the API server.
func (w *env) count() *atomic.Int64 {
	w.t.Helper()
	n := &atomic.Int64{}
	config := rest.CopyConfig(w.config)
	config.Wrap(func(next http.RoundTripper) http.RoundTripper {
		return transport.Func(func(r *http.Request) (*http.Response, error) {
			n.Add(1)
			return next.RoundTrip(r)
		})
	})
	counted, err := kube.New(config, name, kinds...)
	w.must(err)
	w.f.kube, w.f.lock = counted, kea.NewLock(counted, w.namespace, w.clock.Now)
	return n
}
