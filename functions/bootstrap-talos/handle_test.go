package main

import (
	"net/http"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/vitistack/stack/apis/v1alpha1"
	"github.com/vitistack/stack/events"
	"github.com/vitistack/stack/tests/stand/apiserver"
)

// asked notes what an API server is asked for.
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

// TestMachineOfNoCluster tells of a Machine in a namespace without clusters, and in
// one that has got its first.
func TestMachineOfNoCluster(t *testing.T) {
	t.Parallel()
	server := apiserver.Start(t)
	server.Install(t)
	s, listens := &stand{T: t, namespace: server.Namespace(t)}, &asked{}
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
		if _, err := f.handle(t.Context(), events.LookAgain("/functions/resync", ref, "uid", "1")); err != nil {
			t.Fatal(err)
		}
		if !slices.Equal(listens.last, want) {
			t.Errorf("asked for %v, want %v", listens.last, want)
		}
	}
	look("GET kubernetesclusters")
	s.create(s.cluster("shop", 1, 0))
	look("GET kubernetesclusters", "GET machines/alone")
	look("GET machines/alone")
}
