package main

import (
	"context"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/vitistack/stack/apis/v1alpha1"
	"github.com/vitistack/stack/functions/bootstrap-talos/manifests"
	"github.com/vitistack/stack/functions/internal/kube"
)

// secretStore reads and writes the Secrets of clusters.
type secretStore struct {
	kube *kube.Client
	now  func() time.Time
}

// Suffixes of the names of a cluster's Secrets, and the keys in them.
const (
	pkiSecret         = "talos-secrets"
	pkiKey            = "secrets.yaml"
	talosconfigSecret = "talosconfig"
	talosconfigKey    = "talosconfig"
	kubeconfigSecret  = "kubeconfig"
	kubeconfigKey     = "kubeconfig"
)

// nextPKISecret is the suffix of the Secret with the next keys during a rotation.
const nextPKISecret = pkiSecret + "-next"

// secretName returns the name of a Secret of the cluster, for a suffix.
func secretName(kc *v1alpha1.KubernetesCluster, name string) string { return kube.Name(kc.Name, name) }

// newSecret returns a Secret of the cluster with one key.
func newSecret(kc *v1alpha1.KubernetesCluster, name, key string, data []byte) *corev1.Secret {
	return &corev1.Secret{
		ObjectMeta: metav1.ObjectMeta{
			Namespace: kc.Namespace, Name: secretName(kc, name), Labels: manifests.Labels(kc),
			OwnerReferences: kube.Owned(kc, v1alpha1.GroupVersion.String(), "KubernetesCluster"),
		},
		Data: map[string][]byte{key: data},
	}
}

// ensureSecret returns the content of a Secret for which isCurrent is true. It creates a missing
// Secret, and replaces an outdated one if render succeeds: the old content works until then.
func (s *secretStore) ensureSecret(ctx context.Context, kc *v1alpha1.KubernetesCluster, name, key string, isCurrent func([]byte) bool, render func() ([]byte, error)) ([]byte, error) {
	secret := &corev1.Secret{}
	err := s.kube.Get(ctx, kc.Namespace, secretName(kc, name), secret)
	if err == nil {
		err = manifests.CheckOwner(secret, kc)
	}
	if err != nil && !kube.NotFound(err) {
		return nil, err
	}
	missing := err != nil
	if !missing && isCurrent(secret.Data[key]) {
		return secret.Data[key], nil
	}
	content, err := render()
	switch {
	case err != nil && missing:
		return nil, err
	case !missing && (err != nil || !isCurrent(content)):
		return secret.Data[key], nil // the old content works for the second half of its lifetime
	case !missing:
		return content, s.kube.Merge(ctx, secret, map[string]any{"data": map[string][]byte{key: content}})
	}
	err = s.kube.Create(ctx, newSecret(kc, name, key, content))
	if err != nil && !kube.AlreadyExists(err) {
		return nil, err
	}
	return content, nil
}

// deleteOwned deletes an object that belongs to a cluster, if it exists.
func deleteOwned(ctx context.Context, client *kube.Client, kc *v1alpha1.KubernetesCluster, name string, obj kube.Object) error {
	err := client.Get(ctx, kc.Namespace, name, obj)
	if kube.NotFound(err) || (err == nil && manifests.CheckOwner(obj, kc) != nil) {
		return nil
	}
	if err != nil {
		return err
	}
	return client.Delete(ctx, obj)
}
