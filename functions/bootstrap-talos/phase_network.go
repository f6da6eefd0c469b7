package main

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"

	"k8s.io/apimachinery/pkg/api/meta"

	"github.com/vitistack/stack/apis/cluster/plan"
	"github.com/vitistack/stack/apis/v1alpha1"
	"github.com/vitistack/stack/apis/v1alpha2"
	"github.com/vitistack/stack/functions/internal/kube"
	"github.com/vitistack/stack/functions/internal/network"
	"github.com/vitistack/stack/functions/internal/reconcile"
)

// findNetwork finds the network of the machines. Its UserError leaves the nodes of a cluster as
// they are.
func (e *endpointAllocator) findNetwork(ctx context.Context, c *cluster) error {
	return c.tolerateUserError(v1alpha1.ConditionNetworkAvailable, e.checkNetwork(ctx, c))
}

// checkNetwork returns a UserError if the machines have no network, or a new cluster does not
// fit into it.
func (e *endpointAllocator) checkNetwork(ctx context.Context, c *cluster) error {
	if err := e.recordNetwork(ctx, c); err != nil {
		return err
	}
	name := cmp.Or(c.Status.NetworkNamespaceName, c.Spec.NetworkNamespaceName)
	c.observed.network, c.observed.machineNetwork = name, name
	if isTrue(c.KubernetesCluster, v1alpha1.ConditionNetworkAvailable) && name != "" && c.Status.Endpoint != "" {
		return nil
	}
	nn, err := e.find(ctx, c, name)
	var unresolved network.Unresolved
	if errors.As(err, &unresolved) {
		return reconcile.UserError{Reason: unresolved.Reason, Message: unresolved.Message}
	}
	if err != nil {
		return err
	}
	c.observed.network, c.observed.networkReady = nn.Name, isNetworkReady(nn)
	if c.Status.Endpoint == "" {
		return e.checkPlacement(ctx, c, nn)
	}
	return nil
}

// find returns the NetworkNamespace with a name, or with an empty name the only one of the namespace of a cluster, as network.Find does.
func (e *endpointAllocator) find(ctx context.Context, c *cluster, name string) (*v1alpha2.NetworkNamespace, error) {
	if name == "" {
		var err error
		if name, err = network.FindOnly(ctx, e.kube, c.Namespace); err != nil {
			return nil, err
		}
	}
	return network.Find(ctx, e.kube, c.Namespace, name)
}

// recordNetwork writes the NetworkNamespace in which a machine has its addresses into the status, once. The cluster
// stays there, however many others are created later, and whatever network its spec names after that.
func (e *endpointAllocator) recordNetwork(ctx context.Context, c *cluster) error {
	if c.Status.NetworkNamespaceName != "" {
		return nil
	}
	for _, name := range slices.Sorted(maps.Keys(c.observed.machines)) {
		if len(c.observed.machines[name].Status.IPAddresses) == 0 {
			continue
		}
		nc := &v1alpha1.NetworkConfiguration{}
		if err := e.kube.Get(ctx, c.Namespace, name, nc); err != nil && !kube.NotFound(err) {
			return err
		}
		if c.Status.NetworkNamespaceName = network.NameFor(nc); c.Status.NetworkNamespaceName != "" {
			return nil
		}
	}
	return nil
}

// checkPlacement returns a UserError if a new cluster does not fit into its network, or its nodes do not fit into podCIDR. Afterwards
// that cannot be changed.
func (e *endpointAllocator) checkPlacement(ctx context.Context, c *cluster, nn *v1alpha2.NetworkNamespace) error {
	err := c.plan.CheckPrefixes(c.Spec.Networking, nn)
	if err == nil && !c.observed.hasNodes() {
		err = unlessNodePrefixesAreSet(ctx, e.kube, c.KubernetesCluster, plan.CheckPodPrefix(c.effectiveCluster()))
	}
	if err != nil {
		if errors.As(err, new(reconcile.UserError)) {
			c.report.noteUserError(v1alpha1.ConditionTopologyValid, err)
		}
		return err
	}
	allocation := nn.Spec.IPAllocation
	if dhcp := allocation == nil || allocation.Type == v1alpha2.AllocationDHCP; dhcp && c.plan.Endpoint.Mode == v1alpha1.EndpointVIP {
		return reconcile.UserError{Reason: "VirtualAddressFailed", Message: fmt.Sprintf(
			"NetworkNamespace %q is of type dhcp, in which no virtual address can be reserved: write mode node into spec.controlPlaneEndpoint, or mode custom with the host of a load balancer", nn.Name)}
	}
	return nil
}

func isNetworkReady(nn *v1alpha2.NetworkNamespace) bool {
	return meta.IsStatusConditionTrue(nn.Status.Conditions, v1alpha1.ConditionReady)
}
