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

// Bounds of what people are told, in bytes: of a condition, which may have 32768, and
// of an Event.
const (
	maxMessage = 4096
	maxEvent   = 1024
)

// Text is what a backend, or a person, has said, so that a terminal, a log and the
// API server can hold it: on one line, without control characters and those that
// change the direction of text, and cut to a number of bytes.
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

// SetReady writes the condition Ready. ok says whether the object is as wanted;
// reason and message say what is waited for, or what to change. It reports
// whether status or reason have changed, which is when people want to be told.
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
	told := old != nil && old.Status == status && old.Reason == reason
	meta.SetStatusCondition(conditions, metav1.Condition{
		Type: kind, Status: status, ObservedGeneration: generation, Reason: reason, Message: Text(message, maxMessage),
	})
	return !told
}

// AddFinalizer puts a finalizer on obj, and reports whether it was missing.
func AddFinalizer(obj Object, finalizer string) bool {
	if slices.Contains(obj.GetFinalizers(), finalizer) {
		return false
	}
	obj.SetFinalizers(append(obj.GetFinalizers(), finalizer))
	return true
}

// RemoveFinalizer takes a finalizer off obj, and reports whether it was there.
func RemoveFinalizer(obj Object, finalizer string) bool {
	kept := slices.DeleteFunc(slices.Clone(obj.GetFinalizers()), func(f string) bool { return f == finalizer })
	if len(kept) == len(obj.GetFinalizers()) {
		return false
	}
	obj.SetFinalizers(kept)
	return true
}

// Tell records a Kubernetes Event on obj, for kubectl describe and kubectl get
// events. Telling the same again for the same generation changes nothing. The
// object's status has the truth, so an Event that cannot be written is no error.
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

// Owned makes owner the controller of what it is put on, so that the garbage
// collector takes that away when the owner is gone. It does not block the owner's
// deletion, for which a function would need more rights.
func Owned(owner Object, apiVersion, kind string) []metav1.OwnerReference {
	controller := true
	return []metav1.OwnerReference{{
		APIVersion: apiVersion, Kind: kind, Name: owner.GetName(), UID: owner.GetUID(), Controller: &controller,
	}}
}

// AskedFor tells whether somebody wants an object looked at although it is settled:
// kubectl annotate ... vitistack.io/reconcile=now.
func AskedFor(obj Object) bool {
	_, asked := obj.GetAnnotations()[v1alpha1.AnnotationReconcile]
	return asked
}
