package main

import (
	"net/http"
	"slices"
	"strings"
	"testing"

	"github.com/vitistack/stack/apis/v1alpha1"
	"github.com/vitistack/stack/events"
)

// TestFullRound sends what a full round of resync sends for a Running cluster, and counts the requests. They do not grow
// with the number of its machines, and the round of a Machine leaves the nodes to the round of the cluster.
func TestFullRound(t *testing.T) {
	t.Parallel()
	listens := &asked{}
	g := &gate{}
	s := newEnv(t, envOptions{wrap: func(next http.RoundTripper) http.RoundTripper { listens.next = next; return listens }, handle: g.wrap})
	s.create(s.cluster("shop", 1, 3))
	s.awaitRunning("shop")
	g.close()
	requests := func(kind, name string) []string {
		t.Helper()
		listens.mu.Lock()
		listens.last = nil
		listens.mu.Unlock()
		ref := events.Ref{APIVersion: v1alpha1.GroupVersion.String(), Kind: kind, Namespace: s.namespace, Name: name}
		if _, err := s.function.handle(t.Context(), events.NewReconcileRequest("/functions/resync", ref, "uid", "1")); err != nil {
			t.Fatal(err)
		}
		return listens.last
	}
	if got, want := requests("Machine", "shop-cp-0"), []string{"GET machines/shop-cp-0"}; !slices.Equal(got, want) {
		t.Errorf("a Running Machine costs %v, want %v", got, want)
	}
	got := requests("KubernetesCluster", "shop")
	read := 0
	for _, r := range got {
		if strings.HasPrefix(r, "GET networkconfigurations/") {
			read++
		}
	}
	if read > 1 { // one has the network of the cluster
		t.Errorf("the NetworkConfigurations of a cluster are read one by one: %v", got)
	}
	const most = 8
	if len(got) > most {
		t.Errorf("a Running cluster costs %d requests, want at most %d: %v", len(got), most, got)
	}
}
