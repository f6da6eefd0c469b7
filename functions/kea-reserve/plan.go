package main

import (
	"fmt"
	"net/netip"
	"slices"
	"strings"
)

// view is what one Kea server has for a network.
type view struct {
	// subnet is where the network lies, if found. Otherwise it can be made, if
	// canCreate.
	subnet    subnet
	found     bool
	canCreate bool
	held      []reservation
	leases    []lease
	// document is the configuration that a server without commands for
	// reservations was read with, for changing it.
	document *document
}

// change is what has to be done on one server.
type change struct {
	create              *blueprint
	add, update, remove []reservation
}

func (c change) empty() bool {
	return c.create == nil && len(c.add) == 0 && len(c.update) == 0 && len(c.remove) == 0
}

// refusal says why a wish cannot be granted until somebody changes something.
type refusal struct{ reason, message string }

func (r refusal) Error() string { return r.reason + ": " + r.message }

// reasonExhausted is the refusal that a release ends.
const reasonExhausted = "PoolExhausted"

// decision is the address of each interface of a wish, and what each server lacks
// for that.
type decision struct {
	addresses []netip.Addr
	changes   []change
}

// done tells whether no server lacks anything.
func (d decision) done() bool {
	return !slices.ContainsFunc(d.changes, func(c change) bool { return !c.empty() })
}

// decide grants a wish by what the servers have. An interface gets, in this order:
//
//	the address that it asks for, or else a refusal
//	the address that it has a reservation of on any server, or had one of
//	the address that it has a lease of
//	the first free one, from a place on that the holder's name determines
//
// Interfaces that ask for an address come first. Whatever a wish gives up, one of
// its own interfaces may have at once.
//
// Nobody else's reservation is ever touched: it is a refusal where it is for the
// same client, and its address is not free otherwise.
func decide(w wish, views []view) (decision, error) {
	if err := checkSubnets(w, views); err != nil {
		return decision{}, err
	}
	d := decision{addresses: make([]netip.Addr, len(w.interfaces)), changes: make([]change, len(views))}
	taken := occupied(w, views)
	for _, i := range w.order() {
		n := w.interfaces[i]
		if r, ok := foreign(w, n, views); ok {
			if r.mark.Name != "" {
				return decision{}, refusal{"DuplicateMACAddress", fmt.Sprintf(
					"MAC address %s of interface %s is the one of NetworkConfiguration %s in the same network: give the interface another, or delete the other one", n.mac, n.name, r.mark.Name)}
			}
			return decision{}, refusal{"ForeignReservation", fmt.Sprintf(
				"Kea has a reservation of %s for %s that this stack did not make: remove it, or set %q in its user-context to %s to hand it over",
				orNone(r.address), r.client, "vitistack.io/uid", w.uid)}
		}
		address, err := grant(w, n, views, taken)
		if err != nil {
			return decision{}, err
		}
		taken[address] = "interface " + n.name
		d.addresses[i] = address
	}
	for i, v := range views {
		d.changes[i] = lacks(w, v, views, d.addresses)
	}
	return d, nil
}

func checkSubnets(w wish, views []view) error {
	for _, v := range views {
		if !v.found && !v.canCreate {
			return refusal{"SubnetMissing", fmt.Sprintf(
				"Kea has no subnet that contains %s: add one, or load libdhcp_subnet_cmds.so so that it can be made", w.prefix)}
		}
	}
	return nil
}

// grant finds the address of one interface.
func grant(w wish, n need, views []view, taken map[netip.Addr]string) (netip.Addr, error) {
	if n.requested.IsValid() {
		if !w.usable(n.requested) {
			return netip.Addr{}, refusal{"AddressOutsidePool", fmt.Sprintf(
				"interface %s asks for %s, which is no usable address of %s: ask for another, or for none", n.name, n.requested, w.prefix)}
		}
		if holder, ok := taken[n.requested]; ok && !reserved(w, n, n.requested, views) {
			return netip.Addr{}, refusal{"AddressTaken", fmt.Sprintf(
				"interface %s asks for %s, which has %s: ask for another, or for none", n.name, n.requested, holder)}
		}
		return n.requested, nil
	}
	for _, candidate := range candidates(w, n, views) {
		if _, ok := taken[candidate]; w.usable(candidate) && (!ok || reserved(w, n, candidate, views)) {
			return candidate, nil
		}
	}
	address, ok := pick(w.prefix, w.uid+"/"+n.name, func(a netip.Addr) bool {
		_, held := taken[a]
		return !held && !w.kept[a] && w.usable(a)
	})
	if !ok {
		return netip.Addr{}, refusal{reasonExhausted, fmt.Sprintf("%s has no free address: release one, or use a larger network", w.prefix)}
	}
	return address, nil
}

// candidates are the addresses that an interface has already, the best first.
func candidates(w wish, n need, views []view) []netip.Addr {
	var own, leased []netip.Addr
	for _, v := range views {
		for _, r := range v.held {
			if w.mine(r.mark) && r.client.value == n.mac && r.address.IsValid() {
				own = append(own, r.address)
			}
		}
		for _, l := range v.leases {
			if l.mac == n.mac && !w.kept[l.address] {
				leased = append(leased, l.address)
			}
		}
	}
	if n.had.IsValid() && (len(own) == 0 || slices.Contains(own, n.had)) {
		own = slices.Insert(own, 0, n.had)
	}
	return append(own, leased...)
}

// reserved tells whether an interface has the reservation of an address, and
// nobody else has one too. Leases that others have of it end by themselves.
func reserved(w wish, n need, address netip.Addr, views []view) bool {
	own := false
	for _, v := range views {
		for _, r := range v.held {
			if r.address != address || w.givesUp(r) {
				continue
			}
			if !w.mine(r.mark) || r.client.value != n.mac {
				return false
			}
			own = true
		}
	}
	return own
}

// occupied are the addresses that somebody has, by what has them, without those
// that the wish gives up, or that its own interfaces have leases of. A lease that one
// of them had under an earlier MAC address ends by itself, and is in the way only of
// an interface that may as well have another address.
func occupied(w wish, views []view) map[netip.Addr]string {
	own, asked, earlier := map[string]bool{}, map[netip.Addr]bool{}, map[lease]bool{}
	for _, n := range w.interfaces {
		own[n.mac], asked[n.requested] = true, true
	}
	for _, v := range views {
		for _, r := range v.held {
			if w.givesUp(r) && asked[r.address] {
				earlier[lease{r.client.value, r.address}] = true
			}
		}
	}
	taken := map[netip.Addr]string{}
	for _, v := range views {
		for _, l := range v.leases {
			if !own[l.mac] && !earlier[l] {
				taken[l.address] = "a lease of " + l.mac
			}
		}
	}
	for _, v := range views {
		for _, r := range v.held {
			if r.address.IsValid() && !w.givesUp(r) {
				taken[r.address] = holderOf(r)
			}
		}
	}
	return taken
}

func holderOf(r reservation) string {
	if r.mark.Name != "" {
		return "NetworkConfiguration " + r.mark.Name
	}
	return "a reservation of " + r.client.String()
}

// foreign is somebody else's reservation for the client of an interface.
func foreign(w wish, n need, views []view) (reservation, bool) {
	for _, v := range views {
		for _, r := range v.held {
			if r.client == (identifier{hwAddress, n.mac}) && !w.mine(r.mark) {
				return r, true
			}
		}
	}
	return reservation{}, false
}

// lacks is what one server has to be changed in.
func lacks(w wish, v view, views []view, addresses []netip.Addr) change {
	var c change
	id := v.subnet.id
	if !v.found {
		id = identityFor(w.prefix, views)
		c.create = &blueprint{
			subnet: subnet{id: id, prefix: w.prefix}, routers: w.routers(),
			dns: strings.Join(w.dns, ", "), classes: w.classes, network: w.network,
		}
	}
	wanted := map[string]reservation{}
	for i, n := range w.interfaces {
		wanted[n.mac] = w.reservation(n, id, addresses[i])
	}
	right, wrong := map[string]bool{}, map[string]bool{}
	for _, r := range v.held {
		if !w.mine(r.mark) {
			continue
		}
		want, ok := wanted[r.client.value]
		switch {
		case !ok:
			c.remove = append(c.remove, r)
		case r == want:
			right[r.client.value] = true
		default:
			wrong[r.client.value] = true
		}
	}
	for _, n := range w.interfaces {
		switch {
		case wrong[n.mac]:
			c.update = append(c.update, wanted[n.mac])
		case !right[n.mac]:
			c.add = append(c.add, wanted[n.mac])
		}
	}
	return c
}

// identityFor is the identity of a subnet that has to be made: the one that it has
// on the other server, since two that serve leases for each other must agree.
func identityFor(network netip.Prefix, views []view) uint32 {
	for _, v := range views {
		if v.found && v.subnet.prefix == network {
			return v.subnet.id
		}
	}
	return subnetID(network)
}

func orNone(a netip.Addr) string {
	if !a.IsValid() {
		return "no address"
	}
	return a.String()
}
