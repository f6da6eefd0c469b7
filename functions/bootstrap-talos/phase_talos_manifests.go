package main

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"

	"github.com/vitistack/stack/apis/cluster/addons"
	"github.com/vitistack/stack/apis/cluster/plan"
	"github.com/vitistack/stack/apis/v1alpha1"
	"github.com/vitistack/stack/functions/bootstrap-talos/talos"
	"github.com/vitistack/stack/functions/bootstrap-talos/workload"
	"github.com/vitistack/stack/functions/internal/reconcile"
)

// applyTalosManifests applies what a changed configuration of the control planes puts into the workload cluster, as
// talosctl upgrade-k8s does: cluster.inlineManifests, cluster.extraManifests, the settings of kube-proxy and flannel, and the
// images of kube-proxy and CoreDNS. Talos itself only creates missing objects. Objects that the configuration no
// longer has stay in the cluster. A manifest that the workload API refuses makes ConfigCurrent False, and stops no other.
func applyTalosManifests(ctx context.Context, c *cluster) error {
	if c.observed.controlPlaneChanged {
		return reconcile.WaitError{Reason: "ChangingNodes", Message: "waits for Talos to render the manifests of the new configuration", Requeue: true}
	}
	present, images, err := readTalosManifests(ctx, c)
	if err != nil {
		return err
	}
	before, failed := c.Status.TalosManifests, map[string]bool{}
	for _, m := range addons.ChangedTalosManifests(before, present) {
		err := applyTalosManifest(ctx, c, m)
		if err != nil && !c.report.noteUserError(v1alpha1.ConditionConfigCurrent, err) {
			return err
		}
		failed[m.Name] = err != nil
	}
	applied := map[string]string{}
	for _, a := range images {
		if image, known := before[a.Name]; known && image != a.Image {
			if err := refreshAddon(ctx, c, a, "ChangingNodes"); err != nil {
				return err
			}
		}
		applied[a.Name] = a.Image
	}
	c.Status.TalosManifests = addons.RecordTalosManifests(before, present, failed, applied)
	return nil
}

// readTalosManifests asks one control plane, which has the configuration that all of them have.
func readTalosManifests(ctx context.Context, c *cluster) ([]addons.TalosManifest, []plan.Addon, error) {
	addresses := c.observed.controlPlanes()
	for _, name := range slices.Sorted(maps.Keys(addresses)) {
		found, err := talos.ReadManifests(ctx, addresses[name], c.connections.credentials)
		if err != nil {
			continue
		}
		if images, err := talos.ReadAddons(ctx, addresses[name], c.connections.credentials); err == nil {
			return found, images, nil
		}
	}
	return nil, nil, reconcile.WaitError{Reason: "WaitingForNode", Message: "waits for a control plane, to compare the manifests of its configuration", Requeue: true}
}

// applyTalosManifest applies the objects of a manifest.
func applyTalosManifest(ctx context.Context, c *cluster, m addons.TalosManifest) error {
	for _, o := range m.Objects {
		err := c.connections.workload.Apply(ctx, o.Unstructured)
		var unknown workload.UnknownKindError
		var answer workload.StatusError
		switch {
		case err == nil:
		case errors.As(err, &unknown):
			return reconcile.UserError{Reason: addons.ReasonInvalid, Message: fmt.Sprintf(
				"manifest %s of the machine configuration, %s: the workload API serves no %s of %s: correct it in the ConfigMap that spec.talos.patches names, or install its CustomResourceDefinition. It is tried again every minute",
				m.Name, o, unknown.Kind, unknown.GroupVersion())}
		case errors.As(err, &answer) && isRefusal(answer):
			return reconcile.UserError{Reason: addons.ReasonRefused, Message: fmt.Sprintf(
				"manifest %s of the machine configuration: the workload API refuses %s: %s. Correct it in the ConfigMap that spec.talos.patches names, or the policy that refuses it. It is tried again every minute",
				m.Name, o, answer.Message)}
		default:
			return reconcile.WaitError{Reason: "ChangingNodes", Message: fmt.Sprintf("waits for the workload API to accept %s of manifest %s", o, m.Name), Requeue: true}
		}
	}
	return nil
}
