package main

import (
	"net/http"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/cloudevents/sdk-go/v2/event"
	"golang.org/x/sync/errgroup"

	"github.com/vitistack/stack/apis/cluster/plan"
	"github.com/vitistack/stack/apis/v1alpha1"
	"github.com/vitistack/stack/events"
	"github.com/vitistack/stack/tests/stand/feed"
)

// slowAPI delays and counts requests to an API server by their methods and resources.
type slowAPI struct {
	next  http.RoundTripper
	mu    sync.Mutex
	delay time.Duration
	count map[string]int
}

// RoundTrip implements http.RoundTripper.
func (a *slowAPI) RoundTrip(r *http.Request) (*http.Response, error) {
	_, path, _ := strings.Cut(r.URL.Path, "/namespaces/")
	_, path, _ = strings.Cut(path, "/")
	resource, _, _ := strings.Cut(path, "/")
	a.mu.Lock()
	a.count[r.Method+" "+resource]++
	delay := a.delay
	a.mu.Unlock()
	time.Sleep(delay)
	return a.next.RoundTrip(r)
}

// slowDown sets the delay of each request, and resets the counts.
func (a *slowAPI) slowDown(delay time.Duration) {
	a.mu.Lock()
	defer a.mu.Unlock()
	a.delay, a.count = delay, map[string]int{}
}

// TestConfiguredTogether gives all machines of a new cluster their addresses, and delivers the events of that at the same time. Two
// calls provide all configurations: that of the first event, and one for all events that arrive during it.
func TestConfiguredTogether(t *testing.T) {
	t.Parallel()
	api := &slowAPI{count: map[string]int{}}
	s := newEnv(t, envOptions{noResync: true, handle: dropEvents, wrap: func(next http.RoundTripper) http.RoundTripper { api.next = next; return api }})
	s.closed.Store(true)
	kc := s.cluster("shop", 1, 4)
	kc.Spec.ControlPlaneEndpoint = &v1alpha1.ControlPlaneEndpoint{Mode: v1alpha1.EndpointCustom, Host: "shop.example.com"}
	s.create(kc)
	s.reconcile("shop")
	if s.get("shop").Status.Endpoint == "" || len(s.machines("shop")) != 5 {
		t.Fatalf("the cluster is not as far as it can be without addresses: %+v, machines %v", s.get("shop").Status, s.machines("shop"))
	}
	s.closed.Store(false)
	var all []*v1alpha1.Machine
	feed.Until(s, "the machines have addresses", func() (bool, string) {
		all = nil
		for _, name := range s.machines("shop") {
			if m := s.machine("shop-" + name); plan.HasAddress(m) {
				all = append(all, m)
			}
		}
		return len(all) == 5, ""
	})
	api.slowDown(100 * time.Millisecond)
	handle := events.Serialize(s.function.handle, concurrentKind)
	var group errgroup.Group
	for _, m := range all {
		group.Go(func() error {
			e := event.New()
			e.SetID(m.Name)
			e.SetType(events.TypeUpdate)
			events.Ref{APIVersion: v1alpha1.GroupVersion.String(), Kind: "Machine", Namespace: m.Namespace, Name: m.Name}.Set(&e, string(m.UID))
			if err := e.SetData(event.ApplicationJSON, m); err != nil {
				return err
			}
			_, err := handle(t.Context(), e)
			return err
		})
	}
	if err := group.Wait(); err != nil {
		t.Fatal(err)
	}
	for _, m := range all {
		if !plan.HasMachineConfig(s.machine(m.Name)) {
			t.Errorf("%s has no configuration", m.Name)
		}
	}
	api.mu.Lock()
	defer api.mu.Unlock()
	if api.count["GET kubernetesclusters"] > 2 || api.count["GET machines"] > 2 || api.count["POST secrets"] != len(all) {
		t.Errorf("requested %v, want two reads of the cluster and its machines, and a Secret for each machine", api.count)
	}
}
