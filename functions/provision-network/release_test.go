package main

import (
	"context"
	"testing"

	"github.com/vitistack/stack/apis/v1alpha2"
	"github.com/vitistack/stack/events"
	"github.com/vitistack/stack/functions/provision-network/provider"
)

// overtaking is a provider that is asked while the network is deleted, and released by
// another delivery before the request for the segment arrives.
type overtaking struct {
	provider.Server
	before func()
}

func (o overtaking) Provide(ctx context.Context, nn *v1alpha2.NetworkNamespace) (provider.Segment, error) {
	o.before()
	return o.Server.Provide(ctx, nn)
}

// TestReleaseIfDeleted leaves no segment at the manager that nobody would release.
func TestReleaseIfDeleted(t *testing.T) {
	t.Parallel()
	m := newManager(t, 0)
	var w *env
	w = newEnv(t, map[string]provider.Interface{"nam": overtaking{m.nam, func() {
		w.delete(w.get("net"))
		other := &function{kube: w.kube, sender: w.sent, now: w.clock.Now, datacenters: w.apart(), optionalPools: true}
		other.providers = map[string]provider.Interface{"nam": m.nam}
		if err := other.reconcileNetwork(t.Context(), w.namespace, "net", reconcileOptions{}); err != nil || w.get("net") != nil {
			t.Errorf("it has to be gone before its segment is made: %v", err)
		}
	}}})
	w.network("net", v1alpha2.NetworkNamespaceSpec{})
	_ = w.deliver(kindNetwork, "net", events.TypeRefAdd)
	if left := m.Segments(); len(left) > 0 {
		t.Errorf("segments %v are left of what is gone", left)
	}
}
