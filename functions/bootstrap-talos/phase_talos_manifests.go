package main

import (
	"context"
	"errors"
	"fmt"

	"github.com/vitistack/stack/apis/cluster/addons"
	"github.com/vitistack/stack/apis/cluster/plan"
	"github.com/vitistack/stack/apis/v1alpha1"
	"github.com/vitistack/stack/functions/bootstrap-talos/talos"
	"github.com/vitistack/stack/functions/bootstrap-talos/workload"
	"github.com/vitistack/stack/functions/internal/kube"
	"github.com/vitistack/stack/functions/internal/reconcile"
)

// applyTalosManifests applies what a changed configuration of the control planes puts into the workload cluster, as
// talosctl upgrade-k8s does: cluster.inlineManifests, cluster.extraManifests, the settings of kube-proxy and flannel, and the
// images of kube-proxy and CoreDNS. Talos itself only creates missing objects. Objects that the configuration no
// longer has stay in the cluster. A requested reconcile applies those of users again. A manifest that the workload API refuses makes ConfigCurrent False, and stops no other.
// The status loses what it has of the changed ones before they are applied: if the delivery ends before it has recorded them, and a user takes
// the change back, the former ones are applied again.
func (ap *addonApplier) applyTalosManifests(ctx context.Context, c *cluster) error {
	if c.observed.controlPlaneChanged {
		return reconcile.WaitError{Reason: reasonChangingNodes, Message: "waiting for Talos to render the manifests of the new configuration", Requeue: true}
	}
	rendered, err := readTalosManifests(ctx, c)
	if err != nil {
		return err
	}
	before, failed, again := c.Status.TalosManifests, map[string]bool{}, kube.ReconcileRequested(c.KubernetesCluster)
	if kept, isOther := addons.WithoutChanged(before, rendered.manifests, rendered.images()); isOther {
		c.Status.TalosManifests = kept
		if err := ap.status.patch(ctx, c); err != nil {
			return err
		}
	}
	for _, m := range addons.ChangedTalosManifests(before, rendered.manifests, again) {
		err := applyTalosManifest(ctx, c, m)
		if err != nil && !c.report.noteUserError(v1alpha1.ConditionConfigCurrent, err) {
			return err
		}
		failed[m.Name] = err != nil
	}
	for _, a := range rendered.addons {
		if image, known := before[a.Name]; known && (again || image != a.Image) {
			if err := refreshAddon(ctx, c, a, reasonChangingNodes); err != nil {
				return err
			}
		}
	}
	c.Status.TalosManifests = addons.RecordTalosManifests(c.Status.TalosManifests, rendered.manifests, failed, rendered.images())
	return nil
}

// renderedManifests are what Talos renders from the configuration of the control planes.
type renderedManifests struct {
	manifests []addons.TalosManifest
	addons    []plan.Addon
}

// images returns the images of kube-proxy and CoreDNS by their names.
func (r renderedManifests) images() map[string]string {
	images := map[string]string{}
	for _, a := range r.addons {
		images[a.Name] = a.Image
	}
	return images
}

// readTalosManifests asks one control plane, which has the configuration that all of them have.
func readTalosManifests(ctx context.Context, c *cluster) (renderedManifests, error) {
	rendered, ok := askControlPlanes(c, func(address string) (r renderedManifests, err error) {
		if r.manifests, err = talos.ReadManifests(ctx, address, c.connections.credentials); err != nil {
			return r, err
		}
		r.addons, err = talos.ReadAddons(ctx, address, c.connections.credentials)
		return r, err
	})
	if !ok {
		return rendered, reconcile.WaitError{Reason: "WaitingForNode", Message: "waiting for a control plane, to compare the manifests of its configuration", Requeue: true}
	}
	return rendered, nil
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
				"manifest %s of the machine configuration, %s: the workload API serves no %s of %s: correct it in the ConfigMap that spec.talos.patches names, or install its CustomResourceDefinition. The stack checks again every minute",
				m.Name, o, unknown.Kind, unknown.GroupVersion())}
		case errors.As(err, &answer) && isRefusal(answer):
			return reconcile.UserError{Reason: addons.ReasonRefused, Message: fmt.Sprintf(
				"manifest %s of the machine configuration: the workload API refuses %s: %s. Correct it in the ConfigMap that spec.talos.patches names, or the policy that refuses it. The stack checks again every minute",
				m.Name, o, answer.Message)}
		default:
			return reconcile.WaitError{Reason: reasonChangingNodes, Message: fmt.Sprintf("waiting for the workload API to accept %s of manifest %s", o, m.Name), Requeue: true}
		}
	}
	return nil
}
