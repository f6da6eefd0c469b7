package main

import (
	"encoding/json"
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/vitistack/stack/apis/v1alpha1"
	"github.com/vitistack/stack/apis/v1alpha2"
	"github.com/vitistack/stack/events"
	"github.com/vitistack/stack/functions/provision-network/provider"
	"github.com/vitistack/stack/functions/provision-network/provider/netbox"
)

// orphans has the function check for orphans, and returns the report in the ConfigMap with its
// resourceVersion.
func (w *env) orphans() (report v1alpha1.OrphanReport, version string) {
	w.t.Helper()
	w.must(w.deliver("ConfigMap", v1alpha1.ConfigMapOrphans, events.TypeResync))
	c := &corev1.ConfigMap{}
	w.must(w.kube.Get(w.t.Context(), w.namespace, v1alpha1.ConfigMapOrphans, c))
	if text := c.Data[v1alpha1.OrphansInNetBox]; text != "" {
		w.must(json.Unmarshal([]byte(text), &report))
	}
	return report, c.ResourceVersion
}

// TestOrphansInNetBox deletes a NetworkNamespace without its segment. Another NetworkNamespace exists,
// one is being deleted, and NetBox has prefixes of other owners.
func TestOrphansInNetBox(t *testing.T) {
	t.Parallel()
	l := newLibrary(t)
	w := newEnv(t, map[string]provider.Interface{v1alpha2.ProviderNetBox: l.netbox})
	w.f.namespace = w.namespace
	w.must(w.kube.Create(t.Context(), &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Namespace: w.namespace, Name: v1alpha1.ConfigMapOrphans}}))
	made := map[string]*v1alpha2.NetworkNamespace{}
	for _, name := range []string{"stays", "going", "lost"} {
		spec := netboxSpec(v1alpha2.NetBoxRequest{SegmentRequest: v1alpha2.SegmentRequest{IPv4PrefixLength: 28}, Site: "az1", VLANGroup: "leafs"})
		spec.DatacenterIdentifier = v1alpha2.Identifier(w.namespace)
		w.network(name, spec)
		made[name] = w.reconcile(name)
		w.expect(made[name], v1alpha2.ProvisioningReady, "Provisioned")
	}
	// A prefix of another owner may have a similar description.
	l.create(t, "/api/ipam/prefixes/1/available-prefixes/", map[string]any{
		"prefix_length": 28, "status": "active", "description": "NetworkNamespace of others",
	})
	prefixes, addresses, vlans := l.Taken()
	w.delete(made["going"])
	if found, _ := w.orphans(); len(found.Orphans) != 0 {
		t.Errorf("each segment has its NetworkNamespace: %+v", found)
	}
	w.changeUnvalidated("lost", func(nn *v1alpha2.NetworkNamespace) { nn.Finalizers = nil })
	w.delete(made["lost"])
	if found, _ := w.orphans(); len(found.Orphans) != 2 || found.Orphans[0].Confirmed || found.Message != "" {
		t.Errorf("one check confirms no orphan: %+v", found)
	}
	w.clock.Pass(10 * time.Minute)
	found, version := w.orphans()
	if len(found.Orphans) != 2 || found.Orphans[0].UID != string(made["lost"].UID) || found.Orphans[0].Name != made["lost"].Status.IPv4Prefix || !found.Orphans[1].Confirmed {
		t.Errorf("got %+v, want the prefix and the VLAN of the deleted network", found)
	}
	if !strings.Contains(found.Message, made["lost"].Status.IPv4Prefix) || !strings.Contains(found.Message, "--request DELETE") || !strings.Contains(found.Message, "/api/ipam/"+found.Orphans[0].ID+"/") {
		t.Errorf("the message has to name the prefix, and the command: %s", found.Message)
	}
	w.clock.Pass(10 * time.Minute)
	if _, again := w.orphans(); again != version {
		t.Error("a check with an unchanged result has written")
	}
	if p, a, v := l.Taken(); len(p) != len(prefixes) || len(a) != len(addresses) || len(v) != len(vlans) {
		t.Errorf("the checks have removed something: %v, %v, %v are left", p, a, v)
	}
	w.f.providers[v1alpha2.ProviderNetBox] = netbox.New(client(t, "http://127.0.0.1:1", netboxToken, "Token"))
	if found, again := w.orphans(); again != version || len(found.Orphans) != 2 {
		t.Errorf("while NetBox is down, orphans are unknown: %+v", found)
	}
	w.f.providers[v1alpha2.ProviderNetBox] = l.netbox
	w.must(l.netbox.Release(t.Context(), made["lost"]))
	if found, _ := w.orphans(); len(found.Orphans) != 0 || found.Message != "" {
		t.Errorf("the orphan is removed, but reported: %+v", found)
	}
}

// TestSharedNetBox has another installation use the same NetBox.
func TestSharedNetBox(t *testing.T) {
	t.Parallel()
	l := newLibrary(t)
	w := newEnv(t, map[string]provider.Interface{v1alpha2.ProviderNetBox: l.netbox})
	w.f.namespace = w.namespace
	w.must(w.kube.Create(t.Context(), &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Namespace: w.namespace, Name: v1alpha1.ConfigMapOrphans}}))
	other := &v1alpha2.NetworkNamespace{ObjectMeta: metav1.ObjectMeta{Namespace: "elsewhere", Name: "net", UID: "elsewhere"}, Spec: netboxSpec(v1alpha2.NetBoxRequest{})}
	_, err := l.netbox.Provide(t.Context(), other)
	w.must(err)
	if found, _ := w.orphans(); len(found.Orphans) != 1 {
		t.Errorf("the custom field does not say which installation created a prefix: %+v", found)
	}
	for text, want := range map[string]bool{"": false, "false": false, "true": true, "yes": true, "off": false} {
		if got, err := isShared(func(string) string { return text }); err != nil || got != want {
			t.Errorf("%s=%s: got %t, %v", sharedVariable, text, got, err)
		}
	}
	if _, err := isShared(func(string) string { return "maybe" }); err == nil || !strings.Contains(err.Error(), "write true or false") {
		t.Errorf("got %v", err)
	}
	w.f.sharedNetBox = true
	if found, _ := w.orphans(); len(found.Orphans) != 0 {
		t.Errorf("orphans in a shared NetBox must not be reported: %+v", found)
	}
}
