package main

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"math/rand/v2"
	"net/http"
	"slices"
	"strings"
	"sync/atomic"
	"testing"

	"github.com/cloudevents/sdk-go/v2/event"

	"github.com/vitistack/stack/apis/v1alpha1"
	"github.com/vitistack/stack/events"
	"github.com/vitistack/stack/functions/internal/kube"
	"github.com/vitistack/stack/tests/sim/faults"
	"github.com/vitistack/stack/tests/stand/feed"
)

// reaper kills each delivery at its first write, before or after the API server has
// handled it. Over time a delivery dies between any two side effects.
type reaper struct {
	next http.RoundTripper
	// writes counts the writes, and keys the created sets of keys.
	writes, keys atomic.Int64
	// statuses is whether a write of a status kills a delivery as well.
	statuses atomic.Bool
}

type lifeKey struct{}

var errKilled = errors.New("the delivery has been killed")

// handle gives each delivery a context of its own.
func (r *reaper) handle(next events.Handler) events.Handler {
	return func(ctx context.Context, in event.Event) (*event.Event, error) {
		ctx, kill := context.WithCancelCause(ctx)
		defer kill(nil)
		return next(context.WithValue(ctx, lifeKey{}, kill), in)
	}
}

func (r *reaper) wrap(next http.RoundTripper) http.RoundTripper {
	r.next = next
	return r
}

// RoundTrip implements http.RoundTripper.
func (r *reaper) RoundTrip(req *http.Request) (*http.Response, error) {
	kill, mortal := req.Context().Value(lifeKey{}).(context.CancelCauseFunc)
	status := strings.HasSuffix(req.URL.Path, "/status")
	// No delivery continues from an Event, so one that dies at each write of an Event would never end.
	event := strings.Contains(req.URL.Path+"/", "/events/")
	if req.Method == http.MethodGet || !mortal || event || (status && !r.statuses.Load()) {
		return r.next.RoundTrip(req)
	}
	if context.Cause(req.Context()) != nil {
		return nil, errKilled
	}
	r.writes.Add(1)
	// At random: a third by count would be the same request of every delivery that sends three.
	if rand.IntN(3) == 0 {
		kill(errKilled)
		return nil, errKilled
	}
	// The API server completes a request even if its client disappears.
	res, err := r.next.RoundTrip(req.Clone(context.WithoutCancel(req.Context())))
	if err == nil && res.StatusCode >= http.StatusBadRequest {
		return res, nil // nothing is written
	}
	if err == nil {
		if res.StatusCode == http.StatusCreated && strings.HasSuffix(req.URL.Path, "/secrets") && r.statuses.CompareAndSwap(false, true) {
			r.keys.Add(1)
		}
		_ = res.Body.Close()
	}
	kill(errKilled)
	return nil, errKilled
}

// unwritten fails the writes of statuses that contain a text, as if each delivery ended before such a write.
type unwritten struct {
	next http.RoundTripper
	text atomic.Value
}

func (u *unwritten) wrap(next http.RoundTripper) http.RoundTripper {
	u.next = next
	return u
}

// RoundTrip implements http.RoundTripper.
func (u *unwritten) RoundTrip(req *http.Request) (*http.Response, error) {
	text, _ := u.text.Load().(string)
	if text == "" || req.Body == nil || !strings.HasSuffix(req.URL.Path, "/status") {
		return u.next.RoundTrip(req)
	}
	body, err := io.ReadAll(req.Body)
	_ = req.Body.Close()
	if err != nil {
		return nil, err
	}
	if strings.Contains(string(body), text) {
		return nil, errKilled
	}
	req = req.Clone(req.Context())
	req.Body = io.NopCloser(bytes.NewReader(body))
	return u.next.RoundTrip(req)
}

// awaitAfterResync waits until done, and has a full reconcile of a cluster before each look.
func (s *env) awaitAfterResync(cluster, what string, done func() (bool, string)) {
	s.Helper()
	round := 0
	feed.Until(s, what, func() (bool, string) {
		round++
		_, _ = s.function.handle(s.Context(), resyncEvent(s.namespace, cluster, fmt.Sprint(what, round)))
		return done()
	})
}

// TestKilledBetweenSideEffects creates, changes and deletes clusters while each delivery dies at its
// first write, and while nodes reject requests, or carry them out without an answer.
func TestKilledBetweenSideEffects(t *testing.T) {
	t.Parallel()
	for _, tc := range []struct{ first, then int32 }{{1, 3}, {3, 1}, {5, 3}} {
		t.Run(fmt.Sprint(tc.first), func(t *testing.T) {
			t.Parallel()
			r := &reaper{}
			s := newEnv(t, envOptions{wrap: r.wrap, handle: r.handle})
			s.plan.Seed(uint64(tc.first))
			if err := s.plan.Set(
				faults.Rule{Operation: "MachineService/*", Error: "Unavailable", Rate: 0.1},
				faults.Rule{Operation: "MachineService/*", Error: "reset", After: true, Rate: 0.1},
				faults.Rule{Operation: "workload", Error: "503", Rate: 0.05},
			); err != nil {
				t.Fatal(err)
			}
			s.create(s.cluster("shop", tc.first, 1))
			s.awaitRunning("shop")
			keys := s.secret("shop-talos-secrets").UID
			s.requireOneEtcd("shop", int(tc.first))
			s.change("shop", func(kc *v1alpha1.KubernetesCluster) { kc.Spec.Topology.ControlPlane.Replicas = tc.then })
			feed.Until(t, "the control plane has changed", func() (bool, string) {
				kc := s.get("shop")
				return isUpToDate(kc) && len(s.machines("shop")) == int(tc.then)+1, kc.Status.Message
			})
			s.requireOneEtcd("shop", int(tc.then))
			if s.secret("shop-talos-secrets").UID != keys || r.keys.Load() != 1 {
				t.Error("the keys were created twice")
			}
			if err := s.kube.Delete(t.Context(), s.get("shop")); err != nil {
				t.Fatal(err)
			}
			feed.Until(t, "the cluster is deleted", func() (bool, string) {
				err := s.kube.Get(t.Context(), s.namespace, "shop", &v1alpha1.KubernetesCluster{})
				return kube.NotFound(err), fmt.Sprint(err)
			})
			t.Logf("%d deliveries have died", r.writes.Load())
		})
	}
}

// requireOneEtcd checks that a cluster has one etcd, whose members are its control planes.
func (s *env) requireOneEtcd(cluster string, controlPlanes int) {
	s.Helper()
	if err := s.plan.Set(); err != nil {
		s.Fatal(err)
	}
	planes := slices.DeleteFunc(s.machines(cluster), func(n string) bool { return !strings.HasPrefix(n, "cp-") })
	if len(planes) != controlPlanes {
		s.Errorf("control planes %v, want %d", planes, controlPlanes)
	}
	for _, plane := range planes {
		if got := s.members(cluster, plane); !slices.Equal(got, planes) {
			s.Errorf("%s has etcd members %v, want %v: one cluster with every member", plane, got, planes)
		}
	}
}
