package main

import (
	"net/netip"
	"slices"

	"github.com/vitistack/stack/functions/kea-reserve/kea"
)

// compareReservations returns what one server lacks to have the reservations of a request.
func compareReservations(req request, state kea.State, states []kea.State, addresses []netip.Addr) kea.Change {
	var c kea.Change
	id := state.Subnet.ID
	if !state.SubnetFound {
		id = subnetIDFor(req.prefix, states)
		c.Create = &kea.SubnetSpec{
			Subnet: kea.Subnet{ID: id, Prefix: req.prefix}, Routers: req.routers(),
			Classes: req.classes, Network: req.network,
		}
	}
	wanted := map[string]kea.Reservation{}
	for i, nic := range req.interfaces {
		wanted[nic.mac] = req.reservation(nic, id, addresses[i])
	}
	right, wrong := map[string]bool{}, map[string]bool{}
	for _, r := range state.Reservations {
		if !req.owns(r.Owner) {
			continue
		}
		want, ok := wanted[r.Client.Value]
		switch {
		case !ok:
			c.Remove = append(c.Remove, r)
		case r == want:
			right[r.Client.Value] = true
		default:
			wrong[r.Client.Value] = true
		}
	}
	for _, nic := range req.interfaces {
		switch {
		case wrong[nic.mac]:
			c.Update = append(c.Update, wanted[nic.mac])
		case !right[nic.mac]:
			c.Add = append(c.Add, wanted[nic.mac])
		}
	}
	return c
}

// isReleasing reports whether a server has a reservation of the request for an address that is not one of addresses, so that another
// NetworkConfiguration can get it.
func (req request) isReleasing(states []kea.State, addresses []netip.Addr) bool {
	return slices.ContainsFunc(states, func(state kea.State) bool {
		return slices.ContainsFunc(state.Reservations, func(r kea.Reservation) bool {
			return req.owns(r.Owner) && r.Address.IsValid() && !slices.Contains(addresses, r.Address)
		})
	})
}

// subnetIDFor returns the ID of a subnet that has to be created: the one that it has on the
// other server, because servers that share leases must have the same IDs.
func subnetIDFor(network netip.Prefix, states []kea.State) uint32 {
	for _, state := range states {
		if state.SubnetFound && state.Subnet.Prefix == network {
			return state.Subnet.ID
		}
	}
	return kea.SubnetID(network)
}
