package plan

import (
	"testing"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/vitistack/stack/apis/v1alpha1"
)

func TestNotReadySuffix(t *testing.T) {
	t.Parallel()
	for name, tc := range map[string]struct {
		reason     string
		conditions []metav1.Condition
		want       string
	}{
		"Waits": {"users look up the reason", []metav1.Condition{{Type: "Ready", Status: metav1.ConditionFalse, Reason: "InsufficientResources", Message: "no host has 8 GiB"}}, ": InsufficientResources: no host has 8 GiB"},
		"Ready": {"everything is ready", []metav1.Condition{{Type: "Ready", Status: metav1.ConditionTrue, Reason: "MachineRunning"}}, ""},
		"New":   {"the Machine has no conditions yet", nil, ""},
	} {
		m := &v1alpha1.Machine{Status: v1alpha1.MachineStatus{Conditions: tc.conditions}}
		if got := NotReadySuffix(m); got != tc.want {
			t.Errorf("%s: %s: got %q, want %q", name, tc.reason, got, tc.want)
		}
	}
}
