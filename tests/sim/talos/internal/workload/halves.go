package workload

import (
	"reflect"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/equality"
	"k8s.io/apimachinery/pkg/runtime"
)

// keepOtherHalf merges the part that a write may change into the stored object: the status through the
// status path, and otherwise everything except the status and fields that the server sets. It returns
// a new object.
func keepOtherHalf(r *request, old, next runtime.Object) runtime.Object {
	if r.sub == "status" {
		merged := old.DeepCopyObject()
		part(merged, "Status").Set(part(next, "Status"))
		if r.kind == nodeKind { // a kubelet may label its node through this path
			metaOf(merged).SetLabels(metaOf(next).GetLabels())
			metaOf(merged).SetAnnotations(metaOf(next).GetAnnotations())
		}
		return merged
	}
	merged := next.DeepCopyObject()
	from, to := metaOf(old), metaOf(merged)
	to.SetUID(from.GetUID())
	to.SetCreationTimestamp(from.GetCreationTimestamp())
	to.SetDeletionTimestamp(from.GetDeletionTimestamp())
	to.SetDeletionGracePeriodSeconds(from.GetDeletionGracePeriodSeconds())
	to.SetResourceVersion(from.GetResourceVersion())
	to.SetGeneration(from.GetGeneration())
	merged.GetObjectKind().SetGroupVersionKind(r.kind.GroupVersionKind)
	if r.kind.status {
		part(merged, "Status").Set(part(old.DeepCopyObject(), "Status"))
	}
	if spec := part(merged, "Spec"); spec.IsValid() && r.kind != nodeKind &&
		!equality.Semantic.DeepEqual(spec.Interface(), part(old, "Spec").Interface()) {
		to.SetGeneration(from.GetGeneration() + 1)
	}
	return merged
}

// unchanged reports whether a write has no effect. The real server then keeps the resource version.
func unchanged(old, next runtime.Object) bool {
	return equality.Semantic.DeepEqual(old, next)
}

func part(obj runtime.Object, name string) reflect.Value {
	return reflect.ValueOf(obj).Elem().FieldByName(name)
}

// setDefaults sets the defaults of a new object.
func setDefaults(obj runtime.Object) {
	switch o := obj.(type) {
	case *corev1.Pod:
		o.Status = corev1.PodStatus{Phase: corev1.PodPending}
		if o.Spec.TerminationGracePeriodSeconds == nil {
			grace := int64(corev1.DefaultTerminationGracePeriodSeconds)
			o.Spec.TerminationGracePeriodSeconds = &grace
		}
		if o.Spec.RestartPolicy == "" {
			o.Spec.RestartPolicy = corev1.RestartPolicyAlways
		}
		if o.Spec.SchedulerName == "" {
			o.Spec.SchedulerName = corev1.DefaultSchedulerName
		}
	case *corev1.Namespace:
		o.Status.Phase = corev1.NamespaceActive
		if o.Labels == nil {
			o.Labels = map[string]string{}
		}
		o.Labels[corev1.LabelMetadataName] = o.Name
	}
	if part(obj, "Spec").IsValid() && metaOf(obj).GetGeneration() == 0 {
		if _, isNode := obj.(*corev1.Node); !isNode {
			metaOf(obj).SetGeneration(1)
		}
	}
}
