package kube

import (
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// IsOwnStatusWrite reports whether the last change of an object was a write of its status by manager
// (metadata.managedFields). Their times have seconds only: a change of another writer, or of another
// part of the object, in the same second counts as earlier if ties is true, and as later otherwise.
func IsOwnStatusWrite(obj metav1.Object, manager string, ties bool) bool {
	var own *metav1.Time
	for _, f := range obj.GetManagedFields() {
		if f.Manager == manager && f.Subresource == "status" && f.Operation == metav1.ManagedFieldsOperationUpdate {
			own = f.Time
		}
	}
	if own == nil {
		return false
	}
	for _, f := range obj.GetManagedFields() {
		isOwn := f.Manager == manager && f.Subresource == "status" && f.Operation == metav1.ManagedFieldsOperationUpdate
		if isOwn || (f.Time != nil && (f.Time.Before(own) || (ties && f.Time.Equal(own)))) {
			continue
		}
		return false
	}
	return true
}
