package kea

import (
	"errors"
	"net/netip"
	"testing"

	"github.com/vitistack/stack/functions/internal/reconcile"
)

func TestResolve(t *testing.T) {
	t.Parallel()
	of := func(id uint32, prefix string) Subnet { return Subnet{ID: id, Prefix: netip.MustParsePrefix(prefix)} }
	shared := func(id uint32, prefix, name string) Subnet {
		return Subnet{ID: id, Prefix: netip.MustParsePrefix(prefix), Shared: name}
	}
	cases := map[string]struct {
		reason  string
		subnets []Subnet
		want    uint32
		found   bool
		refused bool
	}{
		"None":          {reason: "there is no subnet"},
		"Apart":         {reason: "another network", subnets: []Subnet{of(1, "10.78.0.0/24")}},
		"Same":          {reason: "its own", subnets: []Subnet{of(1, "10.78.0.0/24"), of(2, "10.77.0.0/24")}, want: 2, found: true},
		"SameAndWider":  {reason: "the network's own subnet is preferred", subnets: []Subnet{of(4, "10.77.0.0/16"), of(2, "10.77.0.0/24"), of(3, "10.0.0.0/8")}, want: 2, found: true},
		"Wider":         {reason: "the network is a part of it", subnets: []Subnet{of(3, "10.0.0.0/8"), of(2, "10.77.0.0/16")}, want: 2, found: true},
		"LowerID":       {reason: "Kea selects the wider one", subnets: []Subnet{of(1, "10.0.0.0/8"), of(2, "10.77.0.0/24")}, refused: true},
		"Shared":        {reason: "Kea finds reservations in every subnet of a shared network", subnets: []Subnet{shared(1, "10.0.0.0/8", "f"), shared(2, "10.77.0.0/24", "f")}, want: 2, found: true},
		"OtherShared":   {reason: "Kea selects the other shared network", subnets: []Subnet{shared(1, "10.0.0.0/8", "g"), shared(2, "10.77.0.0/24", "f")}, refused: true},
		"Narrower":      {reason: "it is a part of the network", subnets: []Subnet{of(1, "10.77.0.128/25")}, refused: true},
		"SameAndInside": {reason: "its own subnet covers all of the network", subnets: []Subnet{of(1, "10.77.0.128/25"), of(2, "10.77.0.0/24")}, want: 2, found: true},
	}
	for name, tc := range cases {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			got, found, err := findSubnet(netip.MustParsePrefix("10.77.0.0/24"), tc.subnets)
			if got.ID != tc.want || found != tc.found || errors.As(err, new(reconcile.UserError)) != tc.refused {
				t.Errorf("%s: got %v, found %t, error %v", tc.reason, got, found, err)
			}
		})
	}
}
