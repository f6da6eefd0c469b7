package workload

import (
	"testing"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

func TestStaysOnNode(t *testing.T) {
	t.Parallel()
	controller := true
	owned := func(kind string) []metav1.OwnerReference {
		return []metav1.OwnerReference{{Kind: kind, Controller: &controller}}
	}
	cases := map[string]struct {
		reason string
		pod    corev1.Pod
		want   bool
	}{
		"Plain":     {"no controller recreates it, so it is evicted", corev1.Pod{}, false},
		"DaemonSet": {"its controller would start it here again", corev1.Pod{ObjectMeta: metav1.ObjectMeta{OwnerReferences: owned("DaemonSet")}}, true},
		"Replica":   {"its controller starts it on another node", corev1.Pod{ObjectMeta: metav1.ObjectMeta{OwnerReferences: owned("ReplicaSet")}}, false},
		"Mirror":    {"it is only the image of a static pod", corev1.Pod{ObjectMeta: metav1.ObjectMeta{Annotations: map[string]string{corev1.MirrorPodAnnotationKey: "x"}}}, true},
		"Ended":     {"it has ended", corev1.Pod{Status: corev1.PodStatus{Phase: corev1.PodSucceeded}}, true},
	}
	for name, tc := range cases {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			if got := staysOnNode(&tc.pod); got != tc.want {
				t.Errorf("%s: stays %t, want %t", tc.reason, got, tc.want)
			}
		})
	}
}
