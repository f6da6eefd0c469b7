package kube

import (
	"slices"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/vitistack/stack/apis/v1alpha1"
)

// AddFinalizer adds a finalizer to obj, and reports whether it was missing.
func AddFinalizer(obj Object, finalizer string) bool {
	if slices.Contains(obj.GetFinalizers(), finalizer) {
		return false
	}
	obj.SetFinalizers(append(obj.GetFinalizers(), finalizer))
	return true
}

// RemoveFinalizer removes a finalizer from obj, and reports whether obj had it.
func RemoveFinalizer(obj Object, finalizer string) bool {
	kept := slices.DeleteFunc(slices.Clone(obj.GetFinalizers()), func(f string) bool { return f == finalizer })
	if len(kept) == len(obj.GetFinalizers()) {
		return false
	}
	obj.SetFinalizers(kept)
	return true
}

// Owned returns an owner reference that makes owner the controller of an object, so that the
// garbage collector deletes the object with its owner. It does not block the deletion of
// the owner, because a function has no right to set blockOwnerDeletion.
func Owned(owner Object, apiVersion, kind string) []metav1.OwnerReference {
	controller := true
	return []metav1.OwnerReference{{
		APIVersion: apiVersion, Kind: kind, Name: owner.GetName(), UID: owner.GetUID(), Controller: &controller,
	}}
}

// ReconcileRequested reports whether a user has requested a reconcile of an object by the annotation
// vitistack.io/reconcile.
func ReconcileRequested(obj Object) bool {
	_, asked := obj.GetAnnotations()[v1alpha1.AnnotationReconcile]
	return asked
}
