package main

import (
	"net/http"
	"strings"
	"testing"

	"k8s.io/client-go/rest"

	"github.com/vitistack/stack/apis/v1alpha2"
	"github.com/vitistack/stack/events"
	"github.com/vitistack/stack/functions/internal/kube"
	"github.com/vitistack/stack/functions/provision-network/provider"
	"github.com/vitistack/stack/tests/sim/faults"
)

// other returns another replica of the function, with its own providers.
func (w *env) other(sources map[string]provider.Interface) *function {
	return &function{kube: w.kube, providers: sources, sender: w.sent, now: w.clock.Now, datacenters: w.separateDataCentres(), optionalPools: true}
}

// TestLateRequest edits the spec of a network while the request for the segment of its earlier spec is still being sent. Another delivery has the
// segment of the edited spec first, and machines use it.
func TestLateRequest(t *testing.T) {
	t.Parallel()
	manager, library := newManager(t, 0), newLibrary(t)
	for name, tc := range map[string]struct {
		from provider.Server
		spec v1alpha2.NetworkNamespaceSpec
		edit func(*v1alpha2.NetworkNamespaceSpec)
	}{
		"nam": {manager.nam, namSpec(v1alpha2.SegmentRequest{IPv4PrefixLength: 26}), func(s *v1alpha2.NetworkNamespaceSpec) { s.NetworkProvisioning.NAM.IPv4PrefixLength = 25 }},
		"netbox": {library.netbox, netboxSpec(v1alpha2.NetBoxRequest{Site: "az1", SegmentRequest: v1alpha2.SegmentRequest{IPv4PrefixLength: 26}}), func(s *v1alpha2.NetworkNamespaceSpec) {
			s.NetworkProvisioning.NetBox.IPv4PrefixLength = 25
		}},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			var w *env
			armed := true
			w = newEnv(t, map[string]provider.Interface{name: overtaken{Server: tc.from, beforeProvide: func() {
				if !armed {
					return
				}
				armed = false
				w.change("net", func(nn *v1alpha2.NetworkNamespace) { tc.edit(&nn.Spec) })
				if err := w.other(map[string]provider.Interface{name: tc.from}).reconcileNetwork(t.Context(), w.namespace, "net", reconcileOptions{}); err != nil {
					t.Error(err)
				}
				w.expect(w.get("net"), "Ready", reasonProvisioned)
			}}})
			tc.spec.DatacenterIdentifier = v1alpha2.Identifier(w.namespace)
			w.network("net", tc.spec)
			if err := w.deliver(kindNetwork, "net", events.TypeRefAdd); (err != nil && !kube.Conflict(err)) || armed {
				t.Errorf("the late delivery ended with %v, waiting for its request: %t", err, armed)
			}
			nn := w.get("net")
			if found, err := tc.from.Find(t.Context(), nn); err != nil || found.IPv4.String() != nn.Status.IPv4Prefix {
				t.Errorf("the network has %s, and its provider %s: %v", nn.Status.IPv4Prefix, found, err)
			}
		})
	}
}

// beforePools calls do once, before the NetworkPools are listed: a delivery has read its network then.
type beforePools struct {
	http.RoundTripper
	do func()
}

// RoundTrip implements http.RoundTripper.
func (b *beforePools) RoundTrip(req *http.Request) (*http.Response, error) {
	if do := b.do; do != nil && strings.HasSuffix(req.URL.Path, "/networkpools") {
		b.do = nil
		do()
	}
	return b.RoundTripper.RoundTrip(req)
}

// TestLateProviderChange names another provider in the spec of a network, and takes that back while a delivery for the other provider is about to
// release the segment of the first one. Another delivery has that segment by then, and machines use it.
func TestLateProviderChange(t *testing.T) {
	t.Parallel()
	manager, library := newManager(t, 0), newLibrary(t)
	sources := map[string]provider.Interface{"nam": manager.nam, "netbox": library.netbox}
	w := newEnv(t, sources)
	if err := manager.plan.Set(faults.Rule{Operation: "PUT /segments", Error: "503"}); err != nil {
		t.Fatal(err)
	}
	w.network("net", asks("nam"))
	w.reconcile("net")
	if err := manager.plan.Set(); err != nil {
		t.Fatal(err)
	}
	name := func(provider string) {
		w.change("net", func(nn *v1alpha2.NetworkNamespace) { nn.Spec.NetworkProvisioning = asks(provider).NetworkProvisioning })
	}
	name("netbox")
	config, pause := rest.CopyConfig(w.config), &beforePools{do: func() {
		name("nam")
		w.expect(w.reconcile("net"), "Ready", reasonProvisioned)
	}}
	config.Wrap(func(next http.RoundTripper) http.RoundTripper { pause.RoundTripper = next; return pause })
	slow := w.other(sources)
	slow.kube = w.client(config)
	if err := slow.reconcileNetwork(t.Context(), w.namespace, "net", reconcileOptions{}); (err != nil && !kube.Conflict(err)) || pause.do != nil {
		t.Errorf("the late delivery ended with %v, waiting for its request: %t", err, pause.do != nil)
	}
	if kept := manager.Segments(); len(kept) != 1 {
		t.Errorf("the manager has %v, but machines use a segment of it", kept)
	}
}
