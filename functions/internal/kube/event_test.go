package kube_test

import (
	"net/http"
	"sync/atomic"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/vitistack/stack/functions/internal/kube"
	"github.com/vitistack/stack/tests/stand/apiserver"
	"github.com/vitistack/stack/tests/stand/transport"
)

// TestRepeatedEvent records Ready, NotReady and Ready again. kubectl describe shows Events by the time of their last
// occurrence, so that Ready has to be the last one.
func TestRepeatedEvent(t *testing.T) {
	t.Parallel()
	server := apiserver.Start(t)
	config, requests := server.Config(), atomic.Int32{}
	config.Wrap(func(next http.RoundTripper) http.RoundTripper {
		return transport.Func(func(r *http.Request) (*http.Response, error) {
			requests.Add(1)
			return next.RoundTrip(r)
		})
	})
	client, err := kube.New(config, "test", kube.Events, kube.Kinds(corev1.SchemeGroupVersion, &corev1.EventList{}, &corev1.ConfigMap{}))
	if err != nil {
		t.Fatal(err)
	}
	object := &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Namespace: server.Namespace(t), Name: "web", UID: "u1"}}
	recorded := func() map[string]corev1.Event {
		t.Helper()
		list := &corev1.EventList{}
		if err := client.List(t.Context(), object.Namespace, "", list); err != nil {
			t.Fatal(err)
		}
		byReason := map[string]corev1.Event{}
		for _, e := range list.Items {
			byReason[e.Reason] = e
		}
		if len(byReason) != len(list.Items) {
			t.Fatalf("%d Events for %d reasons", len(list.Items), len(byReason))
		}
		return byReason
	}
	for i, reason := range []string{"Ready", "NotReady"} {
		before := requests.Load()
		client.RecordEvent(t.Context(), object, false, reason, "it is "+reason)
		if got := requests.Load() - before; got != 1 {
			t.Errorf("the first Event %s took %d requests, want 1", reason, got)
		}
		e := recorded()[reason]
		past := metav1.NewTime(time.Now().Add(time.Duration(i-2) * time.Hour))
		if err := client.Merge(t.Context(), &e, map[string]any{"firstTimestamp": past, "lastTimestamp": past}); err != nil {
			t.Fatal(err)
		}
	}
	client.RecordEvent(t.Context(), object, false, "Ready", "it is Ready")
	got := recorded()
	ready, notReady := got["Ready"], got["NotReady"]
	if len(got) != 2 || ready.Count != 2 || notReady.Count != 1 || !ready.LastTimestamp.After(notReady.LastTimestamp.Time) || !ready.FirstTimestamp.Before(&notReady.FirstTimestamp) {
		t.Errorf("got Ready %d times from %s to %s, and NotReady %d times at %s, want Ready twice, first and last", ready.Count, ready.FirstTimestamp, ready.LastTimestamp, notReady.Count, notReady.LastTimestamp)
	}
}
