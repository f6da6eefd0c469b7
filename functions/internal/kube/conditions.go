package kube

import (
	"strings"
	"unicode"

	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/vitistack/stack/apis/cause"
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
// text, and cut to maxBytes.
func Text(text string, maxBytes int) string {
	text = strings.Map(func(c rune) rune {
		switch {
		case unicode.IsControl(c), c == '\u2028', c == '\u2029':
			return ' '
		case unicode.Is(unicode.Cf, c):
			return -1
		}
		return c
	}, strings.ToValidUTF8(text, "?"))
	if len(text) <= maxBytes {
		return text
	}
	const more = " ..."
	return strings.ToValidUTF8(text[:maxBytes-len(more)], "") + more
}

// SetReady writes the condition Ready. isReady is whether the object is in its desired state.
// reason and message say what it waits for, or what to change. SetReady reports whether the
// status or the reason has changed, which is worth an Event.
func SetReady(conditions *[]metav1.Condition, generation int64, isReady bool, reason, message string) bool {
	return SetCondition(conditions, generation, v1alpha1.ConditionReady, isReady, reason, message)
}

// conditioned is an object with the condition Ready.
type conditioned interface {
	StatusConditions() *[]metav1.Condition
}

// setProgress writes the conditions Reconciling and Stalled of an object of a kind, as Ready implies
// them.
func setProgress(kind string, conditions *[]metav1.Condition) {
	ready := meta.FindStatusCondition(*conditions, v1alpha1.ConditionReady)
	if ready == nil || ready.Status == metav1.ConditionTrue {
		meta.RemoveStatusCondition(conditions, v1alpha1.ConditionReconciling)
		meta.RemoveStatusCondition(conditions, v1alpha1.ConditionStalled)
		return
	}
	is, other := v1alpha1.ConditionReconciling, v1alpha1.ConditionStalled
	if cause.IsStalled(kind, ready.Reason) {
		is, other = other, is
	}
	meta.RemoveStatusCondition(conditions, other)
	SetCondition(conditions, ready.ObservedGeneration, is, true, ready.Reason, ready.Message)
}

// IsStalled reports whether a person has to act for an object, as its condition Stalled says.
func IsStalled(o Object) bool {
	c, ok := o.(conditioned)
	return ok && meta.IsStatusConditionTrue(*c.StatusConditions(), v1alpha1.ConditionStalled)
}

// SetCondition writes a condition of a type with status True or False, as SetReady writes Ready. It reports whether the status or
// the reason has changed.
func SetCondition(conditions *[]metav1.Condition, generation int64, conditionType string, isTrue bool, reason, message string) bool {
	status := metav1.ConditionFalse
	if isTrue {
		status = metav1.ConditionTrue
	}
	old := meta.FindStatusCondition(*conditions, conditionType)
	same := old != nil && old.Status == status && old.Reason == reason
	meta.SetStatusCondition(conditions, metav1.Condition{
		Type: conditionType, Status: status, ObservedGeneration: generation, Reason: reason, Message: Text(message, maxMessage),
	})
	return !same
}
