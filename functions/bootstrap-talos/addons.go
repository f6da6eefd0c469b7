package main

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"net/http"
	"slices"

	"github.com/cosi-project/runtime/pkg/safe"
	"github.com/siderolabs/talos/pkg/machinery/constants"
	"github.com/siderolabs/talos/pkg/machinery/resources/k8s"
	corev1 "k8s.io/api/core/v1"

	"github.com/vitistack/stack/apis/v1alpha1"
)

// addon is something that Talos puts into a new cluster, and does not touch again.
type addon struct {
	// resource and name are its path in the namespace kube-system.
	resource, name string
	// image is what a node's Talos would run now, and usual the name of the image
	// unless the configuration says another one.
	image, usual string
}

// refreshAddons brings kube-proxy and CoreDNS to the images that a control plane's
// Talos would put into a new cluster now: Talos itself leaves them at those that the
// cluster began with. What is not there, or runs an image of another name, is
// somebody else's and stays.
func (f *function) refreshAddons(ctx context.Context, c *cluster) error {
	addons, err := f.askForAddons(ctx, c)
	if err != nil {
		return err
	}
	for _, a := range addons {
		err := c.workload.refresh(ctx, a)
		if r := (refusal{}); errors.As(err, &r) && slices.Contains([]int{http.StatusForbidden, http.StatusUnprocessableEntity, http.StatusBadRequest}, r.code) {
			return fault{"AddonRefused", fmt.Sprintf("the cluster's own API refuses image %s for %s: %s; change the policy that does", a.image, a.name, r.message)}
		}
		if err != nil {
			return waits{reason: "Upgrading", message: "waits for the workload API, to give " + a.name + " the image " + a.image, silent: true}
		}
	}
	return nil
}

// askForAddons asks one control plane which images it would run.
func (f *function) askForAddons(ctx context.Context, c *cluster) ([]addon, error) {
	addresses := c.controlPlanes()
	for _, name := range slices.Sorted(maps.Keys(addresses)) {
		if addons, err := addonsOf(ctx, addresses[name], c.access); err == nil {
			return addons, nil
		}
	}
	return nil, waits{reason: "Upgrading", message: "waits for a control plane to say which kube-proxy and CoreDNS it would run", silent: true}
}

func addonsOf(ctx context.Context, address string, a *access) ([]addon, error) {
	ctx, c, end, err := talk(ctx, address, a, shortRPC)
	if err != nil {
		return nil, err
	}
	defer end()
	manifests, err := safe.StateGetByID[*k8s.BootstrapManifestsConfig](ctx, c.COSI, k8s.BootstrapManifestsConfigID)
	if err != nil {
		return nil, fmt.Errorf("read what %s puts into clusters: %w", address, err)
	}
	spec := manifests.TypedSpec()
	var addons []addon
	if spec.ProxyEnabled {
		addons = append(addons, addon{"daemonsets", "kube-proxy", spec.ProxyImage, constants.KubeProxyImage})
	}
	if spec.CoreDNSEnabled {
		addons = append(addons, addon{"deployments", "coredns", spec.CoreDNSImage, constants.CoreDNSImage})
	}
	return addons, nil
}

// refresh gives an addon its image, where it runs another version of it.
func (w *workload) refresh(ctx context.Context, a addon) error {
	path := "/apis/apps/v1/namespaces/kube-system/" + a.resource + "/" + a.name
	var present struct {
		Spec struct {
			Template corev1.PodTemplateSpec `json:"template"`
		} `json:"spec"`
	}
	err := w.call(ctx, http.MethodGet, path, "", nil, &present)
	if r := (refusal{}); errors.As(err, &r) && r.code == http.StatusNotFound {
		return nil
	}
	if err != nil {
		return fmt.Errorf("read %s: %w", a.name, err)
	}
	containers := a.outdated(present.Spec.Template.Spec.Containers)
	if len(containers) == 0 {
		return nil
	}
	patch := map[string]any{"spec": map[string]any{"template": map[string]any{"spec": map[string]any{"containers": containers}}}}
	if err := w.call(ctx, http.MethodPatch, path, "application/strategic-merge-patch+json", patch, nil); err != nil {
		return fmt.Errorf("change %s: %w", a.name, err)
	}
	return nil
}

// outdated are the containers, by what a patch needs of them, that run another
// version of the image.
func (a addon) outdated(containers []corev1.Container) []map[string]string {
	var found []map[string]string
	for _, c := range containers {
		name := withTag(c.Image, "")
		if c.Image != a.image && (name == withTag(a.image, "") || name == withTag(a.usual, "")) {
			found = append(found, map[string]string{"name": c.Name, "image": a.image})
		}
	}
	return found
}

// clientsOfTheAPI are what Talos puts into a new cluster and what talks to its API. client-go
// reads at its start whom to trust, and newer versions minutes later again.
var clientsOfTheAPI = []string{"daemonsets/kube-proxy", "daemonsets/kube-flannel", "deployments/coredns"}

// restartAddons restarts the addons of Talos in a rotation, once each, as soon as pods are told
// to trust the new authority of Kubernetes. What is not there stays away.
func (w *workload) restartAddons(ctx context.Context, rotation string, trusted func(ca []byte) bool) error {
	var root corev1.ConfigMap
	err := w.call(ctx, http.MethodGet, "/api/v1/namespaces/kube-system/configmaps/kube-root-ca.crt", "", nil, &root)
	if err != nil || !trusted([]byte(root.Data["ca.crt"])) {
		return waits{reason: "Rotating", message: "waits for ConfigMap kube-system/kube-root-ca.crt of the cluster to have the new authority", silent: true}
	}
	annotations := map[string]string{v1alpha1.AnnotationRotation: rotation}
	patch := map[string]any{"spec": map[string]any{"template": map[string]any{"metadata": map[string]any{"annotations": annotations}}}}
	for _, addon := range clientsOfTheAPI {
		err := w.call(ctx, http.MethodPatch, "/apis/apps/v1/namespaces/kube-system/"+addon, "application/merge-patch+json", patch, nil)
		r := refusal{}
		switch isRefusal := errors.As(err, &r); {
		case err == nil || (isRefusal && r.code == http.StatusNotFound):
		case isRefusal && slices.Contains([]int{http.StatusForbidden, http.StatusUnprocessableEntity, http.StatusBadRequest}, r.code):
			return fault{"AddonRefused", fmt.Sprintf("the cluster's own API refuses an annotation of the pods of %s, which have to restart: %s; change the policy that does", addon, r.message)}
		default:
			return waits{reason: "Rotating", message: "waits for the cluster's API, to restart " + addon, silent: true}
		}
	}
	return nil
}
