package main

import (
	"testing"

	"github.com/vitistack/stack/apis/v1alpha1"
	"github.com/vitistack/stack/functions/internal/kube"
	"github.com/vitistack/stack/tests/stand/feed"
	"github.com/vitistack/stack/tests/stand/transport"
)

// TestStaleCache creates and deletes clusters while the API server's cache, which answers lists of the resourceVersion 0, has nothing of
// what they have. A deletion that reads only the cache would delete the keys before the machines.
func TestStaleCache(t *testing.T) {
	t.Parallel()
	s, held := newHeldEnv(t, envOptions{wrap: transport.EmptyCache})
	s.create(s.cluster("shop", 1, 1))
	s.awaitRunning("shop", "cp-0", "pool-0")
	held.Store(true)
	kc := s.get("shop")
	before := kc.DeepCopy()
	kc.Status = v1alpha1.KubernetesClusterStatus{} // as a new cluster has it, or one that was restored without its status
	if _, err := s.kube.PatchStatus(t.Context(), before, kc); err != nil {
		t.Fatal(err)
	}
	if err := s.kube.Delete(t.Context(), kc); err != nil {
		t.Fatal(err)
	}
	s.reconcile("shop")
	s.secret("shop-talos-secrets") // the Machines are not deleted yet
	held.Store(false)
	feed.Until(t, "the cluster is deleted", func() (bool, string) {
		err := s.kube.Get(t.Context(), s.namespace, "shop", kc)
		return kube.NotFound(err), kc.Status.Message
	})
	if left := s.machines("shop"); len(left) > 0 {
		t.Errorf("the cluster is deleted before its Machines %v", left)
	}
}
