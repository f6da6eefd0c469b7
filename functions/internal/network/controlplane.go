package network

import (
	"context"
	"net/netip"

	"github.com/vitistack/stack/apis/v1alpha1"
	"github.com/vitistack/stack/functions/internal/kube"
)

// ControlPlanes are the addresses at which the clusters of a namespace say that
// their control planes are reached. They are not for machines that don't ask for
// them.
func ControlPlanes(ctx context.Context, c *kube.Client, namespace string) (map[netip.Addr]bool, error) {
	list := &v1alpha1.KubernetesClusterList{}
	if err := c.List(ctx, namespace, "", list); err != nil {
		return nil, err
	}
	addresses := map[netip.Addr]bool{}
	for _, cluster := range list.Items {
		endpoint := cluster.Spec.ControlPlaneEndpoint
		if endpoint == nil {
			continue
		}
		for _, text := range []string{endpoint.Address, endpoint.Host} {
			if a, err := netip.ParseAddr(text); err == nil {
				addresses[a] = true
			}
		}
	}
	return addresses, nil
}
