package main

import (
	"context"
	"maps"
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"

	"github.com/vitistack/stack/apis/v1alpha1"
)

// Annotations of a Node that remember which of its labels and taints are the
// spec's, so that what leaves the spec also leaves the Node, and nothing else does.
const (
	ownedLabels = "vitistack.io/owned-labels"
	ownedTaints = "vitistack.io/owned-taints"
)

// relabel decides what to change in a Node so that it has the labels and taints of
// its pool beside those that others gave it. It returns a merge patch, or nil. A
// kubelet may not set all of these itself, so they go through the workload API.
func relabel(n workloadNode, p v1alpha1.MachineProperties) map[string]any {
	labels := map[string]any{}
	for _, key := range split(n.annotations[ownedLabels]) {
		if _, keep := p.Labels[key]; !keep && hasKey(n.labels, key) {
			labels[key] = nil
		}
	}
	for key, value := range p.Labels {
		if now, ok := n.labels[key]; !ok || now != value {
			labels[key] = value
		}
	}
	taints := retaint(n.taints, split(n.annotations[ownedTaints]), p.Taints)
	annotations := map[string]any{}
	var taintKeys []string
	for _, t := range p.Taints {
		taintKeys = append(taintKeys, t.Key+":"+t.Effect)
	}
	remember(annotations, n.annotations, ownedLabels, slices.Sorted(maps.Keys(p.Labels)))
	remember(annotations, n.annotations, ownedTaints, taintKeys)
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
	if !slices.Equal(taints, n.taints) {
		patch["spec"] = map[string]any{"taints": taints}
	}
	if len(patch) == 0 {
		return nil
	}
	return patch
}

// retaint is a list of taints without those that are no more wanted, and with those
// that are.
func retaint(present []corev1.Taint, owned []string, wanted []v1alpha1.NodeTaint) []corev1.Taint {
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

func remember(annotations map[string]any, present map[string]string, name string, keys []string) {
	text := strings.Join(keys, ",")
	switch {
	case text == present[name]:
	case text == "":
		annotations[name] = nil
	default:
		annotations[name] = text
	}
}

func split(text string) []string {
	if text == "" {
		return nil
	}
	return strings.Split(text, ",")
}

func hasKey(m map[string]string, key string) bool {
	_, ok := m[key]
	return ok
}

// labelNodes brings the Nodes' labels and taints to what their pools have.
func (f *function) labelNodes(ctx context.Context, c *cluster) error {
	for _, m := range c.plan.members {
		n, ok := c.node(m.name)
		if !ok {
			continue
		}
		patch := relabel(n, m.properties)
		if patch == nil {
			continue
		}
		if err := c.workload.patchNode(ctx, m.name, patch); err != nil {
			return waits{reason: "WaitingForAPI", message: "waits for the workload API, to label node " + m.name, silent: true}
		}
	}
	return nil
}

// selfLabels are the labels that a kubelet may give its own Node, by the admission
// plugin NodeRestriction. With another one among them it could set none.
func selfLabels(labels map[string]string) map[string]string {
	free := map[string]string{}
	for key, value := range labels {
		domain, _, found := strings.Cut(key, "/")
		if !found || (!strings.HasSuffix("."+domain, ".kubernetes.io") && !strings.HasSuffix("."+domain, ".k8s.io")) {
			free[key] = value
		}
	}
	return free
}
