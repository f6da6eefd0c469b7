package main

import (
	"testing"

	"github.com/vitistack/stack/apis/v1alpha1"
	"github.com/vitistack/stack/events"
)

// TestUnexpectedEvent expects a Trigger that sends too much to be reported by dead letters.
func TestUnexpectedEvent(t *testing.T) {
	t.Parallel()
	ref := events.Ref{APIVersion: v1alpha1.GroupVersion.String(), Kind: "KubernetesCluster", Namespace: "default", Name: "backup"}
	if _, err := (&function{}).handle(t.Context(), events.NewReconcileRequest("/functions/resync", ref, "uid", "1")); !events.IsPermanent(err) {
		t.Errorf("a KubernetesCluster: %v", err)
	}
}
