package reconcile

import (
	"testing"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

func TestCause(t *testing.T) {
	t.Parallel()
	condition := func(kind string, status metav1.ConditionStatus) metav1.Condition {
		return metav1.Condition{Type: kind, Status: status, Reason: "PoolExhausted", Message: "no address is free"}
	}
	for name, tc := range map[string]struct {
		reason     string
		conditions []metav1.Condition
		want       string
	}{
		"False":   {"it says what to do", []metav1.Condition{condition("NetworkReady", metav1.ConditionTrue), condition("Ready", metav1.ConditionFalse)}, "PoolExhausted: no address is free"},
		"Unknown": {"it is not known to be Ready", []metav1.Condition{condition("Ready", metav1.ConditionUnknown)}, "PoolExhausted: no address is free"},
		"True":    {"it is not the cause", []metav1.Condition{condition("Ready", metav1.ConditionTrue)}, ""},
		"Other":   {"Ready sums the others up", []metav1.Condition{condition("NetworkReady", metav1.ConditionFalse)}, ""},
		"None":    {"it is new", nil, ""},
	} {
		if got := Cause(tc.conditions); got != tc.want {
			t.Errorf("%s: %s: got %q, want %q", name, tc.reason, got, tc.want)
		}
	}
}
