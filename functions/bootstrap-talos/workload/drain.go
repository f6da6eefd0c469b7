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
)

// DrainProgress says how far a drain is.
type DrainProgress struct {
	// Remaining are the pods, as namespace/name, that are still on the node.
	Remaining []string
	// blocked says why the first of those that may not go stays, empty where all are
	// on their way.
	Blocked string
}

// IsDone tells whether no pod is left that a drain moves.
func (d DrainProgress) IsDone() bool { return len(d.Remaining) == 0 }

// Drain asks every pod of a node to go that somebody would start elsewhere, through
// the eviction API, so that PodDisruptionBudgets are respected. It does not wait:
// whoever calls it again sees how far it is. Pods of DaemonSets, static pods, and
// pods that have ended stay.
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

// staysOnNode tells whether a drain leaves a pod where it is:
//
//	mirror of a static pod    the kubelet would start it again
//	of a DaemonSet            it tolerates that the node is cordoned
//	ended                     it does nothing any more
func staysOnNode(pod *corev1.Pod) bool {
	_, mirror := pod.Annotations[corev1.MirrorPodAnnotationKey]
	owner := metav1.GetControllerOf(pod)
	ended := pod.Status.Phase == corev1.PodSucceeded || pod.Status.Phase == corev1.PodFailed
	return mirror || ended || (owner != nil && owner.Kind == "DaemonSet")
}

// evict asks a pod to go. It returns why it may not go now, where that is so:
//
//	gone, or another one has its name      it is on its way
//	the API knows nobody, or is not well   an error: it is not the pod that is refused
//	a budget, two of them, or a webhook    it may not go
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
