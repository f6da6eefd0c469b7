package install

import (
	"testing"

	"github.com/google/go-cmp/cmp"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/client-go/rest"
)

// TestPlacementOfTest checks that the pod of helm test may run on the nodes of the gateway's pods, and that rules about other pods, which are for
// replicas, do not keep it from the only node.
func TestPlacementOfTest(t *testing.T) {
	t.Parallel()
	const affinity = `{"nodeAffinity":{"requiredDuringSchedulingIgnoredDuringExecution":{"nodeSelectorTerms":[{"matchExpressions":[{"key":"zone","operator":"In","values":["a"]}]}]}},` +
		`"podAntiAffinity":{"requiredDuringSchedulingIgnoredDuringExecution":[{"topologyKey":"kubernetes.io/hostname","labelSelector":{"matchLabels":{"app.kubernetes.io/name":"gateway"}}}]}}`
	objects := newHelm(t, &rest.Config{}).render(t, "priorityClassName=platform", "--set-json", `nodeSelector={"pool":"platform"}`,
		"--set-json", `tolerations=[{"key":"platform","operator":"Exists","effect":"NoSchedule"}]`, "--set-json", "affinity="+affinity)
	var pod corev1.Pod
	for _, o := range objects {
		if o.GetKind() == "Pod" {
			if err := runtime.DefaultUnstructuredConverter.FromUnstructured(o.Object, &pod); err != nil {
				t.Fatal(err)
			}
		}
	}
	got := corev1.PodSpec{NodeSelector: pod.Spec.NodeSelector, Tolerations: pod.Spec.Tolerations, Affinity: pod.Spec.Affinity, PriorityClassName: pod.Spec.PriorityClassName}
	in := corev1.NodeSelectorRequirement{Key: "zone", Operator: corev1.NodeSelectorOpIn, Values: []string{"a"}}
	want := corev1.PodSpec{
		NodeSelector: map[string]string{"pool": "platform"},
		Tolerations:  []corev1.Toleration{{Key: "platform", Operator: corev1.TolerationOpExists, Effect: corev1.TaintEffectNoSchedule}},
		Affinity: &corev1.Affinity{NodeAffinity: &corev1.NodeAffinity{RequiredDuringSchedulingIgnoredDuringExecution: &corev1.NodeSelector{
			NodeSelectorTerms: []corev1.NodeSelectorTerm{{MatchExpressions: []corev1.NodeSelectorRequirement{in}}},
		}}},
		PriorityClassName: "platform",
	}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("the pod of helm test (-want +got):\n%s", diff)
	}
}
