package workload

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"slices"

	corev1 "k8s.io/api/core/v1"

	"github.com/vitistack/stack/apis/cluster/plan"
	"github.com/vitistack/stack/apis/v1alpha1"
	"github.com/vitistack/stack/functions/internal/reconcile"
)

// RefreshAddon gives an addon its image if it runs another version of it. An addon that does not
// exist, or that runs an image of another name, is left alone.
func (w *Client) RefreshAddon(ctx context.Context, a plan.Addon) error {
	path := "/apis/apps/v1/namespaces/kube-system/" + a.Resource + "/" + a.Name
	var present struct {
		Spec struct {
			Template corev1.PodTemplateSpec `json:"template"`
		} `json:"spec"`
	}
	err := w.call(ctx, http.MethodGet, path, "", nil, &present)
	if r := (StatusError{}); errors.As(err, &r) && r.Code == http.StatusNotFound {
		return nil
	}
	if err != nil {
		return fmt.Errorf("read %s: %w", a.Name, err)
	}
	containers := a.Outdated(present.Spec.Template.Spec.Containers)
	if len(containers) == 0 {
		return nil
	}
	patch := map[string]any{"spec": map[string]any{"template": map[string]any{"spec": map[string]any{"containers": containers}}}}
	if err := w.call(ctx, http.MethodPatch, path, "application/strategic-merge-patch+json", patch, nil); err != nil {
		return fmt.Errorf("change %s: %w", a.Name, err)
	}
	return nil
}

// restartedAddons are the addons of Talos that talk to the API server. client-go reads the
// authorities that it trusts when it starts, and newer versions again minutes later.
var restartedAddons = []string{"daemonsets/kube-proxy", "daemonsets/kube-flannel", "deployments/coredns"}

// RestartAddons restarts the addons of Talos once in a rotation, as soon as isTrusted accepts
// the authorities that pods trust. Addons that do not exist are skipped.
func (w *Client) RestartAddons(ctx context.Context, rotation string, isTrusted func(ca []byte) bool) error {
	var root corev1.ConfigMap
	err := w.call(ctx, http.MethodGet, "/api/v1/namespaces/kube-system/configmaps/kube-root-ca.crt", "", nil, &root)
	if err != nil || !isTrusted([]byte(root.Data["ca.crt"])) {
		return reconcile.WaitError{Reason: "Rotating", Message: "waiting for ConfigMap kube-system/kube-root-ca.crt of the cluster to have the new authority", Requeue: true}
	}
	annotations := map[string]string{v1alpha1.AnnotationRotation: rotation}
	patch := map[string]any{"spec": map[string]any{"template": map[string]any{"metadata": map[string]any{"annotations": annotations}}}}
	for _, addon := range restartedAddons {
		err := w.call(ctx, http.MethodPatch, "/apis/apps/v1/namespaces/kube-system/"+addon, "application/merge-patch+json", patch, nil)
		r := StatusError{}
		switch isRefusal := errors.As(err, &r); {
		case err == nil || (isRefusal && r.Code == http.StatusNotFound):
		case isRefusal && slices.Contains([]int{http.StatusForbidden, http.StatusUnprocessableEntity, http.StatusBadRequest}, r.Code):
			return reconcile.UserError{Reason: "AddonRefused", Message: fmt.Sprintf("the workload API refuses an annotation of the pods of %s, which have to restart: %s; change the policy that does", addon, r.Message)}
		default:
			return reconcile.WaitError{Reason: "Rotating", Message: "waiting for the workload API, to restart " + addon, Requeue: true}
		}
	}
	return nil
}
