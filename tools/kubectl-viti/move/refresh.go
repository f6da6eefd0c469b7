package move

import (
	"context"

	"k8s.io/apimachinery/pkg/api/equality"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"

	"github.com/vitistack/stack/apis/v1alpha1"
)

// activeNamespaces returns the namespaces with a copy that the functions at the target reconcile already, because an earlier call has
// unpaused it. From then on the copies are newer than the objects here.
func (t target) activeNamespaces(all []object) map[string]bool {
	active := map[string]bool{}
	for _, o := range all {
		there, exists := t.byKey[o.key()]
		if exists && o.isLayer() && isCopy(o, there.Unstructured) && !v1alpha1.IsPaused(there) {
			active[o.GetNamespace()] = true
		}
	}
	return active
}

// refresh writes an object into its copy from an earlier call, which no function has reconciled. Without it, changes here since that call
// would be lost with the object: the nodes that a cluster was scaled to, or the keys of a rotation. A copy that is the same is not written.
func (m *Mover) refresh(ctx context.Context, o object, there *unstructured.Unstructured, uids map[string]string, mark string) (*unstructured.Unstructured, error) {
	now := convert(o, uids, mark)
	if isSame(now, there) {
		return there, nil
	}
	now.SetUID(there.GetUID())
	now.SetResourceVersion(there.GetResourceVersion())
	return m.To.In(o.kind, o.GetNamespace()).Update(ctx, now, metav1.UpdateOptions{FieldManager: "kubectl-viti"})
}

// isSame reports whether two objects differ in nothing that a copy has of an object.
func isSame(a, b *unstructured.Unstructured) bool {
	for _, o := range []*unstructured.Unstructured{a, b} {
		for field := range o.Object {
			if field != "metadata" && field != "status" && !equality.Semantic.DeepEqual(a.Object[field], b.Object[field]) {
				return false
			}
		}
	}
	return equality.Semantic.DeepEqual(a.GetLabels(), b.GetLabels()) && equality.Semantic.DeepEqual(a.GetAnnotations(), b.GetAnnotations()) &&
		equality.Semantic.DeepEqual(a.GetFinalizers(), b.GetFinalizers()) && equality.Semantic.DeepEqual(a.GetOwnerReferences(), b.GetOwnerReferences())
}
