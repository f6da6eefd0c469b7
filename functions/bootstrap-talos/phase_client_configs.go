package main

import (
	"context"
	"fmt"
	"maps"
	"slices"

	"github.com/vitistack/stack/functions/bootstrap-talos/talos"
	"github.com/vitistack/stack/functions/internal/reconcile"
)

// ensureClientConfigs keeps the talosconfig and the kubeconfig in their Secrets. It renews them
// when half of their lifetime is over, and when the control planes or the endpoint have changed.
func (s *secretStore) ensureClientConfigs(ctx context.Context, c *cluster) error {
	endpoints := slices.Sorted(maps.Values(c.observed.controlPlanes()))
	_, err := s.ensureSecret(ctx, c.KubernetesCluster, talosconfigSecret, talosconfigKey,
		func(data []byte) bool { return talos.IsTalosconfigCurrent(data, endpoints, c.observed.keys, s.now()) },
		func() ([]byte, error) { return talos.RenderTalosconfig(c.Name, c.observed.keys, endpoints) })
	if err != nil {
		return err
	}
	c.observed.kubeconfig, err = s.ensureSecret(ctx, c.KubernetesCluster, kubeconfigSecret, kubeconfigKey,
		func(data []byte) bool {
			return talos.IsKubeconfigCurrent(data, c.Status.Endpoint, c.observed.keys, s.now())
		},
		func() ([]byte, error) { return fetchKubeconfig(ctx, c) })
	return err
}

// fetchKubeconfig asks the control planes for a kubeconfig.
func fetchKubeconfig(ctx context.Context, c *cluster) ([]byte, error) {
	names := c.controlPlaneNames()
	if len(names) == 0 {
		return nil, waitForMachines(c)
	}
	data, ok := askControlPlanes(c, func(address string) ([]byte, error) {
		return talos.FetchKubeconfig(ctx, address, c.connections.credentials)
	})
	if !ok {
		return nil, reconcile.WaitError{Reason: "WaitingForKubeconfig", Message: fmt.Sprintf("waiting for node %s to return a kubeconfig", names[0]), Requeue: true}
	}
	return talos.RenderKubeconfig(data, c.Status.Endpoint, c.observed.keys.TrustedKubernetes())
}
