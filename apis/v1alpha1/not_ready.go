package v1alpha1

import (
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// WhyNotReady returns why an object is not Ready, as "reason: message" of its condition Ready. It is
// empty for an object that is Ready or has no such condition. The condition of an object that
// waits for another one ends with it, so that the last cause leads to the remedy.
func WhyNotReady(conditions []metav1.Condition) string {
	ready := meta.FindStatusCondition(conditions, ConditionReady)
	if ready == nil || ready.Status == metav1.ConditionTrue {
		return ""
	}
	return ready.Reason + ": " + ready.Message
}
