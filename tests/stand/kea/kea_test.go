package kea_test

import (
	"errors"
	"net/netip"
	"testing"

	"github.com/vitistack/stack/tests/stand/kea"
)

func TestServers(t *testing.T) {
	t.Parallel()
	cases := map[string]struct {
		reason     string
		generation kea.Generation
		options    kea.Options
		commands   bool
	}{
		"Kea2":      {reason: "Kea 2.2 has no commands for reservations", generation: kea.Kea2},
		"Kea3":      {reason: "Kea 3 has commands for reservations", generation: kea.Kea3, commands: true},
		"Kea3Plain": {reason: "Kea 3 needs hooks for them", generation: kea.Kea3, options: kea.Options{Plain: true}},
	}
	for name, tc := range cases {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			tc.options.Subnets = []kea.Subnet{{
				ID: 7, Subnet: "10.77.0.0/24", Pools: []kea.Pool{{Pool: "10.77.0.100-10.77.0.100"}},
				Reservations: []kea.Reservation{{HWAddress: "02:00:00:00:00:01", IPAddress: "10.77.0.9"}},
			}}
			s := kea.Start(t, tc.generation, tc.options)
			want := 2
			if tc.commands {
				want = 0
			}
			if got, err := s.Command(t.Context(), "subnet4-list", nil, nil); err != nil || got != want {
				t.Errorf("%s: subnet4-list got result %d, error %v, want %d", tc.reason, got, err, want)
			}
			s.Restart(t)
			link := netip.MustParseAddr("10.77.0.1")
			for mac, want := range map[string]string{"02:00:00:00:00:01": "10.77.0.9", "02:00:00:00:00:02": "10.77.0.100"} {
				if got, err := s.Lease(t.Context(), mac, link); err != nil || got.Address.String() != want || got.Mask != 24 {
					t.Errorf("client %s got %v, error %v, want %s", mac, got, err, want)
				}
			}
			if got, err := s.Lease(t.Context(), "02:00:00:00:00:03", link); !errors.Is(err, kea.ErrNoOffer) {
				t.Errorf("a client without a reservation got %v from a full pool, error %v", got, err)
			}
			s.Stop()
			if _, err := s.Command(t.Context(), "list-commands", nil, nil); err == nil {
				t.Error("a stopped server answers")
			}
		})
	}
}
