package kube

import (
	"slices"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// IsOwnStatusWrite reports whether the last change of an object was a write of its status by manager
// (metadata.managedFields). Their times have seconds only: a change of another writer, or of another
// part of the object, in the same second counts as earlier if ties is true, and as later otherwise. A deletion
// leaves no entry there: one in the same second or later is the last change.
func IsOwnStatusWrite(obj metav1.Object, manager string, ties bool) bool {
	return isLastWrite(obj, manager, "status", ties)
}

// IsOwnFirstWrite reports whether the last change of an object with its first spec was a write by manager of anything
// but the status, such as its finalizer. A change of another writer in the same second counts as earlier.
func IsOwnFirstWrite(obj metav1.Object, manager string) bool {
	return obj.GetGeneration() == 1 && isLastWrite(obj, manager, "", true)
}

// isLastWrite is IsOwnStatusWrite for a subresource, or for the object itself if that is empty.
func isLastWrite(obj metav1.Object, manager, subresource string, ties bool) bool {
	isOwn := func(f metav1.ManagedFieldsEntry) bool {
		return f.Manager == manager && f.Subresource == subresource && f.Operation == metav1.ManagedFieldsOperationUpdate
	}
	at := slices.IndexFunc(obj.GetManagedFields(), isOwn)
	if at < 0 {
		return false
	}
	own := obj.GetManagedFields()[at].Time
	if deleted := obj.GetDeletionTimestamp(); deleted != nil && !deleted.Before(own) {
		return false
	}
	return own != nil && !slices.ContainsFunc(obj.GetManagedFields(), func(f metav1.ManagedFieldsEntry) bool {
		isEarlier := f.Time != nil && (f.Time.Before(own) || (ties && f.Time.Equal(own)))
		return !isOwn(f) && !isEarlier
	})
}
