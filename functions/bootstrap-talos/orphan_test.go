package main

import (
	"slices"
	"testing"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/dynamic"

	"github.com/vitistack/stack/apis/v1alpha1"
	"github.com/vitistack/stack/functions/internal/kube"
	"github.com/vitistack/stack/tests/stand/feed"
)

// orphan removes the owner of an object, as the garbage collector does.
func (s *env) orphan(obj kube.Object) {
	s.Helper()
	if err := s.kube.Merge(s.Context(), obj, map[string]any{"metadata": map[string]any{"ownerReferences": nil}}); err != nil {
		s.Fatal(err)
	}
}

// TestDeletionThatOrphans deletes a cluster with --cascade=orphan. The deletion keeps its Machines and
// keys, also while the garbage collector has not removed their owner yet. A Machine that a user deletes
// after that does not wait for the cluster.
func TestDeletionThatOrphans(t *testing.T) {
	t.Parallel()
	s := newEnv(t, envOptions{})
	s.create(s.cluster("shop", 1, 1))
	s.awaitRunning("shop", "cp-0", "pool-0")
	client, err := dynamic.NewForConfig(s.config)
	if err != nil {
		t.Fatal(err)
	}
	how := metav1.DeletePropagationOrphan
	if err := client.Resource(clusters.Resource).Namespace(s.namespace).Delete(t.Context(), "shop", metav1.DeleteOptions{PropagationPolicy: &how}); err != nil {
		t.Fatal(err)
	}
	s.awaitReason("shop", reasonDeleting, "garbage collector")
	keys := s.secret("shop-talos-secrets")
	for _, obj := range []kube.Object{s.machine("shop-cp-0"), s.machine("shop-pool-0"), keys} {
		if obj.GetDeletionTimestamp() != nil {
			t.Fatalf("%s %s is being deleted", kube.KindOf(obj), obj.GetName())
		}
		s.orphan(obj)
	}
	kc := s.get("shop")
	left := slices.DeleteFunc(slices.Clone(kc.Finalizers), func(f string) bool { return f == metav1.FinalizerOrphanDependents })
	if err := s.kube.Merge(t.Context(), kc, map[string]any{"metadata": map[string]any{"finalizers": left}}); err != nil {
		t.Fatal(err)
	}
	feed.Until(t, "the cluster is deleted", func() (bool, string) {
		err := s.kube.Get(t.Context(), s.namespace, "shop", &v1alpha1.KubernetesCluster{})
		return kube.NotFound(err), ""
	})
	if err := s.kube.Get(t.Context(), s.namespace, keys.Name, &corev1.Secret{}); err != nil {
		t.Errorf("the keys are lost: %v", err)
	}
	for _, name := range []string{"shop-cp-0", "shop-pool-0"} {
		m := s.machine(name)
		if m.DeletionTimestamp != nil {
			t.Fatalf("Machine %s is being deleted", name)
		}
		if err := s.kube.Delete(t.Context(), m); err != nil {
			t.Fatal(err)
		}
		feed.Until(t, name+" is deleted", func() (bool, string) {
			err := s.kube.Get(t.Context(), s.namespace, name, &v1alpha1.Machine{})
			return kube.NotFound(err), ""
		})
	}
}
