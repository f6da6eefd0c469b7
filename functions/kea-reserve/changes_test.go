package main

import (
	"net/netip"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/vitistack/stack/apis/v1alpha1"
	"github.com/vitistack/stack/apis/v1alpha2"
	"github.com/vitistack/stack/events"
	"github.com/vitistack/stack/functions/internal/network"
	stand "github.com/vitistack/stack/tests/stand/kea"
)

// TestChanges edits a NetworkConfiguration and its network.
func TestChanges(t *testing.T) {
	onEach(t, stand.Options{}, func(t *testing.T, b backend) {
		w := newEnv(t, []string{b.URL()})
		nn := w.network("net", "10.77.0.0/24", nil)
		w.configuration("vm", []string{macA, macB}, nil)
		nc := w.reconcile("vm")
		kept := addressOf(t, nc, 0)

		before := nc.DeepCopy()
		nc.Spec.NetworkInterfaces[1].MACAddress = "52:54:00:00:00:0f"
		_, err := w.kube.Patch(t.Context(), before, nc)
		w.must(err)
		nc = w.reconcile("vm")
		if diff := cmp.Diff(map[string]string{macA: kept, "52:54:00:00:00:0f": addressOf(t, nc, 1)}, hosts(t, b)); diff != "" {
			t.Errorf("after another MAC address (-want +got):\n%s", diff)
		}

		changed := nn.DeepCopy()
		changed.Status.DNS = []string{"10.9.9.1", "10.9.9.2"}
		_, err = w.kube.PatchStatus(t.Context(), nn, changed)
		w.must(err)
		w.must(w.deliver("NetworkNamespace", "net", events.TypeRefUpdate))
		if got := w.sentNames(t); !slices.Equal(got, []string{"NetworkConfiguration vm"}) {
			t.Fatalf("changed DNS servers requeued %v", got)
		}
		w.must(w.deliver("NetworkConfiguration", "vm", events.TypeResync))
		offer, err := b.Lease(t.Context(), macA, netip.MustParseAddr("10.77.0.1"))
		w.must(err)
		if got := w.get("vm").Status.NetworkInterfaces[0].DNS; !slices.Equal(got, changed.Status.DNS) || len(offer.DNS) != 2 || offer.Address.String() != kept {
			t.Errorf("after a change of DNS servers the status has %v, and DHCP gives %+v", got, offer)
		}
		w.must(w.deliver("NetworkNamespace", "net", events.TypeRefUpdate))
		if got := w.sentNames(t); got != nil {
			t.Errorf("an unchanged network requeued %v", got)
		}

		nn, changed = changed, changed.DeepCopy()
		changed.Status.DNS = nil
		_, err = w.kube.PatchStatus(t.Context(), nn, changed)
		w.must(err)
		w.must(w.deliver("NetworkConfiguration", "vm", events.TypeResync))
		if offer, err = b.Lease(t.Context(), macA, netip.MustParseAddr("10.77.0.1")); err != nil || len(offer.DNS) > 0 || len(offer.Routers) != 1 {
			t.Errorf("the network has no DNS servers any more, but DHCP gives %+v, error %v", offer, err)
		}

		there := hosts(t, b)
		before = w.get("vm")
		nc = before.DeepCopy()
		nc.Spec.Provider = "static-ip-operator"
		network.AddUser(nc, "one")
		_, err = w.kube.Patch(t.Context(), before, nc)
		w.must(err)
		w.reconcile("vm")
		w.must(w.deliver("NetworkConfiguration", "vm", events.TypeResync))
		if diff := cmp.Diff(there, hosts(t, b)); diff != "" {
			t.Errorf("reservations that a Machine uses, after another provider (-want +got):\n%s", diff)
		}
		before = w.get("vm")
		nc = before.DeepCopy()
		network.RemoveUser(nc, "one")
		_, err = w.kube.Patch(t.Context(), before, nc)
		w.must(err)
		if nc = w.reconcile("vm"); len(hosts(t, b)) != 0 || len(nc.Finalizers) != 0 {
			t.Errorf("another provider serves it, but Kea still has %v, finalizers %v", hosts(t, b), nc.Finalizers)
		}
	})
}

// TestReleasedByChange removes an interface while another NetworkConfiguration waits for an address.
func TestReleasedByChange(t *testing.T) {
	t.Parallel()
	b := backends["Sim3"](t, stand.Options{})
	w := newEnv(t, []string{b.URL()})
	w.network("net", "10.77.0.0/29", nil)
	macs := []string{"52:54:00:00:03:01", "52:54:00:00:03:02", "52:54:00:00:03:03", "52:54:00:00:03:04", "52:54:00:00:03:05"}
	w.configuration("has", macs, nil)
	freed := addressOf(t, w.reconcile("has"), 4)
	w.configuration("waits", []string{macA}, nil)
	if nc := w.reconcile("waits"); !strings.HasPrefix(ready(nc), "False PoolExhausted") {
		t.Fatalf("the pool is full: Ready %s", ready(nc))
	}
	w.sentNames(t)
	before := w.get("has")
	nc := before.DeepCopy()
	nc.Spec.NetworkInterfaces = nc.Spec.NetworkInterfaces[:4]
	_, err := w.kube.Patch(t.Context(), before, nc)
	w.must(err)
	w.reconcile("has")
	if got := w.sentNames(t); !slices.Equal(got, []string{"NetworkConfiguration waits"}) {
		t.Fatalf("requeued %v", got)
	}
	w.must(w.deliver("NetworkConfiguration", "waits", events.TypeResync))
	if got := addressOf(t, w.get("waits"), 0); got != freed {
		t.Errorf("got %s, want the address %s that was released", got, freed)
	}
}

// TestOwnAddresses moves requested addresses between the interfaces of one object, and to a new MAC
// address while the earlier one still has a lease.
func TestOwnAddresses(t *testing.T) {
	const macC = "52:54:00:00:00:0c"
	onEach(t, stand.Options{}, func(t *testing.T, b backend) {
		w := newEnv(t, []string{b.URL()})
		w.network("net", "10.77.0.0/24", nil)
		ask := func(nc *v1alpha1.NetworkConfiguration, addresses ...v1alpha2.IPv4Address) {
			for i, a := range addresses {
				nc.Spec.NetworkInterfaces[i].IPv4Addresses = []v1alpha2.IPv4Address{a}
			}
		}
		after := func(what string, change func(*v1alpha1.NetworkConfiguration), want map[string]string) {
			t.Helper()
			before := w.get("vm")
			nc := before.DeepCopy()
			change(nc)
			_, err := w.kube.Patch(t.Context(), before, nc)
			w.must(err)
			nc = w.reconcile("vm")
			if diff := cmp.Diff(want, hosts(t, b)); diff != "" || nc.Status.Phase != v1alpha1.NetworkConfigurationReady {
				t.Errorf("after %s: Ready %s, reservations (-want +got):\n%s", what, ready(nc), diff)
			}
		}
		w.configuration("vm", []string{macA, macB}, func(nc *v1alpha1.NetworkConfiguration) { ask(nc, "10.77.0.50", "10.77.0.51") })
		w.reconcile("vm")
		after("an exchange", func(nc *v1alpha1.NetworkConfiguration) { ask(nc, "10.77.0.51", "10.77.0.50") }, map[string]string{macA: "10.77.0.51", macB: "10.77.0.50"})
		offer, err := b.Lease(t.Context(), macA, netip.MustParseAddr("10.77.0.1"))
		if err != nil || offer.Address.String() != "10.77.0.51" {
			t.Errorf("DHCP gives %+v, %v", offer, err)
		}
		after("another MAC address", func(nc *v1alpha1.NetworkConfiguration) { nc.Spec.NetworkInterfaces[0].MACAddress = macC }, map[string]string{macC: "10.77.0.51", macB: "10.77.0.50"})
	})
}
