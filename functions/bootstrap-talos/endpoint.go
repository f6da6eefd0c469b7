package main

import (
	"context"
	"fmt"
	"maps"
	"net"
	"net/netip"
	"net/url"
	"slices"
	"strconv"
	"strings"

	"github.com/cosi-project/runtime/pkg/safe"
	"github.com/siderolabs/talos/pkg/machinery/resources/network"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/vitistack/stack/apis/v1alpha1"
	"github.com/vitistack/stack/apis/v1alpha2"
	"github.com/vitistack/stack/functions/internal/kube"
)

// ensureEndpoint finds out where the workload API is reached, and where it should
// be. A cluster that has begun keeps what every node's configuration names, until
// maintain moves it; where nobody has that address any more it moves at once.
func (f *function) ensureEndpoint(ctx context.Context, c *cluster) error {
	host, held, err := f.endpointHost(ctx, c)
	if err != nil {
		return err
	}
	c.endpoint = "https://" + net.JoinHostPort(host, strconv.Itoa(int(c.plan.port)))
	if c.Status.Endpoint == "" || !held {
		c.Status.Endpoint = c.endpoint
	}
	return nil
}

// endpointHost is the address or name at which the workload API should be reached,
// and whether what the status says serves until it is.
func (f *function) endpointHost(ctx context.Context, c *cluster) (host string, held bool, err error) {
	switch c.plan.endpoint.Mode {
	case v1alpha1.EndpointCustom:
		return c.plan.endpoint.Host, true, nil
	case v1alpha1.EndpointVIP:
		c.vip, err = f.ensureVIP(ctx, c)
		return c.vip.String(), true, err
	}
	now := ""
	if u, err := url.Parse(c.Status.Endpoint); err == nil {
		now = u.Hostname()
	}
	planes := c.planes()
	if now != "" && c.Spec.ControlPlaneEndpoint == nil && !slices.ContainsFunc(planes, func(p plane) bool { return p.address == now }) {
		if c.vip, err = f.keptVIP(ctx, c, now); err != nil || c.vip.IsValid() {
			return now, true, err
		}
	}
	if host = endpointNode(now, planes); host == "" {
		return "", false, f.waitForMachines(c)
	}
	return host, host == now, nil
}

// plane is a control plane, as far as it matters for who is the endpoint.
type plane struct {
	address string
	// up has its configuration and runs, stays has not been told to go, and next is
	// the first of those that a new cluster will have.
	up, stays, next bool
}

// planes are the control planes that have an address, those that stay first.
func (c *cluster) planes() []plane {
	var staying, going []plane
	for i, m := range c.plan.controlPlanes() {
		if machine := c.machines[m.name]; addressed(machine) {
			staying = append(staying, plane{addressOf(machine), installed(machine) && running(machine), true, i == 0})
		}
	}
	for _, name := range slices.Sorted(maps.Keys(c.machines)) {
		m := c.machines[name]
		if poolOf(m) != controlPlanePool || len(m.Status.IPAddresses) == 0 || slices.ContainsFunc(staying, func(p plane) bool { return p.address == addressOf(m) }) {
			continue
		}
		going = append(going, plane{addressOf(m), installed(m) && running(m), !leaving(m), false})
	}
	return append(staying, going...)
}

// endpointNode decides whose address is the endpoint of a cluster that has neither a
// virtual address nor a custom one:
//
//	who has it now stays                 the same, also while it is down
//	a new cluster                        its first control plane, once it has that
//	who had it leaves, or is gone        the first one that works and stays
//	and there is none                    the same: somebody has to come back
func endpointNode(now string, planes []plane) string {
	for _, p := range planes {
		switch {
		case now != "" && p.address == now && p.stays:
			return now
		case now == "" && p.next:
			return p.address
		}
	}
	if i := slices.IndexFunc(planes, func(p plane) bool { return p.up && p.stays }); now != "" && i >= 0 {
		return planes[i].address
	}
	return now
}

// keptVIP is the virtual address of a cluster that has shrunk to one control plane,
// if now is that. It stays, as everybody knows it.
func (f *function) keptVIP(ctx context.Context, c *cluster, now string) (netip.Addr, error) {
	a := &v1alpha2.IPAllocation{}
	err := f.kube.Get(ctx, c.Namespace, vipName(c.KubernetesCluster), a)
	if kube.NotFound(err) || (err == nil && (belongs(a, c.KubernetesCluster) != nil || a.Status.Address != now)) {
		return netip.Addr{}, nil
	}
	if err != nil {
		return netip.Addr{}, err
	}
	return netip.ParseAddr(now)
}

// moveEndpoint keeps the configuration of every node current. Where the endpoint has to
// change, because one control plane has become more or because the spec names another, it
// first gives the nodes what they need to serve the new endpoint, and has the nodes and the
// kubeconfig name it once the API answers there. A cluster is Running only while the API
// answers at its endpoint, because the function's own client falls back to the control
// planes' addresses.
func (f *function) moveEndpoint(ctx context.Context, c *cluster) error {
	moves := c.endpoint != c.Status.Endpoint
	served := moves && c.askEndpoint(ctx) == nil
	if served {
		c.Status.Endpoint = c.endpoint
	}
	if err := f.amend(ctx, c); err != nil {
		return err
	}
	if !served {
		if err := f.waitForEndpoint(ctx, c); err != nil {
			return err
		}
		if !moves {
			return nil
		}
		c.Status.Endpoint = c.endpoint
		if err := f.amend(ctx, c); err != nil {
			return err
		}
	}
	return f.keepCredentials(ctx, c)
}

// askEndpoint returns an error unless the API answers at the endpoint that the cluster has
// or is to have.
func (c *cluster) askEndpoint(ctx context.Context) error {
	_, err := c.workload.at(c.endpoint).version(ctx)
	return err
}

// waitForEndpoint polls the endpoint until the deadline of the delivery: a control plane may
// have received its configuration just now.
func (f *function) waitForEndpoint(ctx context.Context, c *cluster) error {
	return poll(ctx, c.until, func(ctx context.Context) error {
		err := c.askEndpoint(ctx)
		if err == nil {
			return nil
		}
		message := fmt.Sprintf("nothing serves the endpoint %s, although control planes answer at their own addresses (%s)", c.endpoint, kube.Text(err.Error(), longestDiff))
		if links := c.unmatchedLinks(ctx); links != "" {
			message += "; " + links
		}
		return waits{reason: "WaitingForEndpoint", message: message, silent: true}
	})
}

// unmatchedLinks names a control plane whose configuration found no network interface to
// put the virtual address on: Talos does not report that.
func (c *cluster) unmatchedLinks(ctx context.Context) string {
	if !c.vip.IsValid() || !c.plan.contract.MultidocNetworkConfigSupported() {
		return ""
	}
	addresses := c.controlPlanes()
	for _, name := range slices.Sorted(maps.Keys(addresses)) {
		if found, err := hasAlias(ctx, addresses[name], c.access, linkAlias(0)); err == nil && !found {
			return fmt.Sprintf("node %s has no network interface whose permanent MAC address is %s, so that its configuration gives none the alias %s and the virtual address: let the hypervisor set it",
				name, strings.Join(c.macs[name], ", "), linkAlias(0))
		}
	}
	return ""
}

// hasAlias reports whether a network interface of a node has an alias.
func hasAlias(ctx context.Context, address string, a *access, alias string) (bool, error) {
	ctx, c, end, err := talk(ctx, address, a, dialTimeout)
	if err != nil {
		return false, err
	}
	defer end()
	links, err := safe.StateListAll[*network.LinkStatus](ctx, c.COSI)
	if err != nil {
		return false, fmt.Errorf("list the interfaces of %s: %w", address, err)
	}
	for l := range links.All() {
		for found := range network.AllLinkAliases(l) {
			if found == alias {
				return true, nil
			}
		}
	}
	return false, nil
}

func vipName(kc *v1alpha1.KubernetesCluster) string { return kube.Name(kc.Name, "vip") }

// ensureVIP allocates the virtual address of the control planes, like that of any
// machine.
func (f *function) ensureVIP(ctx context.Context, c *cluster) (netip.Addr, error) {
	a := &v1alpha2.IPAllocation{
		ObjectMeta: metav1.ObjectMeta{
			Namespace: c.Namespace, Name: vipName(c.KubernetesCluster), Labels: labelsOf(c.KubernetesCluster),
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
	if c.Status.Endpoint == "" && a.Spec.RequestedAddress != c.plan.endpoint.Address {
		if err := f.kube.Delete(ctx, a); err != nil {
			return netip.Addr{}, err
		}
		return netip.Addr{}, waits{reason: "WaitingForVirtualAddress", message: fmt.Sprintf("waits for IPAllocation %q, which asks for the address that the spec named before, to be deleted", a.Name), silent: true}
	}
	switch a.Status.Phase {
	case v1alpha2.IPAllocationAllocated:
		return netip.ParseAddr(a.Status.Address)
	case v1alpha2.IPAllocationError:
		return netip.Addr{}, fault{"VirtualAddressFailed", fmt.Sprintf("IPAllocation %q: %s; the address is written in spec.controlPlaneEndpoint.address", a.Name, a.Status.Message)}
	default:
		return netip.Addr{}, waits{reason: "WaitingForVirtualAddress", message: fmt.Sprintf("waits for an address from IPAllocation %q", a.Name), silent: true}
	}
}
