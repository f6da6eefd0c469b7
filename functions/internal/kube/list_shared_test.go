package kube_test

import (
	"net/http"
	"net/http/httptest"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	coordinationv1 "k8s.io/api/coordination/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/rest"

	"github.com/vitistack/stack/functions/internal/kube"
)

// answers is a transport that answers without a connection.
type answers http.HandlerFunc

// RoundTrip implements http.RoundTripper.
func (a answers) RoundTrip(r *http.Request) (*http.Response, error) {
	w := httptest.NewRecorder()
	a(w, r)
	return w.Result(), nil
}

// leases returns a client whose requests for Leases go to handler.
func leases(t *testing.T, handler http.HandlerFunc) *kube.Client {
	t.Helper()
	client, err := kube.New(&rest.Config{Host: "server", QPS: -1, Transport: answers(handler)}, "test",
		kube.Kinds(coordinationv1.SchemeGroupVersion, &coordinationv1.Lease{}, &coordinationv1.LeaseList{}))
	if err != nil {
		t.Fatal(err)
	}
	return client
}

func TestViewIsShared(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		const viewers = 20
		var requests atomic.Int32
		client := leases(t, func(w http.ResponseWriter, _ *http.Request) {
			requests.Add(1)
			time.Sleep(time.Second) // in a synctest bubble this ends once all other goroutines wait
			_, _ = w.Write([]byte(`{"kind":"LeaseList","apiVersion":"coordination.k8s.io/v1","items":[{"metadata":{"name":"a"}}]}`))
		})
		var lists sync.Map
		var group sync.WaitGroup
		for range viewers {
			group.Go(func() {
				list, err := kube.ListShared[coordinationv1.LeaseList](t.Context(), client, "default", metav1.ListOptions{})
				if err != nil || len(list.Items) != 1 || list.Items[0].Name != "a" {
					t.Errorf("got %v, %v", list, err)
				}
				lists.Store(list, nil)
			})
		}
		group.Wait()
		held := 0
		lists.Range(func(any, any) bool { held++; return true })
		if requests.Load() != 2 || held != 2 {
			t.Errorf("%d requests and %d lists, want one for the first reader, and one for all readers during it", requests.Load(), held)
		}
	})
}

func TestViewTellsErrors(t *testing.T) {
	t.Parallel()
	client := leases(t, func(w http.ResponseWriter, _ *http.Request) {
		w.Header().Set("Content-Type", "application/json")
		w.WriteHeader(http.StatusForbidden)
		_, _ = w.Write([]byte(`{"kind":"Status","apiVersion":"v1","status":"Failure","message":"no","reason":"Forbidden","code":403}`))
	})
	if _, err := kube.ListShared[coordinationv1.LeaseList](t.Context(), client, "default", metav1.ListOptions{}); !apierrors.IsForbidden(err) {
		t.Errorf("got %v", err)
	}
}
