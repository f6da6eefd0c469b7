package kube

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"slices"
	"strings"
	"time"
	"unicode"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/vitistack/stack/apis/v1alpha1"
)

// Maximum lengths of messages in bytes: of a condition, for which the API allows 32768, and
// of an Event.
const (
	maxMessage = 4096
	maxEvent   = 1024
)

// Text makes the text of a backend or of a user safe for a terminal, a log and the API
// server: one line, without control characters and characters that change the direction of
// text, and cut to a number of bytes.
func Text(said string, most int) string {
	said = strings.Map(func(c rune) rune {
		switch {
		case unicode.IsControl(c), c == '\u2028', c == '\u2029':
			return ' '
		case unicode.Is(unicode.Cf, c):
			return -1
		}
		return c
	}, strings.ToValidUTF8(said, "?"))
	if len(said) <= most {
		return said
	}
	const more = " ..."
	return strings.ToValidUTF8(said[:most-len(more)], "") + more
}

// SetReady writes the condition Ready. ok is whether the object is in its desired state.
// reason and message say what it waits for, or what to change. SetReady reports whether the
// status or the reason has changed, which is worth an Event.
func SetReady(conditions *[]metav1.Condition, generation int64, ok bool, reason, message string) bool {
	return SetCondition(conditions, generation, "Ready", ok, reason, message)
}

// SetCondition is SetReady for any condition.
func SetCondition(conditions *[]metav1.Condition, generation int64, kind string, ok bool, reason, message string) bool {
	status := metav1.ConditionFalse
	if ok {
		status = metav1.ConditionTrue
	}
	old := meta.FindStatusCondition(*conditions, kind)
	same := old != nil && old.Status == status && old.Reason == reason
	meta.SetStatusCondition(conditions, metav1.Condition{
		Type: kind, Status: status, ObservedGeneration: generation, Reason: reason, Message: Text(message, maxMessage),
	})
	return !same
}

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

// Tell records a Kubernetes Event on obj. A second call with the same reason and message
// changes nothing. An Event that cannot be written is not an error, because the status of
// the object has the same information.
func (c *Client) Tell(ctx context.Context, obj Object, warning bool, reason, message string) {
	kinds, _, err := c.scheme.ObjectKinds(obj)
	if err != nil {
		return
	}
	kind := corev1.EventTypeNormal
	if warning {
		kind = corev1.EventTypeWarning
	}
	namespace := obj.GetNamespace()
	if namespace == "" {
		namespace = metav1.NamespaceDefault
	}
	sum := sha256.Sum256([]byte(string(obj.GetUID()) + "\x00" + reason + "\x00" + message))
	now := metav1.NewTime(time.Now())
	_ = c.Create(ctx, &corev1.Event{
		ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: eventName(obj.GetName(), sum[:8])},
		InvolvedObject: corev1.ObjectReference{
			APIVersion: kinds[0].GroupVersion().String(), Kind: kinds[0].Kind,
			Namespace: obj.GetNamespace(), Name: obj.GetName(), UID: obj.GetUID(), ResourceVersion: obj.GetResourceVersion(),
		},
		Type: kind, Reason: reason, Message: Text(message, maxEvent), Count: 1,
		FirstTimestamp: now, LastTimestamp: now,
		Source: corev1.EventSource{Component: "vitistack"},
	})
}

// eventName stays within the 253 characters of an object's name.
func eventName(object string, sum []byte) string {
	const room = 253 - 1 - 16
	return object[:min(len(object), room)] + "." + hex.EncodeToString(sum)
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

// AskedFor reports whether a user has requested a reconcile of an object by the annotation
// vitistack.io/reconcile.
func AskedFor(obj Object) bool {
	_, asked := obj.GetAnnotations()[v1alpha1.AnnotationReconcile]
	return asked
}
