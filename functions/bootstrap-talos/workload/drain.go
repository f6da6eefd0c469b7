package workload

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"net/http"
	"net/url"
	"slices"

	corev1 "k8s.io/api/core/v1"
	policyv1 "k8s.io/api/policy/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/vitistack/stack/apis/cluster/plan"
)

// DrainProgress is how far a drain is.
type DrainProgress struct {
	// Remaining are the pods that are still on the node, as namespace/name.
	Remaining []string
	// Blocked is why the first pod that cannot be evicted stays. It is empty if all are terminating.
	Blocked string
}

// IsDone reports whether no pod is left to evict.
func (d DrainProgress) IsDone() bool { return len(d.Remaining) == 0 }

// WaitsFor returns what the drain waits for, or an empty string if it is done.
func (d DrainProgress) WaitsFor() string {
	switch {
	case d.Blocked != "":
		return d.Blocked
	case d.IsDone():
		return ""
	}
	return fmt.Sprintf("waiting for %s to end, the first is %s", plan.Plural(len(d.Remaining), "pod"), d.Remaining[0])
}

// Drain evicts the pods of a node through the eviction API, which respects PodDisruptionBudgets.
// It does not wait: each call returns how far the drain is. Pods of DaemonSets, static pods and
// terminated pods stay.
func (w *Client) Drain(ctx context.Context, node string) (DrainProgress, error) {
	list := &corev1.PodList{}
	if err := w.call(ctx, http.MethodGet, "/api/v1/pods?fieldSelector="+url.QueryEscape("spec.nodeName="+node), "", nil, list); err != nil {
		return DrainProgress{}, fmt.Errorf("list pods of node %s: %w", node, err)
	}
	var d DrainProgress
	for i := range list.Items {
		pod := &list.Items[i]
		if staysOnNode(pod) {
			continue
		}
		name := pod.Namespace + "/" + pod.Name
		if pod.DeletionTimestamp == nil {
			why, err := w.evict(ctx, pod)
			if err != nil {
				return DrainProgress{}, err
			}
			if why != "" && d.Blocked == "" {
				d.Blocked = fmt.Sprintf("pod %s may not be moved: %s", name, why)
			}
		}
		d.Remaining = append(d.Remaining, name)
	}
	slices.Sort(d.Remaining)
	return d, nil
}

// EvictPods is Drain for a caller that waits in any case. It returns whether no pod is left to evict, and otherwise what
// the drain waits for, or the error of a request.
func (w *Client) EvictPods(ctx context.Context, node string) (isDrained bool, message string) {
	d, err := w.Drain(ctx, node)
	if err != nil {
		return false, err.Error()
	}
	return d.IsDone(), d.WaitsFor()
}

// staysOnNode reports whether a drain leaves a pod on its node:
//
//	mirror of a static pod    the kubelet would start it again
//	of a DaemonSet            it tolerates the cordon
//	terminated                it does nothing
func staysOnNode(pod *corev1.Pod) bool {
	_, mirror := pod.Annotations[corev1.MirrorPodAnnotationKey]
	owner := metav1.GetControllerOf(pod)
	ended := pod.Status.Phase == corev1.PodSucceeded || pod.Status.Phase == corev1.PodFailed
	return mirror || ended || (owner != nil && owner.Kind == "DaemonSet")
}

// evict evicts a pod. It returns why the pod cannot be evicted now, or an empty string:
//
//	deleted or replaced meanwhile                 evicted
//	unauthorized, or the API server fails         an error: the pod is not the reason
//	refused by budgets or by a webhook            the reason
func (w *Client) evict(ctx context.Context, pod *corev1.Pod) (why string, err error) {
	path := "/api/v1/namespaces/" + url.PathEscape(pod.Namespace) + "/pods/" + url.PathEscape(pod.Name) + "/eviction"
	err = w.call(ctx, http.MethodPost, path, "application/json", &policyv1.Eviction{
		TypeMeta:   metav1.TypeMeta{APIVersion: policyv1.SchemeGroupVersion.String(), Kind: "Eviction"},
		ObjectMeta: metav1.ObjectMeta{Namespace: pod.Namespace, Name: pod.Name},
		DeleteOptions: &metav1.DeleteOptions{
			Preconditions: &metav1.Preconditions{UID: &pod.UID},
		},
	}, nil)
	var r StatusError
	if err == nil || !errors.As(err, &r) {
		return "", err
	}
	switch {
	case r.Code == http.StatusNotFound, r.Code == http.StatusConflict:
		return "", nil
	case r.Code == http.StatusUnauthorized, r.Code > http.StatusInternalServerError:
		return "", fmt.Errorf("evict pod %s/%s: %w", pod.Namespace, pod.Name, err)
	default:
		return cmp.Or(r.Message, r.Error()), nil
	}
}
