package network

import (
	"context"
	"net/netip"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/vitistack/stack/apis/v1alpha1"
	"github.com/vitistack/stack/functions/internal/kube"
)

// ControlPlanes returns the addresses that the clusters of a namespace request for their
// control planes. They are allocated only to machines that request them. The list is as kube.Client.ListCached has it: an address
// that a cluster has requested in the last milliseconds may just as well have been allocated before.
func ControlPlanes(ctx context.Context, c *kube.Client, namespace string) (map[netip.Addr]bool, error) {
	list, err := kube.ListShared[v1alpha1.KubernetesClusterList](ctx, c, namespace, metav1.ListOptions{ResourceVersion: "0"})
	if err != nil {
		return nil, err
	}
	addresses := map[netip.Addr]bool{}
	for i := range list.Items {
		endpoint := list.Items[i].Spec.ControlPlaneEndpoint
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
