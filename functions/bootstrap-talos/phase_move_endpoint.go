package main

import (
	"context"
	"fmt"
	"strings"

	"github.com/vitistack/stack/functions/bootstrap-talos/talos"
	"github.com/vitistack/stack/functions/internal/kube"
	"github.com/vitistack/stack/functions/internal/reconcile"
)

// moveEndpoint keeps the configurations of all nodes current. To change the endpoint, it first
// gives the nodes what they need to serve the new one, and then has the nodes and the kubeconfig
// name it once the API answers there. A cluster is Running only while the API answers at its
// endpoint, because the function itself falls back to the addresses of the control planes.
func (u *configUpdater) moveEndpoint(ctx context.Context, c *cluster) error {
	moves := c.observed.wantedEndpoint != c.Status.Endpoint
	served := moves && checkEndpointServed(ctx, c) == nil
	if served {
		c.Status.Endpoint = c.observed.wantedEndpoint
	}
	if err := u.updateConfigs(ctx, c); err != nil {
		return err
	}
	if !served {
		if err := waitForEndpoint(ctx, c); err != nil {
			return err
		}
		if !moves {
			return nil
		}
		c.Status.Endpoint = c.observed.wantedEndpoint
		if err := u.updateConfigs(ctx, c); err != nil {
			return err
		}
	}
	return u.secrets.ensureClientConfigs(ctx, c)
}

// checkEndpointServed returns an error unless the API answers at the wanted endpoint.
func checkEndpointServed(ctx context.Context, c *cluster) error {
	_, err := c.connections.workload.At(c.observed.wantedEndpoint).Version(ctx)
	return err
}

// waitForEndpoint polls the endpoint until the deadline of the delivery, because a control plane
// may have just got its configuration.
func waitForEndpoint(ctx context.Context, c *cluster) error {
	return reconcile.Poll(ctx, c.deadline, func(ctx context.Context) error {
		err := checkEndpointServed(ctx, c)
		if err == nil {
			return nil
		}
		message := fmt.Sprintf("nothing serves the endpoint %s, although control planes answer at their own addresses (%s)", c.observed.wantedEndpoint, kube.Text(err.Error(), talos.MaxDiff))
		if links := findUnmatchedLinks(ctx, c); links != "" {
			message += "; " + links
		}
		return reconcile.WaitError{Reason: "WaitingForEndpoint", Message: message, Requeue: true}
	})
}

// findUnmatchedLinks names a control plane on which no network interface matches the one of the
// virtual address. Talos does not report that.
func findUnmatchedLinks(ctx context.Context, c *cluster) string {
	if !c.observed.vip.IsValid() || !c.plan.Contract.MultidocNetworkConfigSupported() {
		return ""
	}
	addresses := c.observed.controlPlanes()
	for _, name := range c.controlPlaneNames() {
		if found, err := talos.HasLinkAlias(ctx, addresses[name], c.connections.credentials, talos.LinkAlias(0)); err == nil && !found {
			return fmt.Sprintf("node %s has no network interface whose permanent MAC address is %s, so that none gets the alias %s and the virtual address: set this MAC address at the hypervisor",
				name, strings.Join(c.observed.macs[name], ", "), talos.LinkAlias(0))
		}
	}
	return ""
}
