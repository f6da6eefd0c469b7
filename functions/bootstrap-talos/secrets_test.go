package main

import (
	"fmt"
	"testing"
	"time"

	"k8s.io/apimachinery/pkg/api/meta"

	"github.com/vitistack/stack/apis/cluster/plan"
	"github.com/vitistack/stack/apis/v1alpha1"
	"github.com/vitistack/stack/functions/internal/kube"
	"github.com/vitistack/stack/tests/stand/feed"
)

// TestSecretsNotAllowed has a cluster in a namespace where the function has no rights on Secrets. The
// remedy in the condition leads to a cluster that runs and can be deleted.
func TestSecretsNotAllowed(t *testing.T) {
	t.Parallel()
	s := newEnv(t, envOptions{handle: dropEvents})
	limited := s.newFunction(s.clientOf(s.server.WithoutSecrets(t), plan.FunctionName), time.Now)
	look := func(f *function) {
		t.Helper()
		if _, err := f.handle(t.Context(), resyncEvent(s.namespace, "shop", "look")); err != nil {
			t.Logf("a look: %v", err)
		}
	}
	s.create(s.cluster("shop", 1, 0))
	look(limited)
	s.awaitReason("shop", "SecretsNotAllowed", "secrets.namespaces", "ClusterRole vitistack-bootstrap-talos-secrets")
	look(s.function)
	if kc := s.get("shop"); !isTrue(kc, conditionCredentials) {
		t.Fatalf("no keys are created with the rights: %s", kc.Status.Message)
	}
	if err := s.kube.Delete(t.Context(), s.get("shop")); err != nil {
		t.Fatal(err)
	}
	feed.Until(t, "its Machine is deleted, and its Secrets stay", func() (bool, string) {
		look(limited)
		return meta.FindStatusCondition(s.get("shop").Status.Conditions, v1alpha1.ConditionReady).Reason == "SecretsNotAllowed", s.get("shop").Status.Message
	})
	s.awaitReason("shop", "SecretsNotAllowed", "ClusterRole vitistack-bootstrap-talos-secrets")
	feed.Until(t, "the cluster is deleted", func() (bool, string) {
		look(s.function)
		err := s.kube.Get(t.Context(), s.namespace, "shop", &v1alpha1.KubernetesCluster{})
		return kube.NotFound(err), fmt.Sprint(err)
	})
}
