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

	"github.com/cloudevents/sdk-go/v2/event"
	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/vitistack/stack/apis/v1alpha1"
	"github.com/vitistack/stack/events"
	"github.com/vitistack/stack/functions/internal/kube"
	"github.com/vitistack/stack/tests/stand/apiserver"
	"github.com/vitistack/stack/tests/stand/feed"
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

// newRecordedEnv returns an env without a running function, and a client whose requests are recorded.
func newRecordedEnv(t *testing.T) (*env, *asked, *kube.Client) {
	t.Helper()
	server := apiserver.Start(t)
	server.Install(t)
	s, listens := &env{T: t, namespace: server.Namespace(t)}, &asked{}
	s.kube = s.client(server.Config())
	config := server.Config()
	config.Wrap(func(next http.RoundTripper) http.RoundTripper {
		listens.next = next
		return listens
	})
	return s, listens, s.client(config)
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
	s, listens, client := newRecordedEnv(t)
	f := newFunction(client, functionOptions{now: time.Now})
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

// TestEventsSuffice changes a cluster without resync, whose rounds would hide an event that the
// function has skipped wrongly.
func TestEventsSuffice(t *testing.T) {
	t.Parallel()
	s := newEnv(t, envOptions{noResync: true})
	s.create(s.cluster("shop", 3, 2))
	s.awaitRunning("shop", "cp-0", "cp-1", "cp-2", "pool-0", "pool-1")
	s.change("shop", func(kc *v1alpha1.KubernetesCluster) {
		kc.Spec.Topology.ControlPlane.Replicas, kc.Spec.Topology.Workers[0].Replicas = 1, 3
	})
	s.awaitRunning("shop", "cp-0", "pool-0", "pool-1", "pool-2")
	if err := s.kube.Delete(t.Context(), s.machine("shop-pool-1")); err != nil {
		t.Fatal(err)
	}
	s.awaitRunning("shop", "cp-0", "pool-0", "pool-1", "pool-2")
	feed.Until(s, "the last write of the cluster is of an earlier second, so that its deletion must not be taken for it", func() (bool, string) {
		start := time.Now().Truncate(time.Second)
		return !slices.ContainsFunc(s.get("shop").ManagedFields, func(f metav1.ManagedFieldsEntry) bool { return !f.Time.Time.Before(start) }), ""
	})
	if err := s.kube.Delete(t.Context(), s.get("shop")); err != nil {
		t.Fatal(err)
	}
	feed.Until(s, "the cluster is deleted", func() (bool, string) {
		err := s.kube.Get(t.Context(), s.namespace, "shop", &v1alpha1.KubernetesCluster{})
		return kube.NotFound(err), strings.Join(s.machines("shop"), ", ")
	})
}

// TestSkippedEvents sends events that carry their object, and lists what the function reads first.
func TestSkippedEvents(t *testing.T) {
	t.Parallel()
	now, later := metav1.Now(), metav1.NewTime(time.Now().Add(time.Minute))
	owned := func(edit func(*v1alpha1.Machine)) *v1alpha1.Machine {
		m := &v1alpha1.Machine{ObjectMeta: metav1.ObjectMeta{Name: "shop-cp-0"}}
		isController := true
		m.OwnerReferences = []metav1.OwnerReference{{APIVersion: "vitistack.io/v1alpha1", Kind: "KubernetesCluster", Name: "shop", UID: "uid", Controller: &isController}}
		edit(m)
		return m
	}
	machineReady := func(reason string) []metav1.Condition {
		return []metav1.Condition{{Type: v1alpha1.ConditionReady, Status: metav1.ConditionFalse, Reason: reason}}
	}
	waiting := func(edit func(*v1alpha1.KubernetesCluster)) *v1alpha1.KubernetesCluster {
		kc := &v1alpha1.KubernetesCluster{ObjectMeta: metav1.ObjectMeta{Name: "shop", Generation: 2}}
		kc.Status.ObservedGeneration, kc.Status.Conditions = 2, machineReady(reasonWaitingForMachines)
		kc.ManagedFields = []metav1.ManagedFieldsEntry{
			{Manager: "kubectl", Operation: metav1.ManagedFieldsOperationUpdate, Time: &now},
			{Manager: "bootstrap-talos", Operation: metav1.ManagedFieldsOperationUpdate, Subresource: "status", Time: &now},
		}
		edit(kc)
		return kc
	}
	begun := func(edit func(*v1alpha1.KubernetesCluster)) *v1alpha1.KubernetesCluster {
		kc := &v1alpha1.KubernetesCluster{ObjectMeta: metav1.ObjectMeta{Name: "shop", Generation: 1, Finalizers: []string{v1alpha1.FinalizerCluster}}}
		kc.ManagedFields = []metav1.ManagedFieldsEntry{
			{Manager: "kubectl", Operation: metav1.ManagedFieldsOperationUpdate, Time: &now},
			{Manager: "bootstrap-talos", Operation: metav1.ManagedFieldsOperationUpdate, Time: &now},
		}
		edit(kc)
		return kc
	}
	for name, tc := range map[string]struct {
		because string
		object  kube.Object
		change  string
		want    []string
	}{
		"NewMachine":      {"it has no address yet", owned(func(m *v1alpha1.Machine) { m.Status.Conditions = machineReady("WaitingForAddress") }), events.TypeUpdate, nil},
		"ProblemMachine":  {"its cluster tells the user", owned(func(m *v1alpha1.Machine) { m.Status.Conditions = machineReady("ImageNotFound") }), events.TypeUpdate, []string{"GET kubernetesclusters/shop"}},
		"DeletingMachine": {"what it owns may have changed since", owned(func(m *v1alpha1.Machine) { m.DeletionTimestamp = &now }), events.TypeUpdate, []string{"GET machines/shop-cp-0", "GET kubernetesclusters"}},
		"GoneMachine":     {"it may be replaced", owned(func(m *v1alpha1.Machine) { m.Status.Conditions = machineReady("ImageNotFound") }), events.TypeDelete, []string{"GET kubernetesclusters/shop"}},
		"Alone":           {"it belongs to no cluster", &v1alpha1.Machine{ObjectMeta: metav1.ObjectMeta{Name: "alone"}}, events.TypeUpdate, nil},
		"Waiting":         {"the Machines have events of their own", waiting(func(*v1alpha1.KubernetesCluster) {}), events.TypeUpdate, nil},
		"Annotated": {"a user has changed it since", waiting(func(kc *v1alpha1.KubernetesCluster) {
			kc.ManagedFields[0].Time = &later
		}), events.TypeUpdate, []string{"GET kubernetesclusters/shop"}},
		"Changed": {"a user has changed the spec", waiting(func(kc *v1alpha1.KubernetesCluster) { kc.Generation = 3 }), events.TypeUpdate, []string{"GET kubernetesclusters/shop"}},
		"Requested": {"a user requests a reconcile", waiting(func(kc *v1alpha1.KubernetesCluster) {
			kc.Annotations = map[string]string{v1alpha1.AnnotationReconcile: "now"}
		}), events.TypeUpdate, []string{"GET kubernetesclusters/shop"}},
		"Deleting":         {"a user deletes the cluster", waiting(func(kc *v1alpha1.KubernetesCluster) { kc.DeletionTimestamp = &now }), events.TypeUpdate, []string{"GET kubernetesclusters/shop"}},
		"Finalizer":        {"the delivery that has added the finalizer continues", begun(func(*v1alpha1.KubernetesCluster) {}), events.TypeUpdate, nil},
		"New":              {"no delivery has begun", begun(func(kc *v1alpha1.KubernetesCluster) { kc.ManagedFields = kc.ManagedFields[:1] }), events.TypeAdd, []string{"GET kubernetesclusters/shop"}},
		"FinalizerChanged": {"a user has changed the spec", begun(func(kc *v1alpha1.KubernetesCluster) { kc.Generation = 2 }), events.TypeUpdate, []string{"GET kubernetesclusters/shop"}},
		"FinalizerAnnotated": {"a user has changed it since", begun(func(kc *v1alpha1.KubernetesCluster) {
			kc.ManagedFields[0].Time = &later
		}), events.TypeUpdate, []string{"GET kubernetesclusters/shop"}},
		"FinalizerRequested": {"a user requests a reconcile", begun(func(kc *v1alpha1.KubernetesCluster) {
			kc.Annotations = map[string]string{v1alpha1.AnnotationReconcile: "now"}
		}), events.TypeUpdate, []string{"GET kubernetesclusters/shop"}},
		"FinalizerDeleting": {"a user deletes the cluster", begun(func(kc *v1alpha1.KubernetesCluster) { kc.DeletionTimestamp = &now }), events.TypeUpdate, []string{"GET kubernetesclusters/shop"}},
		"FinalizerUnpaused": {"the status says that it is paused", begun(func(kc *v1alpha1.KubernetesCluster) { kc.Status.Conditions = machineReady(reasonPaused) }), events.TypeUpdate, []string{"GET kubernetesclusters/shop"}},
		"Unpaused":          {"the status says that it is paused", waiting(func(kc *v1alpha1.KubernetesCluster) { kc.Status.Conditions = machineReady(reasonPaused) }), events.TypeUpdate, []string{"GET kubernetesclusters/shop"}},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			s, listens, client := newRecordedEnv(t)
			f := newFunction(client, functionOptions{now: time.Now})
			e := event.New()
			e.SetType(tc.change)
			kind := "KubernetesCluster"
			if _, isMachine := tc.object.(*v1alpha1.Machine); isMachine {
				kind = "Machine"
			}
			events.Ref{APIVersion: v1alpha1.GroupVersion.String(), Kind: kind, Namespace: s.namespace, Name: tc.object.GetName()}.Set(&e, "uid")
			if err := e.SetData(event.ApplicationJSON, tc.object); err != nil {
				t.Fatal(err)
			}
			if _, err := f.handle(t.Context(), e); err != nil {
				t.Fatal(err)
			}
			if !slices.Equal(listens.last, tc.want) {
				t.Errorf("%s: requested %v, want %v", tc.because, listens.last, tc.want)
			}
		})
	}
}
