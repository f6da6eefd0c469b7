package workload

import (
	"testing"

	"github.com/google/go-cmp/cmp"
	corev1 "k8s.io/api/core/v1"

	"github.com/vitistack/stack/apis/cluster/plan"
	"github.com/vitistack/stack/apis/v1alpha1"
)

func TestLabelPatch(t *testing.T) {
	t.Parallel()
	front := v1alpha1.MachineProperties{Labels: map[string]string{"tier": "front"}, Taints: []v1alpha1.NodeTaint{{Key: "only", Value: "front", Effect: "NoSchedule"}}}
	foreign := corev1.Taint{Key: "node.kubernetes.io/unreachable", Effect: corev1.TaintEffectNoExecute}
	ours := corev1.Taint{Key: "only", Value: "front", Effect: corev1.TaintEffectNoSchedule}
	owned := map[string]string{ownedLabels: "tier", ownedTaints: "only:NoSchedule"}
	cases := map[string]struct {
		reason string
		n      plan.Node
		p      v1alpha1.MachineProperties
		want   map[string]any
	}{
		"Nothing": {"nothing is wanted", plan.Node{Labels: map[string]string{"other": "x"}, Taints: []corev1.Taint{foreign}}, v1alpha1.MachineProperties{}, nil},
		"Same":    {"an unchanged node is not written", plan.Node{Labels: map[string]string{"tier": "front"}, Annotations: owned, Taints: []corev1.Taint{foreign, ours}}, front, nil},
		"Add": {"what others set is kept", plan.Node{Taints: []corev1.Taint{foreign}}, front, map[string]any{
			"metadata": map[string]any{"labels": map[string]any{"tier": "front"}, "annotations": map[string]any{ownedLabels: "tier", ownedTaints: "only:NoSchedule"}},
			"spec":     map[string]any{"taints": []corev1.Taint{foreign, ours}},
		}},
		"Remove": {"what the spec no longer has is removed", plan.Node{Labels: map[string]string{"tier": "front", "other": "x"}, Annotations: owned, Taints: []corev1.Taint{ours, foreign}}, v1alpha1.MachineProperties{}, map[string]any{
			"metadata": map[string]any{"labels": map[string]any{"tier": nil}, "annotations": map[string]any{ownedLabels: nil, ownedTaints: nil}},
			"spec":     map[string]any{"taints": []corev1.Taint{foreign}},
		}},
	}
	for name, tc := range cases {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			if diff := cmp.Diff(tc.want, LabelPatch(tc.n, tc.p)); diff != "" {
				t.Errorf("%s (-want +got):\n%s", tc.reason, diff)
			}
		})
	}
}
