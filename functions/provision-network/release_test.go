package main

import (
	"context"
	"testing"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/vitistack/stack/apis/segment"
	"github.com/vitistack/stack/apis/v1alpha1"
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

// overtakenLookup is a provider that calls before when a network looks up its segment.
type overtakenLookup struct {
	provider.Server
	before func()
}

func (o overtakenLookup) Find(ctx context.Context, nn *v1alpha2.NetworkNamespace) (segment.Segment, error) {
	o.before()
	return o.Server.Find(ctx, nn)
}

// TestDeletedInUse deletes a network that machines use while a delivery compares its segment with that of the manager. The manager keeps the
// segment until the machines are deleted.
func TestDeletedInUse(t *testing.T) {
	t.Parallel()
	m := newManager(t, 0)
	var w *env
	w = newEnv(t, map[string]provider.Interface{"nam": overtakenLookup{m.nam, func() { w.delete(w.get("net")) }}})
	w.network("net", asks("nam"))
	w.expect(w.reconcile("net"), "Ready", reasonProvisioned)
	w.configuration("vm", "net", "shop", v1alpha1.InterfaceStatus{IPv4Addresses: []string{"10.0.0.9"}})
	w.change("net", func(nn *v1alpha2.NetworkNamespace) {
		metav1.SetMetaDataAnnotation(&nn.ObjectMeta, v1alpha1.AnnotationReconcile, "now")
	})
	if err := w.deliver(kindNetwork, "net", events.TypeRefUpdate); err != nil {
		t.Error(err)
	}
	if kept := m.Segments(); len(kept) != 1 || w.get("net") == nil {
		t.Errorf("the manager has %v of a network that machines use", kept)
	}
}
