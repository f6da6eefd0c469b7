package workload

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"net/url"
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/vitistack/stack/apis/cluster/plan"
	"github.com/vitistack/stack/apis/v1alpha1"
)

// Nodes lists the Nodes of the cluster.
func (w *Client) Nodes(ctx context.Context) ([]plan.Node, error) {
	list := &corev1.NodeList{}
	if err := w.call(ctx, http.MethodGet, "/api/v1/nodes", "", nil, list); err != nil {
		return nil, fmt.Errorf("list nodes: %w", err)
	}
	nodes := make([]plan.Node, 0, len(list.Items))
	for _, item := range list.Items {
		info := item.Status.NodeInfo
		n := plan.Node{
			Name: item.Name, ResourceVersion: item.ResourceVersion, Created: item.CreationTimestamp.Time, Version: info.KubeletVersion, TalosVersion: TalosVersion(info.OSImage), BootID: info.BootID,
			Cordoned: item.Spec.Unschedulable, Labels: item.Labels, Annotations: item.Annotations, Taints: item.Spec.Taints,
		}
		for _, c := range item.Status.Conditions {
			if c.Type == corev1.NodeReady {
				n.Ready, n.ReadySince = c.Status == corev1.ConditionTrue, c.LastTransitionTime.Time
			}
		}
		nodes = append(nodes, n)
	}
	return nodes, nil
}

// TalosVersion returns the version in "Talos (v1.13.9)", which is how a Node names its operating
// system.
func TalosVersion(image string) string {
	version, found := strings.CutPrefix(image, "Talos (v")
	if !found {
		return ""
	}
	return strings.TrimSuffix(version, ")")
}

// Version returns the Kubernetes version of the API server that answers, without v.
func (w *Client) Version(ctx context.Context) (string, error) {
	var info struct {
		GitVersion string `json:"gitVersion"`
	}
	if err := w.call(ctx, http.MethodGet, "/version", "", nil, &info); err != nil {
		return "", fmt.Errorf("read version: %w", err)
	}
	return strings.TrimPrefix(info.GitVersion, "v"), nil
}

// SystemPod returns the annotations of a pod in the namespace kube-system, and whether it is Ready.
func (w *Client) SystemPod(ctx context.Context, name string) (annotations map[string]string, ready bool, err error) {
	var pod corev1.Pod
	if err := w.call(ctx, http.MethodGet, "/api/v1/namespaces/kube-system/pods/"+url.PathEscape(name), "", nil, &pod); err != nil {
		return nil, false, fmt.Errorf("read pod kube-system/%s: %w", name, err)
	}
	ready = slices.ContainsFunc(pod.Status.Conditions, func(c corev1.PodCondition) bool {
		return c.Type == corev1.PodReady && c.Status == corev1.ConditionTrue
	})
	return pod.Annotations, ready, nil
}

// CordonForRemoval cordons a Node, and records on it the UID of the Machine that is removed. A machine that takes over
// the Node is another one.
func (w *Client) CordonForRemoval(ctx context.Context, node, machineUID string) error {
	return w.cordon(ctx, node, v1alpha1.AnnotationRemoving, machineUID)
}

// UncordonTakenOver uncordons a Node that another Machine was removed with.
func (w *Client) UncordonTakenOver(ctx context.Context, node string) error {
	return w.uncordon(ctx, node, v1alpha1.AnnotationRemoving)
}

// CordonForResize cordons a Node, and records on it the UID of the Machine that is resized in place, so that the Node is
// uncordoned after that. A Node that a user has cordoned has no such record, and stays cordoned.
func (w *Client) CordonForResize(ctx context.Context, node, machineUID string) error {
	return w.cordon(ctx, node, v1alpha1.AnnotationResizing, machineUID)
}

// UncordonResized uncordons a Node that CordonForResize has cordoned.
func (w *Client) UncordonResized(ctx context.Context, node string) error {
	return w.uncordon(ctx, node, v1alpha1.AnnotationResizing)
}

// CordonForUpgrade cordons a Node, and records on it the UID of the Machine whose Talos is upgraded, so that the Node is
// uncordoned after that, also if the Machine leaves the upgrade before.
func (w *Client) CordonForUpgrade(ctx context.Context, node, machineUID string) error {
	return w.cordon(ctx, node, v1alpha1.AnnotationUpgrading, machineUID)
}

// UncordonUpgraded uncordons a Node that CordonForUpgrade has cordoned.
func (w *Client) UncordonUpgraded(ctx context.Context, node string) error {
	return w.uncordon(ctx, node, v1alpha1.AnnotationUpgrading)
}

// cordon cordons a Node, and records a Machine in an annotation of it.
func (w *Client) cordon(ctx context.Context, node, annotation, machineUID string) error {
	return w.PatchNode(ctx, node, map[string]any{
		"metadata": map[string]any{"annotations": map[string]any{annotation: machineUID}},
		"spec":     map[string]any{"unschedulable": true},
	})
}

// uncordon uncordons a Node, and removes the annotation that cordon has written.
func (w *Client) uncordon(ctx context.Context, node, annotation string) error {
	return w.PatchNode(ctx, node, map[string]any{
		"metadata": map[string]any{"annotations": map[string]any{annotation: nil}},
		"spec":     map[string]any{"unschedulable": false},
	})
}

// PatchNode changes a Node by a JSON merge patch (RFC 7396).
func (w *Client) PatchNode(ctx context.Context, node string, fields map[string]any) error {
	err := w.call(ctx, http.MethodPatch, "/api/v1/nodes/"+url.PathEscape(node), "application/merge-patch+json", fields, nil)
	if err != nil {
		return fmt.Errorf("change node %s: %w", node, err)
	}
	return nil
}

// DeleteNode deletes a Node unless it has changed since it was listed, and reports whether it is gone. A Node that has
// changed stays, because the kubelet of another machine may have taken it over, and does not register again.
func (w *Client) DeleteNode(ctx context.Context, n plan.Node) (gone bool, err error) {
	unchanged := &metav1.DeleteOptions{Preconditions: &metav1.Preconditions{ResourceVersion: &n.ResourceVersion}}
	err = w.call(ctx, http.MethodDelete, "/api/v1/nodes/"+url.PathEscape(n.Name), "application/json", unchanged, nil)
	var answer StatusError
	switch {
	case err == nil, errors.As(err, &answer) && answer.Code == http.StatusNotFound:
		return true, nil
	case answer.Code == http.StatusConflict:
		return false, nil
	default:
		return false, fmt.Errorf("delete node %s: %w", n.Name, err)
	}
}
