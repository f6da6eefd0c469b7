package e2e

import (
	"testing"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/clientcmd"

	"github.com/vitistack/stack/tests/stand/engine"
	"github.com/vitistack/stack/tests/stand/feed"
)

// TestAuthoritiesAreRotated rotates the authorities of a cluster as a user does, with the rights and
// the admission policies of the shipped stack.
func TestAuthoritiesAreRotated(t *testing.T) {
	t.Parallel()
	u := &env{engine.Start(t, "--config", "RESYNC_PERIOD=5s"), t}
	u.Apply("default", u.StaticNetwork("network", 10, 250))
	u.UntilPhase(engine.NetworkNamespaces, "default", "network", "Ready")
	u.Apply("default", u.Example("simple-kubernetescluster.yaml"))
	u.UntilPhase(engine.KubernetesClusters, "default", "simple-cluster", "Running")
	stolen, err := clientcmd.RESTConfigFromKubeConfig([]byte(data(u.Get(engine.Secrets, "default", "simple-cluster-kubeconfig"), "kubeconfig")))
	if err != nil {
		t.Fatal(err)
	}
	stolen.TLSClientConfig = rest.TLSClientConfig{Insecure: true, CertData: stolen.CertData, KeyData: stolen.KeyData}
	thief, err := kubernetes.NewForConfig(stolen)
	if err != nil {
		t.Fatal(err)
	}
	if _, err := thief.CoreV1().Nodes().List(t.Context(), metav1.ListOptions{}); err != nil {
		t.Fatalf("the kubeconfig does not work before the rotation: %v", err)
	}
	before := data(u.Get(engine.Secrets, "default", "simple-cluster-talos-secrets"), "secrets.yaml")
	u.patch(engine.KubernetesClusters, "default", "simple-cluster", `{"spec":{"talos":{"rotateAuthorities":"2026-11"}}}`)
	feed.Until(t, "the authorities are rotated", func() (bool, string) {
		status, message := condition(u.Get(engine.KubernetesClusters, "default", "simple-cluster"), "AuthoritiesRotated")
		return status == "True", message
	})
	nodesAreReady(t, u.Engine)
	if after := data(u.Get(engine.Secrets, "default", "simple-cluster-talos-secrets"), "secrets.yaml"); after == "" || after == before {
		t.Error("the keys of the cluster were not replaced, or are deleted")
	}
	if u.Get(engine.Secrets, "default", "simple-cluster-talos-secrets-next") != nil {
		t.Error("the keys of the rotation are left")
	}
	if _, err := thief.CoreV1().Nodes().List(t.Context(), metav1.ListOptions{}); !apierrors.IsUnauthorized(err) {
		t.Errorf("the API accepts a kubeconfig from before the rotation: %v", err)
	}
	u.Delete(engine.KubernetesClusters, "default", "simple-cluster")
	nothingIsLeft(t, u.Engine)
}
