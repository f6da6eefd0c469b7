package v1alpha1

import (
	"slices"
	"strings"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
)

// Annotations of objects that move to another management cluster, or were created again.
const (
	// AnnotationFormerUIDs has the UIDs that an object had before it was created again, by a move to another
	// management cluster or a restore, separated by commas, the first one first. What exists outside of
	// the object under one of them is adopted: it gets the object's own UID. Only an administrator
	// may write the annotation. It stays, because MAC addresses derive from the first UID. The
	// value unmarked instead of a UID adopts what has the object's name or addresses and no mark at all, as
	// other programs leave it.
	AnnotationFormerUIDs = "vitistack.io/former-uids"
	// AnnotationPaused has every function leave an object as it is, whatever the value, also its
	// deletion, while it moves to another management cluster. Only an administrator may write it. The
	// condition Ready of a KubernetesCluster that is not Ready says that it is paused.
	AnnotationPaused = "vitistack.io/paused"
)

// Unmarked in AnnotationFormerUIDs has an object adopt what no object has marked.
const Unmarked = "unmarked"

// ReasonMoved is the reason of the condition Ready of an object that its function has not reconciled since it
// moved to this management cluster. It shows that nothing is adopted yet.
const ReasonMoved = "Moved"

// FormerUIDs returns the UIDs that an object had before it was created again, the first one first.
func FormerUIDs(obj metav1.Object) []string {
	return slices.DeleteFunc(formerMarks(obj), func(uid string) bool { return uid == Unmarked })
}

// AdoptsUnmarked reports whether an object adopts what no object has marked.
func AdoptsUnmarked(obj metav1.Object) bool { return slices.Contains(formerMarks(obj), Unmarked) }

func formerMarks(obj metav1.Object) []string {
	return strings.FieldsFunc(obj.GetAnnotations()[AnnotationFormerUIDs], func(r rune) bool { return r == ',' || r == ' ' })
}

// UIDs returns the UIDs that an object had, the first one first, and last the one that it has. What is marked
// with one of them belongs to the object.
func UIDs(obj metav1.Object) []string { return append(FormerUIDs(obj), string(obj.GetUID())) }

// HadUID reports whether an object had a UID before it was created again, so that it adopts what is
// marked with that UID. Its present UID is not a former one.
func HadUID(obj metav1.Object, uid string) bool {
	return uid != "" && uid != string(obj.GetUID()) && slices.Contains(FormerUIDs(obj), uid)
}

// OriginalUID returns the first UID that an object had. What derives from it stays the same when the object
// is created again.
func OriginalUID(obj metav1.Object) types.UID {
	if former := FormerUIDs(obj); len(former) > 0 {
		return types.UID(former[0])
	}
	return obj.GetUID()
}

// IsPaused reports whether functions leave an object as it is.
func IsPaused(obj metav1.Object) bool {
	_, paused := obj.GetAnnotations()[AnnotationPaused]
	return paused
}
