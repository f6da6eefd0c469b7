package main

import (
	"errors"
	"net/http"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/vitistack/stack/apis/v1alpha1"
	"github.com/vitistack/stack/events"
	"github.com/vitistack/stack/tests/stand/apiserver"
)

// asked records the requests to an API server.
type asked struct {
	next http.RoundTripper
	mu   sync.Mutex
	last []string
}

// RoundTrip implements http.RoundTripper.
func (a *asked) RoundTrip(r *http.Request) (*http.Response, error) {
	a.mu.Lock()
	defer a.mu.Unlock()
	_, resource, _ := strings.Cut(r.URL.Path, "/namespaces/")
	_, resource, _ = strings.Cut(resource, "/")
	a.last = append(a.last, r.Method+" "+resource)
	return a.next.RoundTrip(r)
}

// unreadable fails all requests that read Secrets while it is set.
type unreadable struct {
	http.RoundTripper
	on atomic.Bool
}

func (u *unreadable) RoundTrip(req *http.Request) (*http.Response, error) {
	if u.on.Load() && req.Method == http.MethodGet && strings.Contains(req.URL.Path, "/secrets") {
		return nil, errors.New("lost")
	}
	return u.RoundTripper.RoundTrip(req)
}

// TestRequestFails has a request fail in the middle of a delivery. The status keeps what the delivery
// has not observed, and Ready reports the failure only once it has lasted for the grace period.
func TestRequestFails(t *testing.T) {
	t.Parallel()
	u := &unreadable{}
	s := newEnv(t, envOptions{wrap: func(next http.RoundTripper) http.RoundTripper { u.RoundTripper = next; return u }})
	s.create(s.cluster("shop", 1, 1))
	before := s.awaitRunning("shop")
	u.on.Store(true)
	look := resyncEvent(s.namespace, "shop", "look")
	look.SetExtension(events.ArrivalTime, time.Now())
	if _, err := s.function.handle(t.Context(), look); err == nil {
		t.Fatal("Secrets can be read")
	}
	if diff := cmp.Diff(before.Status, s.get("shop").Status); diff != "" {
		t.Errorf("one failure has changed the status:\n%s", diff)
	}
	look.SetExtension(events.ArrivalTime, time.Now().Add(-retryGracePeriod))
	if _, err := s.function.handle(t.Context(), look); err == nil {
		t.Fatal("Secrets can be read")
	}
	after := s.get("shop")
	if ready := meta.FindStatusCondition(after.Status.Conditions, v1alpha1.ConditionReady); ready == nil || ready.Reason != "Retrying" {
		t.Errorf("Ready is %+v after %s of failures, want the reason Retrying", ready, retryGracePeriod)
	}
	meta.SetStatusCondition(&after.Status.Conditions, *meta.FindStatusCondition(before.Status.Conditions, v1alpha1.ConditionReady))
	meta.RemoveStatusCondition(&after.Status.Conditions, v1alpha1.ConditionReconciling) // it repeats Ready
	after.Status.Message = before.Status.Message
	if diff := cmp.Diff(before.Status, after.Status, cmpopts.IgnoreFields(metav1.Condition{}, "LastTransitionTime")); diff != "" {
		t.Errorf("failures have changed more than Ready:\n%s", diff)
	}
	u.on.Store(false)
	s.awaitRunning("shop")
}

// TestMachineOfNoCluster sends an event about a Machine without a cluster. It costs one request, also
// in a namespace with a cluster.
func TestMachineOfNoCluster(t *testing.T) {
	t.Parallel()
	server := apiserver.Start(t)
	server.Install(t)
	s, listens := &env{T: t, namespace: server.Namespace(t)}, &asked{}
	s.kube = s.client(server.Config())
	config := server.Config()
	config.Wrap(func(next http.RoundTripper) http.RoundTripper {
		listens.next = next
		return listens
	})
	f := &function{kube: s.client(config), now: time.Now}
	s.create(&v1alpha1.Machine{ObjectMeta: metav1.ObjectMeta{Name: "alone"}, Spec: v1alpha1.MachineSpec{Template: "small"}})
	look := func(want ...string) {
		t.Helper()
		listens.last = nil
		ref := events.Ref{APIVersion: v1alpha1.GroupVersion.String(), Kind: "Machine", Namespace: s.namespace, Name: "alone"}
		if _, err := f.handle(t.Context(), events.NewReconcileRequest("/functions/resync", ref, "uid", "1")); err != nil {
			t.Fatal(err)
		}
		if !slices.Equal(listens.last, want) {
			t.Errorf("requested %v, want %v", listens.last, want)
		}
	}
	look("GET machines/alone")
	s.create(s.cluster("shop", 1, 0))
	look("GET machines/alone")
}
