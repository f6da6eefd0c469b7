package main

import (
	"fmt"
	"net/netip"
	"slices"
	"strings"
)

// View is what one Kea server has for a network.
type View struct {
	// Subnet is where the network lies, if found. Otherwise it can be made, if
	// canCreate.
	Subnet          Subnet
	SubnetFound     bool
	CanCreateSubnet bool
	Reservations    []Reservation
	Leases          []Lease
	// config is the configuration that a server without commands for
	// reservations was read with, for changing it.
	config *configuration
}

// Change is what has to be done on one server.
type Change struct {
	Create              *SubnetSpec
	Add, Update, Remove []Reservation
}

func (c Change) IsEmpty() bool {
	return c.Create == nil && len(c.Add) == 0 && len(c.Update) == 0 && len(c.Remove) == 0
}

// refusal says why a wish cannot be granted until somebody changes something.
type refusal struct{ reason, message string }

func (r refusal) Error() string { return r.reason + ": " + r.message }

// reasonExhausted is the refusal that a release ends.
const reasonExhausted = "PoolExhausted"

// plan is the address of each interface of a wish, and what each server lacks
// for that.
type plan struct {
	addresses []netip.Addr
	changes   []Change
}

// isComplete tells whether no server lacks anything.
func (d plan) isComplete() bool {
	return !slices.ContainsFunc(d.changes, func(c Change) bool { return !c.IsEmpty() })
}

// makePlan grants a wish by what the servers have. An interface gets, in this order:
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
func makePlan(w request, views []View) (plan, error) {
	if err := checkSubnets(w, views); err != nil {
		return plan{}, err
	}
	d := plan{addresses: make([]netip.Addr, len(w.interfaces)), changes: make([]Change, len(views))}
	taken := takenAddresses(w, views)
	for _, i := range w.byRequestedAddress() {
		n := w.interfaces[i]
		if r, ok := findForeignReservation(w, n, views); ok {
			if r.Owner.Name != "" {
				return plan{}, refusal{"DuplicateMACAddress", fmt.Sprintf(
					"MAC address %s of interface %s is the one of NetworkConfiguration %s in the same network: give the interface another, or delete the other one", n.mac, n.name, r.Owner.Name)}
			}
			return plan{}, refusal{"ForeignReservation", fmt.Sprintf(
				"Kea has a reservation of %s for %s that this stack did not make: remove it, or set %q in its user-context to %s to hand it over",
				orNone(r.Address), r.Client, "vitistack.io/uid", w.uid)}
		}
		address, err := chooseAddress(w, n, views, taken)
		if err != nil {
			return plan{}, err
		}
		taken[address] = "interface " + n.name
		d.addresses[i] = address
	}
	for i, v := range views {
		d.changes[i] = missingChange(w, v, views, d.addresses)
	}
	return d, nil
}

func checkSubnets(w request, views []View) error {
	for _, v := range views {
		if !v.SubnetFound && !v.CanCreateSubnet {
			return refusal{"SubnetMissing", fmt.Sprintf(
				"Kea has no subnet that contains %s: add one, or load libdhcp_subnet_cmds.so so that it can be made", w.prefix)}
		}
	}
	return nil
}

// chooseAddress finds the address of one interface.
func chooseAddress(w request, n interfaceRequest, views []View, taken map[netip.Addr]string) (netip.Addr, error) {
	if n.requested.IsValid() {
		if !w.isUsable(n.requested) {
			return netip.Addr{}, refusal{"AddressOutsidePool", fmt.Sprintf(
				"interface %s asks for %s, which is no usable address of %s: ask for another, or for none", n.name, n.requested, w.prefix)}
		}
		if holder, ok := taken[n.requested]; ok && !isReservedFor(w, n, n.requested, views) {
			return netip.Addr{}, refusal{"AddressTaken", fmt.Sprintf(
				"interface %s asks for %s, which has %s: ask for another, or for none", n.name, n.requested, holder)}
		}
		return n.requested, nil
	}
	for _, candidate := range currentAddresses(w, n, views) {
		if _, ok := taken[candidate]; w.isUsable(candidate) && (!ok || isReservedFor(w, n, candidate, views)) {
			return candidate, nil
		}
	}
	address, ok := pick(w.prefix, w.uid+"/"+n.name, func(a netip.Addr) bool {
		_, held := taken[a]
		return !held && !w.reserved[a] && w.isUsable(a)
	})
	if !ok {
		return netip.Addr{}, refusal{reasonExhausted, fmt.Sprintf("%s has no free address: release one, or use a larger network", w.prefix)}
	}
	return address, nil
}

// currentAddresses are the addresses that an interface has already, the best first.
func currentAddresses(w request, n interfaceRequest, views []View) []netip.Addr {
	var own, leased []netip.Addr
	for _, v := range views {
		for _, r := range v.Reservations {
			if w.owns(r.Owner) && r.Client.Value == n.mac && r.Address.IsValid() {
				own = append(own, r.Address)
			}
		}
		for _, l := range v.Leases {
			if l.MAC == n.mac && !w.reserved[l.Address] {
				leased = append(leased, l.Address)
			}
		}
	}
	if n.current.IsValid() && (len(own) == 0 || slices.Contains(own, n.current)) {
		own = slices.Insert(own, 0, n.current)
	}
	return append(own, leased...)
}

// isReservedFor tells whether an interface has the reservation of an address, and
// nobody else has one too. Leases that others have of it end by themselves.
func isReservedFor(w request, n interfaceRequest, address netip.Addr, views []View) bool {
	own := false
	for _, v := range views {
		for _, r := range v.Reservations {
			if r.Address != address || w.isObsolete(r) {
				continue
			}
			if !w.owns(r.Owner) || r.Client.Value != n.mac {
				return false
			}
			own = true
		}
	}
	return own
}

// takenAddresses are the addresses that somebody has, by what has them, without those
// that the wish gives up, or that its own interfaces have leases of. A lease that one
// of them had under an earlier MAC address ends by itself, and is in the way only of
// an interface that may as well have another address.
func takenAddresses(w request, views []View) map[netip.Addr]string {
	own, asked, earlier := map[string]bool{}, map[netip.Addr]bool{}, map[Lease]bool{}
	for _, n := range w.interfaces {
		own[n.mac], asked[n.requested] = true, true
	}
	for _, v := range views {
		for _, r := range v.Reservations {
			if w.isObsolete(r) && asked[r.Address] {
				earlier[Lease{r.Client.Value, r.Address}] = true
			}
		}
	}
	taken := map[netip.Addr]string{}
	for _, v := range views {
		for _, l := range v.Leases {
			if !own[l.MAC] && !earlier[l] {
				taken[l.Address] = "a lease of " + l.MAC
			}
		}
	}
	for _, v := range views {
		for _, r := range v.Reservations {
			if r.Address.IsValid() && !w.isObsolete(r) {
				taken[r.Address] = holderOf(r)
			}
		}
	}
	return taken
}

func holderOf(r Reservation) string {
	if r.Owner.Name != "" {
		return "NetworkConfiguration " + r.Owner.Name
	}
	return "a reservation of " + r.Client.String()
}

// findForeignReservation is somebody else's reservation for the client of an interface.
func findForeignReservation(w request, n interfaceRequest, views []View) (Reservation, bool) {
	for _, v := range views {
		for _, r := range v.Reservations {
			if r.Client == (Identifier{HWAddress, n.mac}) && !w.owns(r.Owner) {
				return r, true
			}
		}
	}
	return Reservation{}, false
}

// missingChange is what one server has to be changed in.
func missingChange(w request, v View, views []View, addresses []netip.Addr) Change {
	var c Change
	id := v.Subnet.ID
	if !v.SubnetFound {
		id = subnetIDFor(w.prefix, views)
		c.Create = &SubnetSpec{
			Subnet: Subnet{ID: id, Prefix: w.prefix}, Routers: w.routers(),
			DNS: strings.Join(w.dns, ", "), Classes: w.classes, Network: w.network,
		}
	}
	wanted := map[string]Reservation{}
	for i, n := range w.interfaces {
		wanted[n.mac] = w.reservation(n, id, addresses[i])
	}
	right, wrong := map[string]bool{}, map[string]bool{}
	for _, r := range v.Reservations {
		if !w.owns(r.Owner) {
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
	for _, n := range w.interfaces {
		switch {
		case wrong[n.mac]:
			c.Update = append(c.Update, wanted[n.mac])
		case !right[n.mac]:
			c.Add = append(c.Add, wanted[n.mac])
		}
	}
	return c
}

// subnetIDFor is the identity of a subnet that has to be made: the one that it has
// on the other server, since two that serve leases for each other must agree.
func subnetIDFor(network netip.Prefix, views []View) uint32 {
	for _, v := range views {
		if v.SubnetFound && v.Subnet.Prefix == network {
			return v.Subnet.ID
		}
	}
	return SubnetID(network)
}

func orNone(a netip.Addr) string {
	if !a.IsValid() {
		return "no address"
	}
	return a.String()
}
