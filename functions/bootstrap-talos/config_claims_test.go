package main

import (
	"fmt"
	"net/http"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/cloudevents/sdk-go/v2/event"
	"k8s.io/apimachinery/pkg/types"

	"github.com/vitistack/stack/apis/cluster/plan"
	"github.com/vitistack/stack/apis/v1alpha1"
	"github.com/vitistack/stack/events"
	"github.com/vitistack/stack/tests/stand/feed"
)

// TestEachConfigOnce delivers the events of a new cluster's Machines at once, before create-vm says that it has found their configurations. Each
// configuration is written once, although the event of the control plane also reconciles the cluster.
func TestEachConfigOnce(t *testing.T) {
	t.Parallel()
	listens, reported := &asked{}, make(chan struct{})
	s := newEnv(t, envOptions{
		handle: dropEvents, noResync: true, started: func(*env, *v1alpha1.Machine) { <-reported },
		wrap: func(next http.RoundTripper) http.RoundTripper { listens.next = next; return listens },
	})
	defer close(reported)
	s.closed.Store(true)
	s.create(s.cluster("shop", 1, 2))
	s.reconcile("shop")
	s.closed.Store(false)
	names := []string{"shop-cp-0", "shop-pool-0", "shop-pool-1"}
	feed.Until(t, "the Machines have addresses", func() (bool, string) {
		return !slices.ContainsFunc(names, func(name string) bool { return !plan.HasAddress(s.machine(name)) }), fmt.Sprint(names)
	})
	listens.last = nil
	var deliveries sync.WaitGroup
	for _, name := range names {
		e := event.New()
		e.SetType(events.TypeUpdate)
		events.Ref{APIVersion: v1alpha1.GroupVersion.String(), Kind: "Machine", Namespace: s.namespace, Name: name}.Set(&e, "uid")
		deliveries.Go(func() {
			if _, err := s.function.handle(t.Context(), e); err != nil {
				t.Error(err)
			}
		})
	}
	deliveries.Wait()
	wrote := slices.DeleteFunc(listens.last, func(request string) bool { return !strings.HasPrefix(request, "POST secrets") })
	if len(wrote) != len(names) {
		t.Errorf("%d requests to create a Secret, want one for each of %d Machines", len(wrote), len(names))
	}
	for _, name := range names {
		if !plan.HasMachineConfig(s.machine(name)) {
			t.Errorf("Machine %s has no configuration", name)
		}
	}
	if got := s.get("shop").Status.Endpoint; got == "" {
		t.Error("the address of the control plane did not become the endpoint")
	}
}

func TestConfigClaims(t *testing.T) {
	t.Parallel()
	member := []plan.Member{{Name: "n"}}
	of := func(uid string) *cluster {
		m := &v1alpha1.Machine{}
		m.UID = types.UID(uid)
		return &cluster{observed: observed{machines: map[string]*v1alpha1.Machine{"n": m}}}
	}
	for name, tc := range map[string]struct {
		reason string
		uid    string
		passed time.Duration
		fails  bool
		want   int
	}{
		"Again":    {"another delivery provides it", "a", 0, false, 0},
		"Failed":   {"the other delivery could not", "a", 0, true, 1},
		"Later":    {"create-vm should have found it", "a", claimTime, false, 1},
		"Replaced": {"another Machine has the name", "b", 0, false, 1},
	} {
		now := time.Now()
		claims := newConfigClaims(func() time.Time { return now })
		if got := claims.claim(of("a"), member); len(got) != 1 {
			t.Fatalf("%s: a new Machine cannot be claimed", name)
		}
		if tc.fails {
			claims.release("a")
		}
		now = now.Add(tc.passed)
		if got := claims.claim(of(tc.uid), member); len(got) != tc.want {
			t.Errorf("%s: claimed %d, want %d: %s", name, len(got), tc.want, tc.reason)
		}
	}
}
