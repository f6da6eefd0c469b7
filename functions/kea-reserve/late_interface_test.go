package main

import (
	"net/http"
	"strings"
	"testing"

	"k8s.io/client-go/rest"

	"github.com/vitistack/stack/apis/v1alpha1"
	"github.com/vitistack/stack/events"
	"github.com/vitistack/stack/functions/internal/kube"
	sim "github.com/vitistack/stack/tests/sim/kea"
	stand "github.com/vitistack/stack/tests/stand/kea"
)

// beforeNetworks calls do once, before the NetworkNamespaces are read: a delivery has read its NetworkConfiguration then.
type beforeNetworks struct {
	http.RoundTripper
	do func()
}

// RoundTrip implements http.RoundTripper.
func (b *beforeNetworks) RoundTrip(req *http.Request) (*http.Response, error) {
	if do := b.do; do != nil && strings.Contains(req.URL.Path, "/networknamespaces") {
		b.do = nil
		do()
	}
	return b.RoundTripper.RoundTrip(req)
}

// TestLateFullReconcile has a second machine join a shared NetworkConfiguration while a delivery of resync, which has read it before, is about
// to compare its reservations. The second machine keeps its reservation, which its status has.
func TestLateFullReconcile(t *testing.T) {
	t.Parallel()
	for _, generation := range []sim.Generation{sim.Kea2, sim.Kea3} {
		t.Run(string(generation), func(t *testing.T) {
			t.Parallel()
			b := simulate(t, generation, stand.Options{Subnets: []stand.Subnet{{ID: 7, Subnet: "10.77.0.0/24"}}})
			w := newEnv(t, []string{b.URL()})
			w.network("net", "10.77.0.0/24", nil)
			w.configuration("shared", []string{macA}, nil)
			w.reconcile("shared")
			pause := &beforeNetworks{do: func() {
				nc := w.get("shared")
				before := nc.DeepCopy()
				nc.Spec.NetworkInterfaces = append(nc.Spec.NetworkInterfaces, v1alpha1.InterfaceSpec{Name: "eth1", MACAddress: macB})
				_, err := w.kube.Patch(t.Context(), before, nc)
				w.must(err)
				addressOf(t, w.reconcile("shared"), 1)
			}}
			config := rest.CopyConfig(w.config)
			config.Wrap(func(next http.RoundTripper) http.RoundTripper { pause.RoundTripper = next; return pause })
			slow := w.function([]string{b.URL()})
			var err error
			slow.kube, err = kube.New(config, name, kinds...)
			w.must(err)
			if err := deliver(t.Context(), slow, "NetworkConfiguration", w.namespace, "shared", events.TypeResync); err != nil || pause.do != nil {
				t.Errorf("the late delivery ended with %v, waiting for its request: %t", err, pause.do != nil)
			}
			if kept := hosts(t, b); len(kept) != 2 {
				t.Errorf("Kea has the reservations %v, want those of both interfaces", kept)
			}
		})
	}
}
