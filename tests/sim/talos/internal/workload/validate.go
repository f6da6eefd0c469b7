package workload

import (
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	apivalidation "k8s.io/apimachinery/pkg/api/validation"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	metavalidation "k8s.io/apimachinery/pkg/apis/meta/v1/validation"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/util/validation"
	"k8s.io/apimachinery/pkg/util/validation/field"
)

// validate rejects labels, annotations and taints that the real API server rejects.
func validate(k *kind, obj runtime.Object) error {
	m, metadata := metaOf(obj), field.NewPath("metadata")
	problems := metavalidation.ValidateLabels(m.GetLabels(), metadata.Child("labels"))
	problems = append(problems, apivalidation.ValidateAnnotations(m.GetAnnotations(), metadata.Child("annotations"))...)
	if node, ok := obj.(*corev1.Node); ok {
		problems = append(problems, validateTaints(node.Spec.Taints, metadata.Child("taints"))...)
	}
	if len(problems) > 0 {
		return apierrors.NewInvalid(k.GroupKind(), m.GetName(), problems)
	}
	return nil
}

var taintEffects = []corev1.TaintEffect{corev1.TaintEffectNoSchedule, corev1.TaintEffectPreferNoSchedule, corev1.TaintEffectNoExecute}

func validateTaints(taints []corev1.Taint, path *field.Path) field.ErrorList {
	var problems field.ErrorList
	for i, t := range taints {
		at := path.Index(i)
		problems = append(problems, metavalidation.ValidateLabelName(t.Key, at.Child("key"))...)
		if wrong := validation.IsValidLabelValue(t.Value); len(wrong) > 0 {
			problems = append(problems, field.Invalid(at.Child("value"), t.Value, strings.Join(wrong, ";")))
		}
		switch {
		case t.Effect == "":
			problems = append(problems, field.Required(at.Child("effect"), ""))
		case !slices.Contains(taintEffects, t.Effect):
			problems = append(problems, field.NotSupported(at.Child("effect"), t.Effect, taintEffects))
		}
		if slices.ContainsFunc(taints[:i], func(b corev1.Taint) bool { return b.Key == t.Key && b.Effect == t.Effect }) {
			twice := field.Duplicate(at, untaggedTaint(t))
			twice.Detail = "taints must be unique by key and effect pair"
			problems = append(problems, twice)
		}
	}
	return problems
}

// untaggedTaint is a taint as the real API server prints it in a message.
type untaggedTaint struct {
	Key, Value string
	Effect     corev1.TaintEffect
	TimeAdded  *metav1.Time
}
