package main

import (
	"context"
	"testing"

	"github.com/vitistack/stack/apis/segment"
	"github.com/vitistack/stack/apis/v1alpha2"
	"github.com/vitistack/stack/events"
	"github.com/vitistack/stack/functions/provision-network/provider"
)

// overtaking is a provider whose request for a segment arrives after another delivery has released the
// deleted network.
type overtaking struct {
	provider.Server
	before func()
}

func (o overtaking) Provide(ctx context.Context, nn *v1alpha2.NetworkNamespace) (segment.Segment, error) {
	o.before()
	return o.Server.Provide(ctx, nn)
}

// TestReleaseIfDeleted leaves no segment of a deleted network at the manager.
func TestReleaseIfDeleted(t *testing.T) {
	t.Parallel()
	m := newManager(t, 0)
	var w *env
	w = newEnv(t, map[string]provider.Interface{"nam": overtaking{m.nam, func() {
		w.delete(w.get("net"))
		other := &function{kube: w.kube, sender: w.sent, now: w.clock.Now, datacenters: w.separateDataCentres(), optionalPools: true}
		other.providers = map[string]provider.Interface{"nam": m.nam}
		if err := other.reconcileNetwork(t.Context(), w.namespace, "net", reconcileOptions{}); err != nil || w.get("net") != nil {
			t.Errorf("the network must be deleted before its segment is created: %v", err)
		}
	}}})
	w.network("net", v1alpha2.NetworkNamespaceSpec{})
	_ = w.deliver(kindNetwork, "net", events.TypeRefAdd)
	if left := m.Segments(); len(left) > 0 {
		t.Errorf("segments %v of a deleted network are left", left)
	}
}
