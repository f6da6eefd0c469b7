package main

import (
	"bytes"
	"slices"
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/vitistack/stack/apis/cluster/plan"
	"github.com/vitistack/stack/apis/v1alpha1"
	"github.com/vitistack/stack/apis/v1alpha2"
	"github.com/vitistack/stack/functions/internal/kube"
	"github.com/vitistack/stack/tests/stand/feed"
)

// TestSecretsOfATenant has a tenant create and change the Secrets of a cluster, and refer to objects
// in other namespaces.
func TestSecretsOfATenant(t *testing.T) {
	t.Parallel()
	s := newEnv(t, envOptions{})
	// Keys in an existing Secret may be known to others, so a cluster does not use them.
	s.create(&corev1.Secret{ObjectMeta: metav1.ObjectMeta{Name: "shop-talos-secrets"}, Data: map[string][]byte{pkiKey: []byte("certs: null")}})
	s.create(s.cluster("shop", 1, 0))
	s.awaitReason("shop", "NameTaken", "shop-talos-secrets")
	if err := s.kube.Delete(t.Context(), s.secret("shop-talos-secrets")); err != nil {
		t.Fatal(err)
	}
	s.reconcile("shop")
	s.awaitRunning("shop")
	keys := s.secret("shop-talos-secrets")
	if err := s.kube.Merge(t.Context(), keys, map[string]any{"data": map[string][]byte{pkiKey: []byte("certs: null")}}); err == nil {
		t.Error("the keys of a cluster can be changed")
	}
	for _, name := range []string{"shop-talos-secrets", "shop-talosconfig", "shop-kubeconfig"} {
		if secret := s.secret(name); !metav1.IsControlledBy(secret, s.get("shop")) || secret.Labels[v1alpha1.LabelClusterName] != "shop" {
			t.Errorf("Secret %s has owners %v and labels %v", name, secret.OwnerReferences, secret.Labels)
		}
	}
	// A kubeconfig that reads the function's own token, and a talosconfig that would cause a panic,
	// are replaced.
	good := s.secret("shop-kubeconfig").Data[kubeconfigKey]
	bad := map[string][]byte{
		kubeconfigKey:  bytes.Replace(good, []byte("client-certificate-data:"), []byte("tokenFile: /var/run/secrets/kubernetes.io/serviceaccount/token\n    client-certificate-data:"), 1),
		talosconfigKey: []byte("context: x\ncontexts:\n  x: null\n"),
	}
	for name, data := range bad {
		if err := s.kube.Merge(t.Context(), s.secret("shop-"+name), map[string]any{"data": map[string][]byte{name: data}}); err != nil {
			t.Fatal(err)
		}
	}
	s.reconcile("shop")
	for name, data := range bad {
		feed.Until(t, name+" is replaced", func() (bool, string) { return !bytes.Equal(s.secret("shop-" + name).Data[name], data), "" })
	}
	s.awaitRunning("shop")
	// A patch that is a path into another namespace does not exist.
	patches := map[string]any{"all": []string{"../../kube-system/configmaps/x"}}
	if err := s.kube.Merge(t.Context(), s.get("shop"), map[string]any{"spec": map[string]any{"talos": map[string]any{"patches": patches}}}); err != nil {
		t.Fatal(err)
	}
	s.awaitReason("shop", "PatchNotFound", "does not exist")
	if err := s.kube.Delete(t.Context(), s.get("shop")); err != nil {
		t.Fatal(err)
	}
	for _, name := range []string{"shop-kubeconfig", "shop-talosconfig", "shop-talos-secrets"} {
		feed.Until(t, "Secret "+name+" is deleted with its cluster", func() (bool, string) {
			return kube.NotFound(s.kube.Get(t.Context(), s.namespace, name, &corev1.Secret{})), ""
		})
	}
}

// TestNamesOfATenant finds a user's objects under the names that a cluster's objects would have.
func TestNamesOfATenant(t *testing.T) {
	t.Parallel()
	s := newEnv(t, envOptions{})
	foreign := []kube.Object{
		&v1alpha2.IPAllocation{ObjectMeta: metav1.ObjectMeta{Name: "shop-vip"}, Spec: v1alpha2.IPAllocationSpec{NetworkNamespaceName: "net"}},
		&v1alpha1.Machine{
			ObjectMeta: metav1.ObjectMeta{Name: "shop-cp-0", Finalizers: []string{v1alpha1.FinalizerMachine}},
			Spec:       v1alpha1.MachineSpec{Template: "small", OS: &v1alpha1.MachineOS{Version: plan.DefaultTalosVersion}},
		},
	}
	for _, obj := range foreign {
		s.create(obj)
	}
	s.create(s.cluster("shop", 3, 0))
	for len(foreign) > 0 {
		taken := -1
		feed.Until(t, "the cluster reports which name is taken", func() (bool, string) {
			message := s.get("shop").Status.Message
			taken = slices.IndexFunc(foreign, func(obj kube.Object) bool { return strings.Contains(message, obj.GetName()+" was not created") })
			return taken >= 0, message
		})
		s.awaitReason("shop", "NameTaken", foreign[taken].GetName())
		if err := s.kube.Delete(t.Context(), foreign[taken]); err != nil {
			t.Fatal(err)
		}
		foreign = slices.Delete(foreign, taken, taken+1)
		s.reconcile("shop")
	}
	s.awaitRunning("shop", "cp-0", "cp-1", "cp-2")
}
