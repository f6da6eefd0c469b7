package workload

import (
	"maps"
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"

	"github.com/vitistack/stack/apis/cluster/plan"
	"github.com/vitistack/stack/apis/v1alpha1"
)

// Annotations of a Node that list its labels and taints from the spec. Only those are removed when
// they leave the spec.
const (
	ownedLabels = "vitistack.io/owned-labels"
	ownedTaints = "vitistack.io/owned-taints"
)

// LabelPatch returns a merge patch that gives a Node the labels and taints of its pool and keeps
// those of others, or nil if nothing differs. A kubelet must not set all of these itself.
func LabelPatch(n plan.Node, p v1alpha1.MachineProperties) map[string]any {
	labels := map[string]any{}
	for _, key := range splitList(n.Annotations[ownedLabels]) {
		if _, keep := p.Labels[key]; !keep && hasKey(n.Labels, key) {
			labels[key] = nil
		}
	}
	for key, value := range p.Labels {
		if now, ok := n.Labels[key]; !ok || now != value {
			labels[key] = value
		}
	}
	taints := mergeTaints(n.Taints, splitList(n.Annotations[ownedTaints]), p.Taints)
	annotations := map[string]any{}
	var taintKeys []string
	for _, t := range p.Taints {
		taintKeys = append(taintKeys, t.Key+":"+t.Effect)
	}
	setOwned(annotations, n.Annotations, ownedLabels, slices.Sorted(maps.Keys(p.Labels)))
	setOwned(annotations, n.Annotations, ownedTaints, taintKeys)
	patch := map[string]any{}
	metadata := map[string]any{}
	if len(labels) > 0 {
		metadata["labels"] = labels
	}
	if len(annotations) > 0 {
		metadata["annotations"] = annotations
	}
	if len(metadata) > 0 {
		patch["metadata"] = metadata
	}
	if !slices.Equal(taints, n.Taints) {
		patch["spec"] = map[string]any{"taints": taints}
	}
	if len(patch) == 0 {
		return nil
	}
	return patch
}

// mergeTaints returns the present taints without owned ones that are not wanted, and with the
// wanted ones.
func mergeTaints(present []corev1.Taint, owned []string, wanted []v1alpha1.NodeTaint) []corev1.Taint {
	wants := func(t corev1.Taint) int {
		return slices.IndexFunc(wanted, func(w v1alpha1.NodeTaint) bool { return w.Key == t.Key && w.Effect == string(t.Effect) })
	}
	var all []corev1.Taint
	for _, t := range present {
		i := wants(t)
		if i < 0 && slices.Contains(owned, t.Key+":"+string(t.Effect)) {
			continue
		}
		if i >= 0 {
			t.Value = wanted[i].Value
		}
		all = append(all, t)
	}
	for _, w := range wanted {
		t := corev1.Taint{Key: w.Key, Value: w.Value, Effect: corev1.TaintEffect(w.Effect)}
		if !slices.ContainsFunc(all, func(a corev1.Taint) bool { return a.Key == t.Key && a.Effect == t.Effect }) {
			all = append(all, t)
		}
	}
	return all
}

// setOwned records in an annotation which keys are the ones of the pool.
func setOwned(annotations map[string]any, present map[string]string, name string, keys []string) {
	text := strings.Join(keys, ",")
	switch {
	case text == present[name]:
	case text == "":
		annotations[name] = nil
	default:
		annotations[name] = text
	}
}

// splitList returns the parts of a list separated by commas.
func splitList(text string) []string {
	if text == "" {
		return nil
	}
	return strings.Split(text, ",")
}

func hasKey(m map[string]string, key string) bool {
	_, ok := m[key]
	return ok
}
