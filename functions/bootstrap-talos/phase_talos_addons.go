package main

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"slices"

	"github.com/vitistack/stack/apis/cluster/plan"
	"github.com/vitistack/stack/functions/bootstrap-talos/talos"
	"github.com/vitistack/stack/functions/bootstrap-talos/workload"
	"github.com/vitistack/stack/functions/internal/reconcile"
)

// refreshAddons gives kube-proxy and CoreDNS the images that Talos would install into a new
// cluster now, because Talos never upgrades them.
func refreshAddons(ctx context.Context, c *cluster) error {
	addons, err := readAddons(ctx, c)
	if err != nil {
		return err
	}
	for _, a := range addons {
		if err := refreshAddon(ctx, c, a, "Upgrading"); err != nil {
			return err
		}
	}
	return nil
}

// refreshAddon gives kube-proxy or CoreDNS its image. waiting is the reason of the WaitError if the workload API does not
// answer.
func refreshAddon(ctx context.Context, c *cluster, a plan.Addon, waiting string) error {
	err := c.connections.workload.RefreshAddon(ctx, a)
	if r := (workload.StatusError{}); errors.As(err, &r) && slices.Contains([]int{http.StatusForbidden, http.StatusUnprocessableEntity, http.StatusBadRequest}, r.Code) {
		return reconcile.UserError{Reason: "AddonRefused", Message: fmt.Sprintf("the workload API refuses image %s for %s: %s; change the policy that does", a.Image, a.Name, r.Message)}
	}
	if err != nil {
		return reconcile.WaitError{Reason: waiting, Message: "waiting for the workload API, to give " + a.Name + " the image " + a.Image, Requeue: true}
	}
	return nil
}

// readAddons asks one control plane which addons it would install.
func readAddons(ctx context.Context, c *cluster) ([]plan.Addon, error) {
	addons, ok := askControlPlanes(c, func(address string) ([]plan.Addon, error) {
		return talos.ReadAddons(ctx, address, c.connections.credentials)
	})
	if !ok {
		return nil, reconcile.WaitError{Reason: "Upgrading", Message: "waiting for a control plane to report its images of kube-proxy and CoreDNS", Requeue: true}
	}
	return addons, nil
}
