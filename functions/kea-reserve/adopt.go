package main

import (
	"slices"

	"github.com/vitistack/stack/functions/kea-reserve/kea"
)

// adoptUnmarked returns the states with the reservations that a request adopts although they have no mark:
// those for the MAC addresses of its interfaces with the addresses that its status has, as the kea-operator
// leaves them. Any other reservation without a mark stays foreign. An administrator has to allow that.
func (req request) adoptUnmarked(states []kea.State) []kea.State {
	if !req.unmarked {
		return states
	}
	adopted := slices.Clone(states)
	for i := range adopted {
		adopted[i].Reservations = slices.Clone(adopted[i].Reservations)
		for j := range adopted[i].Reservations {
			if r := &adopted[i].Reservations[j]; r.Owner == (kea.Owner{}) && req.has(*r) {
				r.Owner.UID = req.uid // the rest of the mark differs, so it is written
			}
		}
	}
	return adopted
}

// has reports whether a reservation has the MAC address and the present address of an interface.
func (req request) has(r kea.Reservation) bool {
	return slices.ContainsFunc(req.interfaces, func(nic interfaceRequest) bool {
		return r.Client == kea.MACIdentifier(nic.mac) && nic.current.IsValid() && r.Address == nic.current
	})
}
