package main

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"maps"
	"net"
	"net/netip"
	"net/url"
	"slices"
	"strconv"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/vitistack/stack/apis/cluster/plan"
	"github.com/vitistack/stack/apis/v1alpha1"
	"github.com/vitistack/stack/apis/v1alpha2"
	"github.com/vitistack/stack/functions/bootstrap-talos/manifests"
	"github.com/vitistack/stack/functions/internal/kube"
	"github.com/vitistack/stack/functions/internal/reconcile"
)

// endpointAllocator finds the networks of clusters, and reserves and chooses their endpoints in them.
type endpointAllocator struct {
	kube *kube.Client
}

// ensure finds the wanted endpoint. A running cluster keeps the one that its nodes know
// until moveEndpoint changes it. If no control plane has that address, it changes at once. A cluster whose endpoint is a control plane
// is reconciled although its virtual address cannot be allocated, which Ready reports.
func (e *endpointAllocator) ensure(ctx context.Context, c *cluster) error {
	host, held, err := e.endpointHost(ctx, c)
	if err != nil && c.isEndpointNode(endpointHostname(c)) && c.report.noteUserError(v1alpha1.ConditionReady, err) {
		c.observed.wantedEndpoint = c.Status.Endpoint
		return nil
	}
	if err != nil {
		return err
	}
	c.observed.wantedEndpoint = "https://" + net.JoinHostPort(host, strconv.Itoa(int(c.plan.Port)))
	if c.Status.Endpoint == "" || !held {
		c.Status.Endpoint = c.observed.wantedEndpoint
	}
	return nil
}

// reserve allocates the virtual address of a new cluster before its machines are
// created, if its network is Ready.
func (e *endpointAllocator) reserve(ctx context.Context, c *cluster) error {
	if c.Status.Endpoint != "" {
		return nil
	}
	if c.plan.Endpoint.Mode != v1alpha1.EndpointVIP {
		if c.Generation == 1 {
			return nil
		}
		return e.releaseVIP(ctx, c) // of an endpoint that the spec named before
	}
	until := time.Time{}
	if c.observed.networkReady {
		until = c.deadline
	}
	err := reconcile.Poll(ctx, until, func(ctx context.Context) error {
		_, err := e.ensureVIP(ctx, c)
		return err
	})
	if errors.As(err, new(reconcile.WaitError)) && !c.observed.networkReady {
		return nil
	}
	return err
}

// releaseUnusedVIP releases the virtual address of a cluster that has another endpoint after a change of its spec. It runs once every node
// has a configuration without that address.
func (e *endpointAllocator) releaseUnusedVIP(ctx context.Context, c *cluster) error {
	changed := c.Generation > 1 && !(isTrue(c.before, v1alpha1.ConditionReady) && c.before.Status.ObservedGeneration == c.Generation)
	if !changed || c.plan.Endpoint.Mode == v1alpha1.EndpointVIP || c.observed.vip.IsValid() {
		return nil
	}
	return e.releaseVIP(ctx, c)
}

// releaseVIP releases the virtual address of a cluster whose spec names another endpoint. It returns a conflict if the spec is not
// current: nodes may have the address by a later spec, and another object would get it.
func (e *endpointAllocator) releaseVIP(ctx context.Context, c *cluster) error {
	a := &v1alpha2.IPAllocation{}
	err := e.kube.Get(ctx, c.Namespace, vipName(c.KubernetesCluster), a)
	if kube.NotFound(err) || (err == nil && manifests.CheckOwner(a, c.KubernetesCluster) != nil) {
		return nil
	}
	if err == nil {
		err = e.kube.CheckSpecCurrent(ctx, c.KubernetesCluster)
	}
	if err != nil {
		return err
	}
	return e.kube.Delete(ctx, a)
}

// endpointHost returns the address or name of the wanted endpoint, and whether the endpoint in
// the status works until it is served.
func (e *endpointAllocator) endpointHost(ctx context.Context, c *cluster) (host string, held bool, err error) {
	switch c.plan.Endpoint.Mode {
	case v1alpha1.EndpointCustom:
		return c.plan.Endpoint.Host, true, nil
	case v1alpha1.EndpointVIP:
		c.observed.vip, err = e.ensureVIP(ctx, c)
		return c.observed.vip.String(), true, err
	}
	now := endpointHostname(c)
	if now != "" && c.Spec.ControlPlaneEndpoint == nil && !c.isEndpointNode(now) {
		if c.observed.vip, err = e.keptVIP(ctx, c, now); err != nil || c.observed.vip.IsValid() {
			return now, true, err
		}
	}
	if host = plan.ChooseEndpointNode(now, c.endpointNodes()); host == "" {
		return "", false, waitForMachines(c)
	}
	return host, host == now, nil
}

// endpointHostname returns the host of the endpoint in the status, empty for none.
func endpointHostname(c *cluster) string {
	u, err := url.Parse(c.Status.Endpoint)
	if err != nil {
		return ""
	}
	return u.Hostname()
}

// isEndpointNode reports whether a host is the address of a control plane.
func (c *cluster) isEndpointNode(host string) bool {
	return slices.ContainsFunc(c.endpointNodes(), func(p plan.EndpointNode) bool { return p.Address == host })
}

// endpointNodes returns the control planes that have an address, and last those in removal.
func (c *cluster) endpointNodes() []plan.EndpointNode {
	var staying, going []plan.EndpointNode
	for i, m := range c.plan.ControlPlanes() {
		if machine := c.observed.machines[m.Name]; plan.HasAddress(machine) {
			staying = append(staying, plan.EndpointNode{Address: plan.Address(machine), Running: plan.IsInstalled(machine) && plan.IsRunning(machine), Stays: true, First: i == 0})
		}
	}
	for _, name := range slices.Sorted(maps.Keys(c.observed.machines)) {
		m := c.observed.machines[name]
		if plan.PoolOf(m) != v1alpha1.ControlPlanePool || len(m.Status.IPAddresses) == 0 || slices.ContainsFunc(staying, func(p plan.EndpointNode) bool { return p.Address == plan.Address(m) }) {
			continue
		}
		going = append(going, plan.EndpointNode{Address: plan.Address(m), Running: plan.IsInstalled(m) && plan.IsRunning(m), Stays: !plan.IsLeaving(m), First: false})
	}
	return append(staying, going...)
}

// keptVIP returns the virtual address of a cluster that was scaled down to one control plane, if
// the endpoint is that.
func (e *endpointAllocator) keptVIP(ctx context.Context, c *cluster, now string) (netip.Addr, error) {
	a := &v1alpha2.IPAllocation{}
	err := e.kube.Get(ctx, c.Namespace, vipName(c.KubernetesCluster), a)
	if kube.NotFound(err) || (err == nil && (manifests.CheckOwner(a, c.KubernetesCluster) != nil || a.Status.Address != now)) {
		return netip.Addr{}, nil
	}
	if err != nil {
		return netip.Addr{}, err
	}
	return netip.ParseAddr(now)
}

func vipName(kc *v1alpha1.KubernetesCluster) string { return kube.Name(kc.Name, "vip") }

// requestedVIP returns the virtual address that the IPAllocation of a cluster requests: that of the spec, or else the one that its
// control planes share, whose IPAllocation was deleted. Any other address would become the endpoint.
func (c *cluster) requestedVIP() string {
	now := endpointHostname(c)
	_, err := netip.ParseAddr(now)
	isShared := err == nil && len(c.observed.controlPlanes()) > 1 && !c.isEndpointNode(now)
	if c.plan.Endpoint.Address == "" && isShared {
		return now
	}
	return c.plan.Endpoint.Address
}

// ensureVIP allocates the virtual address of the control planes by an IPAllocation.
func (e *endpointAllocator) ensureVIP(ctx context.Context, c *cluster) (netip.Addr, error) {
	a := &v1alpha2.IPAllocation{
		ObjectMeta: metav1.ObjectMeta{
			Namespace: c.Namespace, Name: vipName(c.KubernetesCluster), Labels: manifests.Labels(c.KubernetesCluster),
			OwnerReferences: kube.Owned(c.KubernetesCluster, v1alpha1.GroupVersion.String(), "KubernetesCluster"),
		},
		Spec: v1alpha2.IPAllocationSpec{NetworkNamespaceName: c.observed.network, RequestedAddress: c.requestedVIP()},
	}
	err := e.kube.Get(ctx, a.Namespace, a.Name, a)
	if kube.NotFound(err) {
		err = e.kube.Create(ctx, a)
	}
	if err == nil {
		err = manifests.CheckOwner(a, c.KubernetesCluster)
	}
	if err != nil {
		return netip.Addr{}, err
	}
	if a.Spec.RequestedAddress != c.plan.Endpoint.Address && !isEndpoint(c, a) {
		if err := e.releaseVIP(ctx, c); err != nil {
			return netip.Addr{}, err
		}
		return netip.Addr{}, reconcile.WaitError{Reason: "WaitingForVirtualAddress", Message: fmt.Sprintf("waiting for IPAllocation %q, which asks for the address that the spec named before, to be deleted", a.Name), Requeue: true}
	}
	return allocatedAddress(a, c.plan.VirtualAddressRemedy(a.Spec.RequestedAddress))
}

// isEndpoint reports whether the nodes of a cluster know the address of an IPAllocation, or the one that it requests, as the endpoint.
func isEndpoint(c *cluster, a *v1alpha2.IPAllocation) bool {
	host := endpointHostname(c)
	isRequested := a.Status.Address == "" && a.Spec.RequestedAddress == host && !c.isEndpointNode(host)
	return host != "" && (a.Status.Address == host || isRequested)
}

// allocatedAddress returns the address of the IPAllocation of a cluster. Until it has one it
// returns a WaitError, or a UserError if it cannot get one, with the cause and the remedy.
func allocatedAddress(a *v1alpha2.IPAllocation, remedy string) (netip.Addr, error) {
	switch a.Status.Phase {
	case v1alpha2.IPAllocationAllocated:
		return netip.ParseAddr(a.Status.Address)
	case v1alpha2.IPAllocationError:
		return netip.Addr{}, reconcile.UserError{Reason: "VirtualAddressFailed", Message: fmt.Sprintf("IPAllocation %q: %s; %s", a.Name, cmp.Or(v1alpha1.WhyNotReady(a.Status.Conditions), a.Status.Message), remedy)}
	default:
		message := fmt.Sprintf("waiting for an address from IPAllocation %q", a.Name)
		if cause := v1alpha1.WhyNotReady(a.Status.Conditions); cause != "" {
			message += ": " + cause
		}
		return netip.Addr{}, reconcile.WaitError{Reason: "WaitingForVirtualAddress", Message: message, Requeue: true}
	}
}
