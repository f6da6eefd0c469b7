package main

import (
	"context"
	"errors"
	"fmt"
	"net/netip"
	"time"

	"k8s.io/apimachinery/pkg/api/meta"

	"github.com/vitistack/stack/apis/v1alpha1"
	"github.com/vitistack/stack/apis/v1alpha2"
)

// Prefixes of clusters that name none, which are Talos's own.
const (
	defaultPodCIDR     = "10.244.0.0/16"
	defaultServiceCIDR = "10.96.0.0/12"
)

// checkPlacement judges whether a cluster that has no endpoint yet fits into its network,
// before any machine is made: nothing of it can be changed later.
func checkPlacement(c *cluster, nn *v1alpha2.NetworkNamespace) error {
	if err := checkOverlap(c.Spec.Networking, nn); err != nil {
		c.note(v1alpha1.ConditionTopologyValid, err)
		return err
	}
	allocation := nn.Spec.IPAllocation
	if dhcp := allocation == nil || allocation.Type == v1alpha2.AllocationDHCP; dhcp && c.plan.endpoint.Mode == v1alpha1.EndpointVIP {
		return fault{"VirtualAddressFailed", fmt.Sprintf(
			"NetworkNamespace %q is of type dhcp, in which no virtual address can be reserved: write mode node into spec.controlPlaneEndpoint, or mode custom with the host of a load balancer", nn.Name)}
	}
	return nil
}

// checkOverlap refuses prefixes of pods and Services that overlap the machines' network:
// the nodes would not reach each other.
func checkOverlap(n *v1alpha1.ClusterNetworking, nn *v1alpha2.NetworkNamespace) error {
	inside := map[string]string{"podCIDR": defaultPodCIDR, "serviceCIDR": defaultServiceCIDR}
	if n != nil && n.PodCIDR != "" {
		inside["podCIDR"] = n.PodCIDR
	}
	if n != nil && n.ServiceCIDR != "" {
		inside["serviceCIDR"] = n.ServiceCIDR
	}
	for _, field := range []string{"podCIDR", "serviceCIDR"} {
		for _, text := range []string{nn.Status.IPv4Prefix, nn.Status.IPv6Prefix} {
			own, ownErr := netip.ParsePrefix(inside[field])
			machines, err := netip.ParsePrefix(text)
			if ownErr == nil && err == nil && own.Overlaps(machines) {
				return fault{"NetworkOverlap", fmt.Sprintf(
					"%s %s overlaps %s of NetworkNamespace %q, which the machines are in: write another prefix into spec.networking.%s", field, own, machines, nn.Name, field)}
			}
		}
	}
	return nil
}

// reserveEndpoint allocates the virtual address of a new cluster before its machines are
// made, where its network can give one out now.
func (f *function) reserveEndpoint(ctx context.Context, c *cluster) error {
	if c.Status.Endpoint != "" {
		return nil
	}
	if c.plan.endpoint.Mode != v1alpha1.EndpointVIP {
		return f.drop(ctx, c, vipName(c.KubernetesCluster), &v1alpha2.IPAllocation{}) // of an endpoint that the spec named before
	}
	until := time.Time{}
	if c.networkReady {
		until = c.until
	}
	err := poll(ctx, until, func(ctx context.Context) error {
		_, err := f.ensureVIP(ctx, c)
		return err
	})
	if errors.As(err, new(waits)) && !c.networkReady {
		return nil
	}
	return err
}

func isReady(nn *v1alpha2.NetworkNamespace) bool {
	return meta.IsStatusConditionTrue(nn.Status.Conditions, v1alpha1.ConditionReady)
}
