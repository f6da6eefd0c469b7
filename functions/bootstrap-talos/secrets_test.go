package main

import (
	"testing"

	"github.com/vitistack/stack/apis/v1alpha1"
	"github.com/vitistack/stack/functions/internal/kube"
)

// TestSecretsNotAllowed has a cluster in a namespace where the function has no rights on Secrets. The
// remedy in the condition leads to a cluster that runs and can be deleted.
func TestSecretsNotAllowed(t *testing.T) {
	t.Parallel()
	s := newEnv(t, envOptions{handle: dropEvents})
	all := s.function.kube
	limited := s.client(s.server.WithoutSecrets(t))
	rights := func(c *kube.Client) { s.function.kube, s.function.manifests.Kube = c, c }
	look := func() {
		t.Helper()
		if _, err := s.function.handle(t.Context(), resyncEvent(s.namespace, "shop", "look")); err != nil {
			t.Logf("a look: %v", err)
		}
	}
	rights(limited)
	s.create(s.cluster("shop", 1, 0))
	look()
	s.awaitReason("shop", "SecretsNotAllowed", "secrets.namespaces", "ClusterRole vitistack-bootstrap-talos-secrets")
	rights(all)
	look()
	if kc := s.get("shop"); !isTrue(kc, conditionCredentials) {
		t.Fatalf("no keys are created with the rights: %s", kc.Status.Message)
	}
	rights(limited)
	if err := s.kube.Delete(t.Context(), s.get("shop")); err != nil {
		t.Fatal(err)
	}
	for range 20 {
		look()
	}
	s.awaitReason("shop", "SecretsNotAllowed", "ClusterRole vitistack-bootstrap-talos-secrets")
	rights(all)
	for range 20 {
		look()
	}
	if err := s.kube.Get(t.Context(), s.namespace, "shop", &v1alpha1.KubernetesCluster{}); !kube.NotFound(err) {
		t.Errorf("the cluster is left: %v", err)
	}
}
