package main

import (
	"testing"

	"github.com/vitistack/stack/apis/v1alpha1"
	"github.com/vitistack/stack/events"
)

// TestUnexpectedEvents expects a Trigger that sends too much to be reported by dead letters.
func TestUnexpectedEvents(t *testing.T) {
	t.Parallel()
	for eventType, isExpected := range map[string]bool{events.TypeAdd: true, events.TypeRefAdd: true, events.TypeUpdate: false, events.TypeResync: false} {
		_, err := (&function{}).handle(t.Context(), change(t, eventType, "KubernetesCluster", "default", "new", &v1alpha1.KubernetesCluster{}))
		if isExpected && err != nil || !isExpected && !events.IsPermanent(err) {
			t.Errorf("%s of a KubernetesCluster: %v", eventType, err)
		}
	}
}
