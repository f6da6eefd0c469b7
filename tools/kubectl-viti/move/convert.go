package move

import (
	"slices"
	"strings"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/types"

	"github.com/vitistack/stack/apis/v1alpha1"
)

// convert returns an object as it is created at the target: paused, with its former UIDs, and with the new UIDs of
// other objects, by uids, wherever it has their former ones. Owners that do not move are left out. mark says which move has paused it.
func convert(o object, uids map[string]string, mark string) *unstructured.Unstructured {
	u := o.DeepCopy()
	former := v1alpha1.UIDs(o)
	if v1alpha1.AdoptsUnmarked(o) {
		former = append(former, v1alpha1.Unmarked)
	}
	owners := slices.DeleteFunc(u.GetOwnerReferences(), func(r metav1.OwnerReference) bool { return uids[string(r.UID)] == "" })
	delete(u.Object, "metadata")
	delete(u.Object, "status")
	u.Object = replaceUIDs(u.Object, uids).(map[string]any)
	u.SetNamespace(o.GetNamespace())
	u.SetName(o.GetName())
	u.SetLabels(replaceLabels(o.GetLabels(), uids))
	u.SetFinalizers(o.GetFinalizers())
	annotations := replaceLabels(o.GetAnnotations(), uids)
	delete(annotations, v1alpha1.AnnotationReconcile)
	if annotations == nil {
		annotations = map[string]string{}
	}
	annotations[v1alpha1.AnnotationFormerUIDs] = strings.Join(former, ",")
	if o.isLayer() {
		annotations[v1alpha1.AnnotationPaused] = mark
	}
	u.SetAnnotations(annotations)
	for i := range owners {
		owners[i].UID = types.UID(uids[string(owners[i].UID)])
	}
	u.SetOwnerReferences(owners)
	return u
}

// convertStatus returns the status of an object for its copy at the target, which has a generation. Its function has to
// confirm that it is Ready there.
func convertStatus(o object, uids map[string]string, generation int64, now metav1.Time) map[string]any {
	status, ok := o.Object["status"].(map[string]any)
	if !ok {
		return nil
	}
	status = replaceUIDs(status, uids).(map[string]any)
	setGeneration(status, o.GetGeneration(), generation)
	conditions, _ := status["conditions"].([]any)
	for _, c := range conditions {
		if c, ok := c.(map[string]any); ok {
			setGeneration(c, o.GetGeneration(), generation)
			if c["type"] == v1alpha1.ConditionReady {
				c["status"], c["reason"], c["message"] = "Unknown", v1alpha1.ReasonMoved, "moved from another management cluster; its function adopts what exists"
				c["lastTransitionTime"] = now.UTC().Format("2006-01-02T15:04:05Z")
			}
		}
	}
	return status
}

// setGeneration maps an observed generation to that of the copy: the generation there if it is the present one here, and
// otherwise one that no function has observed.
func setGeneration(fields map[string]any, generation, there int64) {
	observed, ok := fields["observedGeneration"].(int64)
	if !ok {
		return
	}
	fields["observedGeneration"] = int64(0)
	if observed == generation {
		fields["observedGeneration"] = there
	}
}

// replaceUIDs returns a copy of a value in which each text that is a former UID is the new one.
func replaceUIDs(value any, uids map[string]string) any {
	switch v := value.(type) {
	case map[string]any:
		out := make(map[string]any, len(v))
		for key, field := range v {
			out[key] = replaceUIDs(field, uids)
		}
		return out
	case []any:
		out := make([]any, len(v))
		for i := range v {
			out[i] = replaceUIDs(v[i], uids)
		}
		return out
	case string:
		if uid, ok := uids[v]; ok {
			return uid
		}
	}
	return value
}

func replaceLabels(labels map[string]string, uids map[string]string) map[string]string {
	var out map[string]string
	for name, value := range labels {
		if out == nil {
			out = map[string]string{}
		}
		if uid, ok := uids[value]; ok {
			value = uid
		}
		out[name] = value
	}
	return out
}
