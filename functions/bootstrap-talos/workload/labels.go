package workload

import (
	"maps"
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"

	"github.com/vitistack/stack/apis/v1alpha1"
	"github.com/vitistack/stack/functions/bootstrap-talos/plan"
)

// Annotations of a Node that remember which of its labels and taints are the
// spec's, so that what leaves the spec also leaves the Node, and nothing else does.
const (
	ownedLabels = "vitistack.io/owned-labels"
	ownedTaints = "vitistack.io/owned-taints"
)

// LabelPatch decides what to change in a Node so that it has the labels and taints of
// its pool beside those that others gave it. It returns a merge patch, or nil. A
// kubelet may not set all of these itself, so they go through the workload API.
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

// mergeTaints is a list of taints without those that are no more wanted, and with those
// that are.
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
