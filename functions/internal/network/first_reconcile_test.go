package network_test

import (
	"testing"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/vitistack/stack/apis/v1alpha2"
	"github.com/vitistack/stack/functions/internal/network"
)

func TestAwaitsFirstReconcile(t *testing.T) {
	t.Parallel()
	noon := time.Date(2026, 1, 2, 12, 0, 0, 0, time.UTC)
	since := []metav1.Condition{{Type: "Ready", Status: metav1.ConditionTrue, LastTransitionTime: metav1.NewTime(noon)}}
	waiting := []metav1.Condition{{Type: "Ready", Status: metav1.ConditionFalse, Reason: "NetworkNotReady"}}
	for name, tc := range map[string]struct {
		reason     string
		network    []metav1.Condition
		created    time.Duration
		conditions []metav1.Condition
		want       bool
	}{
		"New":      {reason: "its own events follow", network: since, created: 2 * time.Second, want: true},
		"Earlier":  {reason: "it may have found the network not Ready", network: since, created: -time.Second},
		"Same":     {reason: "the order within a second is unknown", network: since, created: time.Second},
		"Seen":     {reason: "it waits for something", network: since, created: 2 * time.Second, conditions: waiting},
		"NotReady": {reason: "the network is not Ready", network: waiting, created: 2 * time.Second},
		"Unknown":  {reason: "the time of the transition is unknown", created: 2 * time.Second},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			nn := &v1alpha2.NetworkNamespace{Status: v1alpha2.NetworkNamespaceStatus{Conditions: tc.network}}
			if got := network.AwaitsFirstReconcile(nn, metav1.NewTime(noon.Add(tc.created)), tc.conditions); got != tc.want {
				t.Errorf("%s: got %t", tc.reason, got)
			}
		})
	}
}
