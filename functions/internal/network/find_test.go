package network

import (
	"testing"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

func TestMissing(t *testing.T) {
	t.Parallel()
	ready := func(status metav1.ConditionStatus, reason string) []metav1.Condition {
		return []metav1.Condition{{Type: "Ready", Status: status, Reason: reason}}
	}
	for name, tc := range map[string]struct {
		reason     string
		conditions []metav1.Condition
		want       bool
	}{
		"None":      {"the first network may be the one", ready(metav1.ConditionFalse, "NoNetworkNamespace"), true},
		"NotFound":  {"it may be the named one", ready(metav1.ConditionFalse, "NetworkNamespaceNotFound"), true},
		"Ambiguous": {"another network does not resolve the ambiguity", ready(metav1.ConditionFalse, "NetworkNamespaceAmbiguous"), false},
		"Found":     {"it has a network", ready(metav1.ConditionTrue, "MachineRunning"), false},
		"New":       {"its own event follows", nil, false},
	} {
		if got := IsMissing(tc.conditions); got != tc.want {
			t.Errorf("%s: %s: got %t", name, tc.reason, got)
		}
	}
}
