package v1alpha1

import (
	"testing"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

func TestWhyNotReady(t *testing.T) {
	t.Parallel()
	condition := func(kind string, status metav1.ConditionStatus) metav1.Condition {
		return metav1.Condition{Type: kind, Status: status, Reason: "PoolExhausted", Message: "no address is free"}
	}
	for name, tc := range map[string]struct {
		reason     string
		conditions []metav1.Condition
		want       string
	}{
		"False":   {"the condition names the remedy", []metav1.Condition{condition("NetworkReady", metav1.ConditionTrue), condition("Ready", metav1.ConditionFalse)}, "PoolExhausted: no address is free"},
		"Unknown": {"Unknown is not Ready", []metav1.Condition{condition("Ready", metav1.ConditionUnknown)}, "PoolExhausted: no address is free"},
		"True":    {"a condition that is True is no cause", []metav1.Condition{condition("Ready", metav1.ConditionTrue)}, ""},
		"Other":   {"Ready summarizes the other conditions", []metav1.Condition{condition("NetworkReady", metav1.ConditionFalse)}, ""},
		"None":    {"the object has no conditions yet", nil, ""},
	} {
		if got := WhyNotReady(tc.conditions); got != tc.want {
			t.Errorf("%s: %s: got %q, want %q", name, tc.reason, got, tc.want)
		}
	}
}
