package main

import (
	"context"
	"fmt"
	"maps"
	"slices"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/vitistack/stack/apis/v1alpha1"
	"github.com/vitistack/stack/functions/bootstrap-talos/manifests"
	"github.com/vitistack/stack/functions/bootstrap-talos/plan"
	"github.com/vitistack/stack/functions/bootstrap-talos/talos"
	"github.com/vitistack/stack/functions/internal/kube"
	"github.com/vitistack/stack/functions/internal/reconcile"
)

// ensureClientConfigs keeps the talosconfig and the kubeconfig that people use, and
// makes them anew when half of their lifetime is over, or when they name others
// than the control planes and the endpoint that there are.
func (f *function) ensureClientConfigs(ctx context.Context, c *cluster) error {
	endpoints := slices.Sorted(maps.Values(c.controlPlanes()))
	_, err := f.ensureSecret(ctx, c.KubernetesCluster, talosconfigSecret, talosconfigKey,
		func(data []byte) bool { return talos.IsTalosconfigCurrent(data, endpoints, c.observed.keys, f.now()) },
		func() ([]byte, error) { return talos.RenderTalosconfig(c.Name, c.observed.keys, endpoints) })
	if err != nil {
		return err
	}
	c.observed.kubeconfig, err = f.ensureSecret(ctx, c.KubernetesCluster, kubeconfigSecret, kubeconfigKey,
		func(data []byte) bool {
			return talos.IsKubeconfigCurrent(data, c.Status.Endpoint, c.observed.keys, f.now())
		},
		func() ([]byte, error) { return f.fetchKubeconfig(ctx, c) })
	return err
}

// fetchKubeconfig asks the control planes in turn, first the one that etcd began
// on.
func (f *function) fetchKubeconfig(ctx context.Context, c *cluster) ([]byte, error) {
	addresses := c.controlPlanes()
	names := slices.Sorted(maps.Keys(addresses))
	if len(names) == 0 {
		return nil, f.waitForMachines(c)
	}
	slices.SortStableFunc(names, func(a, b string) int {
		return plan.Pick(a == c.Status.BootstrapMachine, -1, plan.Pick(b == c.Status.BootstrapMachine, 1, 0))
	})
	for _, name := range names {
		if data, err := talos.FetchKubeconfig(ctx, addresses[name], c.connections.credentials); err == nil {
			return talos.RenderKubeconfig(data, c.Status.Endpoint, c.observed.keys.TrustedKubernetes())
		}
	}
	return nil, reconcile.WaitError{Reason: "WaitingForKubeconfig", Message: fmt.Sprintf("waits for node %s to hand out a kubeconfig", names[0]), Requeue: true}
}

// Secrets of a cluster, by what their names end in, and their keys.
const (
	talosconfigSecret = "talosconfig"
	talosconfigKey    = "talosconfig"
	kubeconfigSecret  = "kubeconfig"
	kubeconfigKey     = "kubeconfig"
)

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
