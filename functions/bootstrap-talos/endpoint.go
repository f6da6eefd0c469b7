package main

import (
	"context"
	"fmt"
	"net"
	"net/netip"
	"strconv"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/vitistack/stack/apis/v1alpha1"
	"github.com/vitistack/stack/apis/v1alpha2"
	"github.com/vitistack/stack/functions/internal/kube"
)

// ensureEndpoint finds out where the workload API will be reached. Once found, it
// stays: every node's configuration names it.
func (f *function) ensureEndpoint(ctx context.Context, c *cluster) error {
	host := ""
	switch c.plan.endpoint.Mode {
	case v1alpha1.EndpointCustom:
		host = c.plan.endpoint.Host
	case v1alpha1.EndpointVIP:
		address, err := f.ensureVIP(ctx, c)
		if err != nil {
			return err
		}
		c.vip, host = address, address.String()
	default:
		first := c.machines[c.plan.controlPlanes()[0].name]
		if !running(first) {
			return f.waitForMachines(c)
		}
		host = addressOf(first)
	}
	if c.Status.Endpoint == "" {
		c.Status.Endpoint = "https://" + net.JoinHostPort(host, strconv.Itoa(int(c.plan.port)))
	}
	return nil
}

// ensureVIP allocates the virtual address of the control planes, like that of any
// machine.
func (f *function) ensureVIP(ctx context.Context, c *cluster) (netip.Addr, error) {
	a := &v1alpha2.IPAllocation{
		ObjectMeta: metav1.ObjectMeta{
			Namespace: c.Namespace, Name: kube.Name(c.Name, "vip"), Labels: labelsOf(c.KubernetesCluster),
			OwnerReferences: kube.Owned(c.KubernetesCluster, v1alpha1.GroupVersion.String(), "KubernetesCluster"),
		},
		Spec: v1alpha2.IPAllocationSpec{NetworkNamespaceName: c.network, RequestedAddress: c.plan.endpoint.Address},
	}
	err := f.kube.Get(ctx, a.Namespace, a.Name, a)
	if kube.NotFound(err) {
		err = f.kube.Create(ctx, a)
	}
	if err == nil {
		err = belongs(a, c.KubernetesCluster)
	}
	if err != nil {
		return netip.Addr{}, err
	}
	switch a.Status.Phase {
	case v1alpha2.IPAllocationAllocated:
		return netip.ParseAddr(a.Status.Address)
	case v1alpha2.IPAllocationError:
		return netip.Addr{}, fault{"VirtualAddressFailed", fmt.Sprintf("IPAllocation %s: %s", a.Name, a.Status.Message)}
	default:
		return netip.Addr{}, waits{reason: "WaitingForVirtualAddress", message: "waits for an address from IPAllocation " + a.Name}
	}
}
