package main

import (
	"context"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/vitistack/stack/apis/v1alpha1"
	"github.com/vitistack/stack/functions/bootstrap-talos/manifests"
	"github.com/vitistack/stack/functions/internal/kube"
)

// Suffixes of the names of a cluster's Secrets, and the keys in them.
const (
	pkiSecret         = "talos-secrets"
	pkiKey            = "secrets.yaml"
	talosconfigSecret = "talosconfig"
	talosconfigKey    = "talosconfig"
	kubeconfigSecret  = "kubeconfig"
	kubeconfigKey     = "kubeconfig"
)

// nextPKISecret is what the name of the Secret with the next keys of a cluster ends in,
// while its authorities are rotated.
const nextPKISecret = pkiSecret + "-next"

func secretName(kc *v1alpha1.KubernetesCluster, name string) string { return kube.Name(kc.Name, name) }

func newSecret(kc *v1alpha1.KubernetesCluster, name, key string, data []byte) *corev1.Secret {
	return &corev1.Secret{
		ObjectMeta: metav1.ObjectMeta{
			Namespace: kc.Namespace, Name: secretName(kc, name), Labels: manifests.Labels(kc),
			OwnerReferences: kube.Owned(kc, v1alpha1.GroupVersion.String(), "KubernetesCluster"),
		},
		Data: map[string][]byte{key: data},
	}
}

// ensureSecret makes one of a cluster's other Secrets, unless one is there that
// serves. One that does not is replaced where a new one can be had.
func (f *function) ensureSecret(ctx context.Context, kc *v1alpha1.KubernetesCluster, name, key string, serves func([]byte) bool, data func() ([]byte, error)) ([]byte, error) {
	secret := &corev1.Secret{}
	err := f.kube.Get(ctx, kc.Namespace, secretName(kc, name), secret)
	if err == nil {
		err = manifests.CheckOwner(secret, kc)
	}
	if err != nil && !kube.NotFound(err) {
		return nil, err
	}
	missing := err != nil
	if !missing && serves(secret.Data[key]) {
		return secret.Data[key], nil
	}
	content, err := data()
	switch {
	case err != nil && missing:
		return nil, err
	case !missing && (err != nil || !serves(content)):
		return secret.Data[key], nil // the old one is good for half of its lifetime yet
	case !missing:
		return content, f.kube.Merge(ctx, secret, map[string]any{"data": map[string][]byte{key: content}})
	}
	err = f.kube.Create(ctx, newSecret(kc, name, key, content))
	if err != nil && !kube.AlreadyExists(err) {
		return nil, err
	}
	return content, nil
}

// deleteOwned deletes one object, if it is there and belongs to the cluster.
func (f *function) deleteOwned(ctx context.Context, c *cluster, name string, obj kube.Object) error {
	err := f.kube.Get(ctx, c.Namespace, name, obj)
	if kube.NotFound(err) || (err == nil && manifests.CheckOwner(obj, c.KubernetesCluster) != nil) {
		return nil
	}
	if err != nil {
		return err
	}
	return f.kube.Delete(ctx, obj)
}
