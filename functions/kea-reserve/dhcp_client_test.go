package main

import (
	"errors"
	"net/netip"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/vitistack/stack/events"
	stand "github.com/vitistack/stack/tests/stand/kea"
)

// TestDHCPClient has a DHCP client of its own network namespace broadcast on a network. It gets exactly what the
// function has reserved, and no client gets an address without a reservation.
func TestDHCPClient(t *testing.T) {
	t.Parallel()
	for name, generation := range map[string]stand.Generation{"Kea2": stand.Kea2, "Kea3": stand.Kea3} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			lan := stand.NewLAN(t)
			b := stand.Start(t, generation, stand.Options{Interface: lan.Interface})
			w := newEnv(t, []string{b.URL()})
			w.network("net", lan.Prefix.String(), nil)
			w.configuration("vm", []string{macA}, nil)
			want := stand.Offer{
				Address: netip.MustParseAddr(addressOf(t, w.reconcile("vm"), 0)), Mask: lan.Prefix.Bits(),
				Routers: []netip.Addr{lan.Gateway}, DNS: []netip.Addr{netip.MustParseAddr("10.9.9.9")},
			}
			got, err := lan.Lease(t.Context(), macA)
			if err != nil {
				t.Fatalf("the client gets no address: %v", err)
			}
			if diff := cmp.Diff(want, got, cmp.Comparer(sameAddress)); diff != "" {
				t.Errorf("the lease differs from the reservation (-want +got):\n%s", diff)
			}
			// A boot loader and an operating system with other client identifiers are the same machine.
			for _, clientID := range []string{"00112233445566", "ff0a0b0c0d0001"} {
				if got, err := lan.LeaseAs(t.Context(), macA, clientID); err != nil || got.Address != want.Address {
					t.Errorf("the client identifier %s got %+v, error %v, want %s", clientID, got, err, want.Address)
				}
			}
			if got, err := lan.Lease(t.Context(), macB); !errors.Is(err, stand.ErrNoOffer) {
				t.Errorf("a client without a reservation got %+v, error %v", got, err)
			}
			w.delete("vm")
			w.must(w.deliver("NetworkConfiguration", "vm", events.TypeRefUpdate))
			if got, err := lan.Lease(t.Context(), macA); !errors.Is(err, stand.ErrNoOffer) {
				t.Errorf("a client whose reservation is deleted got %+v, error %v", got, err)
			}
		})
	}
}
