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

// overtaken is a server whose answer comes after another delivery has changed something: it calls beforeProvide and beforeFind, unless they are nil,
// before it provides or finds a segment.
type overtaken struct {
	provider.Server
	beforeProvide, beforeFind func()
}

// Provide implements provider.Interface.
func (o overtaken) Provide(ctx context.Context, nn *v1alpha2.NetworkNamespace) (segment.Segment, error) {
	if o.beforeProvide != nil {
		o.beforeProvide()
	}
	return o.Server.Provide(ctx, nn)
}

// Find implements provider.Server.
func (o overtaken) Find(ctx context.Context, nn *v1alpha2.NetworkNamespace) (segment.Segment, error) {
	if o.beforeFind != nil {
		o.beforeFind()
	}
	return o.Server.Find(ctx, nn)
}

// TestReleaseIfDeleted leaves no segment of a deleted network at the manager.
func TestReleaseIfDeleted(t *testing.T) {
	t.Parallel()
	m := newManager(t, 0)
	var w *env
	w = newEnv(t, map[string]provider.Interface{"nam": overtaken{Server: m.nam, beforeProvide: func() {
		w.delete(w.get("net"))
		other := w.other(map[string]provider.Interface{"nam": m.nam})
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

// TestDeletedInUse deletes a network that machines use while a delivery compares its segment with that of the manager. The manager keeps the
// segment until the machines are deleted.
func TestDeletedInUse(t *testing.T) {
	t.Parallel()
	m := newManager(t, 0)
	var w *env
	w = newEnv(t, map[string]provider.Interface{"nam": overtaken{Server: m.nam, beforeFind: func() { w.delete(w.get("net")) }}})
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
