package main

import (
	"strings"
	"testing"

	"github.com/vitistack/stack/apis/v1alpha2"
	"github.com/vitistack/stack/events"
	"github.com/vitistack/stack/tests/sim/faults"
)

// TestRecheck looks again at networks that are Ready: at one that is as its source
// says, one whose source is down, forgets it, has it again, and gives it something
// else. Nothing is ever made in place of what is gone.
func TestRecheck(t *testing.T) {
	t.Parallel()
	manager, library := newManager(t, 0), newLibrary(t, shelves())
	for name, tc := range map[string]struct {
		source source
		spec   v1alpha2.NetworkNamespaceSpec
		plan   *faults.Plan
		// left is how many segments the source has.
		left func() int
	}{
		"NAM": {manager.nam, namSpec(v1alpha2.SegmentRequest{IPv4PrefixLength: 26}), manager.plan, func() int { return len(manager.Segments()) }},
		"NetBox": {library.netbox, netboxSpec(v1alpha2.NetBoxRequest{Role: "tenants", VLANGroup: "leafs", SegmentRequest: v1alpha2.SegmentRequest{IPv4PrefixLength: 26}}), library.plan, func() int {
			prefixes, addresses, vlans := library.Taken()
			return len(prefixes) + len(addresses) + len(vlans)
		}},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			w := newWorld(t, map[string]source{"nam": tc.source, "netbox": tc.source})
			w.network("net", tc.spec)
			nn := w.look("net")
			w.expect(nn, "Ready", reasonProvisioned)
			settled := nn.ResourceVersion
			again := func() *v1alpha2.NetworkNamespace {
				w.must(w.deliver(kindNetwork, "net", events.TypeResync))
				return w.get("net")
			}
			unwritten := func(why string) {
				if got := again(); got.ResourceVersion != settled {
					t.Errorf("%s: status was written: %+v", why, got.Status)
				}
			}
			unwritten("as it was")
			w.must(tc.plan.Set(faults.Rule{Error: "503"}))
			unwritten("the source is down")
			w.must(tc.plan.Set(faults.Rule{Error: "401"}))
			w.expect(again(), "Ready", "SourceUnauthorized")
			w.must(tc.plan.Set())
			w.clock.Pass(2 * longestWait)
			w.expect(w.look("net"), "Ready", reasonProvisioned)

			w.must(tc.source.Release(t.Context(), nn))
			for range 2 {
				got := again()
				if message := w.expect(got, "Ready", reasonGone); !strings.Contains(message, string(nn.UID)) || got.Status.IPv4Prefix != nn.Status.IPv4Prefix {
					t.Errorf("the segment stays, and the message says what to restore: %s %+v", message, got.Status)
				}
				w.clock.Pass(2 * longestWait)
			}
			if n := tc.left(); n != 0 {
				t.Errorf("%d segments were made in place of the one that is gone", n)
			}
			provide := func(nn *v1alpha2.NetworkNamespace) {
				_, err := tc.source.Provide(t.Context(), nn)
				w.must(err)
			}
			provide(nn)
			w.expect(again(), "Ready", reasonProvisioned)

			w.must(tc.source.Release(t.Context(), nn))
			provide(someNetwork(uidA, tc.spec))
			provide(nn)
			got := again()
			if message := w.expect(got, "Ready", "SourceChanged"); !strings.Contains(message, nn.Status.IPv4Prefix) || got.Status.IPv4Prefix != nn.Status.IPv4Prefix {
				t.Errorf("the message says what it was, and it stays: %s %+v", message, got.Status)
			}
		})
	}
}
