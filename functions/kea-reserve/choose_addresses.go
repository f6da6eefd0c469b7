package main

import (
	"fmt"
	"net/netip"
	"slices"

	"github.com/vitistack/stack/functions/internal/reconcile"
	"github.com/vitistack/stack/functions/kea-reserve/kea"
)

// reasonExhausted is the UserError that ends as soon as another NetworkConfiguration releases
// an address.
const reasonExhausted = "PoolExhausted"

// plan holds the address of each requested interface, and the change for each server.
type plan struct {
	addresses []netip.Addr
	changes   []kea.Change
}

// isComplete reports whether no server needs a Change.
func (p plan) isComplete() bool {
	return !slices.ContainsFunc(p.changes, func(c kea.Change) bool { return !c.IsEmpty() })
}

// isRemoving reports whether a server loses a reservation, or gets another one in its place.
func (p plan) isRemoving() bool {
	return slices.ContainsFunc(p.changes, func(c kea.Change) bool { return len(c.Remove)+len(c.Update) > 0 })
}

// planReservations decides on the addresses of a request from what the servers have. An interface gets
// the first of:
//
//	the address that it asks for, or a UserError
//	the address of its reservation on any server, or the one in its status
//	the address of its lease
//	the first free address, searched from a place that its UID and name determine
//
// Interfaces that ask for an address come first. An address whose reservation is obsolete is
// free for the other interfaces of the same NetworkConfiguration.
//
// planReservations never changes a reservation of another owner. One for the same MAC address is a
// UserError, and its address is not free.
func planReservations(req request, states []kea.State) (plan, error) {
	if err := checkSubnets(req, states); err != nil {
		return plan{}, err
	}
	states = req.adoptUnmarked(states)
	p := plan{addresses: make([]netip.Addr, len(req.interfaces)), changes: make([]kea.Change, len(states))}
	taken := takenAddresses(req, states)
	for _, i := range req.byRequestedAddress() {
		nic := req.interfaces[i]
		if r, ok := findForeignReservation(req, nic, states); ok {
			if r.Owner.Name != "" {
				return plan{}, reconcile.UserError{Reason: "DuplicateMACAddress", Message: fmt.Sprintf(
					"MAC address %s of interface %s is also that of NetworkConfiguration %s in the same network: use another MAC address for the interface (for that of a Machine, delete the Machine and create it again without macAddress in spec.networks), or delete that NetworkConfiguration", nic.mac, nic.name, r.Owner.Name)}
			}
			return plan{}, reconcile.UserError{Reason: "ForeignReservation", Message: fmt.Sprintf(
				"Kea has a reservation of %s for %s that this stack did not make: remove it, or set %q in its user-context to %s to hand it over",
				orNone(r.Address), r.Client, "vitistack.io/uid", req.uid)}
		}
		address, err := chooseAddress(req, nic, states, taken)
		if err != nil {
			return plan{}, err
		}
		taken[address] = "interface " + nic.name
		p.addresses[i] = address
	}
	for i, state := range states {
		p.changes[i] = compareReservations(req, state, states, p.addresses)
	}
	return p, nil
}

func checkSubnets(req request, states []kea.State) error {
	for _, state := range states {
		if !state.SubnetFound && !state.CanCreateSubnet {
			return reconcile.UserError{Reason: "SubnetMissing", Message: fmt.Sprintf(
				"Kea has no subnet that contains %[1]s: load libdhcp_subnet_cmds.so so that the stack can make it, or add one and have the platform team add %[1]s to %[2]s (kea.allowedSubnets of the chart)", req.prefix, allowedVariable)}
		}
	}
	return nil
}

// chooseAddress returns the address of one interface. taken maps addresses to what has them.
func chooseAddress(req request, nic interfaceRequest, states []kea.State, taken map[netip.Addr]string) (netip.Addr, error) {
	if nic.requested.IsValid() {
		if !req.isUsable(nic.requested) {
			return netip.Addr{}, reconcile.UserError{Reason: "AddressOutsidePool", Message: fmt.Sprintf(
				"interface %s requests %s, which is not a usable address of %s: request another address, or remove it from the interface", nic.name, nic.requested, req.prefix)}
		}
		if holder, ok := taken[nic.requested]; ok && !isReservedFor(req, nic, nic.requested, states) {
			return netip.Addr{}, reconcile.UserError{Reason: "AddressTaken", Message: fmt.Sprintf(
				"interface %s requests %s, which has %s: request another address, or remove it from the interface", nic.name, nic.requested, holder)}
		}
		return nic.requested, nil
	}
	for _, candidate := range currentAddresses(req, nic, states) {
		if _, ok := taken[candidate]; req.isUsable(candidate) && (!ok || isReservedFor(req, nic, candidate, states)) {
			return candidate, nil
		}
	}
	address, ok := pick(req.prefix, req.uid+"/"+nic.name, func(a netip.Addr) bool {
		_, held := taken[a]
		return !held && !req.reserved[a] && !req.servers[a] && req.isUsable(a)
	})
	if !ok {
		return netip.Addr{}, reconcile.UserError{Reason: reasonExhausted, Message: fmt.Sprintf("%s has no free address: release one, or use a larger network", req.prefix)}
	}
	return address, nil
}

// currentAddresses returns the addresses that an interface has in its status, in reservations
// and in leases, in this order.
func currentAddresses(req request, nic interfaceRequest, states []kea.State) []netip.Addr {
	var own, leased []netip.Addr
	for _, state := range states {
		for _, r := range state.Reservations {
			if req.owns(r.Owner) && r.Client.Value == nic.mac && r.Address.IsValid() {
				own = append(own, r.Address)
			}
		}
		for _, l := range state.Leases {
			if l.MAC == nic.mac && !req.reserved[l.Address] {
				leased = append(leased, l.Address)
			}
		}
	}
	if nic.current.IsValid() && (len(own) == 0 || slices.Contains(own, nic.current)) {
		own = slices.Insert(own, 0, nic.current)
	}
	return append(own, leased...)
}

// isReservedFor reports whether an interface has the only reservation of an address. Another
// client's lease of the address is ignored, because it expires.
func isReservedFor(req request, nic interfaceRequest, address netip.Addr, states []kea.State) bool {
	own := false
	for _, state := range states {
		for _, r := range state.Reservations {
			if r.Address != address || req.isObsolete(r) {
				continue
			}
			if !req.owns(r.Owner) || r.Client.Value != nic.mac {
				return false
			}
			own = true
		}
	}
	return own
}

// takenAddresses maps the addresses that are not free to what has them. It leaves out obsolete
// reservations, leases of the request's own interfaces, and leases that an interface had under
// its former MAC address if another interface asks for that address.
func takenAddresses(req request, states []kea.State) map[netip.Addr]string {
	own, asked, earlier := map[string]bool{}, map[netip.Addr]bool{}, map[kea.Lease]bool{}
	for _, nic := range req.interfaces {
		own[nic.mac], asked[nic.requested] = true, true
	}
	for _, state := range states {
		for _, r := range state.Reservations {
			if req.isObsolete(r) && asked[r.Address] {
				earlier[kea.Lease{MAC: r.Client.Value, Address: r.Address}] = true
			}
		}
	}
	taken := map[netip.Addr]string{}
	for _, state := range states {
		for _, l := range state.Leases {
			if !own[l.MAC] && !earlier[l] {
				taken[l.Address] = "a lease of " + l.MAC
			}
		}
	}
	for _, state := range states {
		for _, r := range state.Reservations {
			if r.Address.IsValid() && !req.isObsolete(r) {
				taken[r.Address] = holderOf(r)
			}
		}
	}
	return taken
}

// holderOf names the owner of a reservation, for a message.
func holderOf(r kea.Reservation) string {
	if r.Owner.Name != "" {
		return "NetworkConfiguration " + r.Owner.Name
	}
	return "a reservation of " + r.Client.String()
}

// findForeignReservation returns a reservation for the MAC address of an interface that
// belongs to another owner.
func findForeignReservation(req request, nic interfaceRequest, states []kea.State) (kea.Reservation, bool) {
	for _, state := range states {
		for _, r := range state.Reservations {
			if r.Client == kea.MACIdentifier(nic.mac) && !req.owns(r.Owner) {
				return r, true
			}
		}
	}
	return kea.Reservation{}, false
}

func orNone(a netip.Addr) string {
	if !a.IsValid() {
		return "no address"
	}
	return a.String()
}
