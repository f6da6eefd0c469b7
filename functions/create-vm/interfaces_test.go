package main

import (
	"testing"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/vitistack/stack/apis/v1alpha1"
)

// TestInterfaceReportsMissingAddress expects the cause from the NetworkConfiguration in the message of
// the Machine.
func TestInterfaceReportsMissingAddress(t *testing.T) {
	t.Parallel()
	ready := func(reason, message string) []metav1.Condition {
		return []metav1.Condition{{Type: v1alpha1.ConditionReady, Status: metav1.ConditionFalse, Reason: reason, Message: message}}
	}
	for name, tc := range map[string]struct {
		reason string
		status v1alpha1.NetworkConfigurationStatus
		want   string
		failed bool
	}{
		"New":       {"the NetworkConfiguration has no conditions yet", v1alpha1.NetworkConfigurationStatus{}, "waiting for an address from NetworkConfiguration web", false},
		"Exhausted": {"the network team needs to know which pool to enlarge", v1alpha1.NetworkConfigurationStatus{ObservedGeneration: 2, Conditions: ready("PoolExhausted", "IPAllocation web-eth0: 10.1.0.0/28 has no free address")}, "NetworkConfiguration web: PoolExhausted: IPAllocation web-eth0: 10.1.0.0/28 has no free address", false},
		"Refused":   {"a retry cannot resolve it", v1alpha1.NetworkConfigurationStatus{ObservedGeneration: 2, Phase: v1alpha1.NetworkConfigurationError, Conditions: ready("SubnetNotFound", "there is no subnet")}, "NetworkConfiguration web: SubnetNotFound: there is no subnet", true},
		"Old":       {"the condition is about an earlier generation", v1alpha1.NetworkConfigurationStatus{ObservedGeneration: 1, Conditions: ready("PoolExhausted", "none is free")}, "waiting for an address from NetworkConfiguration web", false},
	} {
		nc := &v1alpha1.NetworkConfiguration{ObjectMeta: metav1.ObjectMeta{Name: "web", Generation: 2}, Status: tc.status}
		_, why, failed := interfaceFromStatus(nc, v1alpha1.MachineNetwork{Name: "eth0"}, "eth0", "02:00:00:00:00:01")
		if why != tc.want || failed != tc.failed {
			t.Errorf("%s: %s: got %q, failed %t, want %q, %t", name, tc.reason, why, failed, tc.want, tc.failed)
		}
	}
}
