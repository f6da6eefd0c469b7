package main

import (
	"context"
	"fmt"
	"net/netip"
	"slices"
)

// Server keeps reservations on one Kea server. There is one file for each way to
// do that. None of its methods tries anything twice.
type Server interface {
	// Look reads the subnet that a network lies in with its reservations, and its
	// leases too if asked to. It returns a refusal where the server's subnets cut
	// the network into pieces.
	Look(ctx context.Context, network netip.Prefix, leases bool) (View, error)
	// Find reads the reservations of MAC addresses, in whatever subnet.
	Find(ctx context.Context, macs []string) (View, error)
	// Change makes a change to what a view of this server showed. An error says
	// nothing about what is done: look again.
	Change(ctx context.Context, v View, c Change) error
	// Retire removes the subnets that were made for the NetworkNamespace with the UID
	// and that nothing is reserved in, but those that overlap keep. It reports whether
	// it has removed any.
	Retire(ctx context.Context, network string, keep netip.Prefix) (bool, error)
	// Made reports whether this stack made the subnet of a view of this server.
	Made(ctx context.Context, v View) (bool, error)
	// Persist makes the server keep what it has over a restart.
	Persist(ctx context.Context) error
	// Exclusive tells whether two changes at the same time may undo each other.
	Exclusive() bool
}

// View is what one Kea server has for a network.
type View struct {
	// Subnet contains the network if SubnetFound. Otherwise it can be created if
	// CanCreateSubnet.
	Subnet          Subnet
	SubnetFound     bool
	CanCreateSubnet bool
	Reservations    []Reservation
	Leases          []Lease
	// config is what a server without commands for reservations was read with. A Change edits
	// it.
	config *Configuration
}

// Change is what has to be changed on one server.
type Change struct {
	Create              *SubnetSpec
	Add, Update, Remove []Reservation
}

// IsEmpty reports whether there is nothing to change.
func (c Change) IsEmpty() bool {
	return c.Create == nil && len(c.Add) == 0 && len(c.Update) == 0 && len(c.Remove) == 0
}

// connect finds out by which commands a server keeps reservations. A server that
// has the commands for it does so by them; any other is given a whole new
// configuration.
func connect(ctx context.Context, c *Client) (Server, error) {
	has, err := c.commands(ctx)
	if err != nil {
		return nil, err
	}
	missing := func(names ...string) string {
		i := slices.IndexFunc(names, func(name string) bool { return !has[name] })
		if i < 0 {
			return ""
		}
		return names[i]
	}
	if missing("subnet4-list", addReservation, removeReservation, "reservation-get-all", "reservation-get-by-id", "config-write") == "" {
		return &hostCommands{client: c, has: has}, nil
	}
	if lacks := missing("config-get", "config-test", "config-set", "config-write"); lacks != "" {
		return nil, fmt.Errorf("ask the %s Kea server: %w", c.Role, unsupportedError{lacks})
	}
	return &configFile{client: c, has: has}, nil
}

// leasesOf reads the leases of a subnet, from a server that can tell.
func leasesOf(ctx context.Context, c *Client, has map[string]bool, subnet uint32) ([]Lease, error) {
	if !has["lease4-get-all"] {
		return nil, nil
	}
	var answer struct {
		Leases []leaseJSON `json:"leases"`
	}
	err := c.do(ctx, "lease4-get-all", map[string]any{"subnets": []uint32{subnet}}, &answer)
	if err != nil && !isEmpty(err) {
		return nil, err
	}
	slices.SortStableFunc(answer.Leases, func(a, b leaseJSON) int { return int(b.LastTransaction - a.LastTransaction) })
	var leases []Lease
	for _, l := range answer.Leases {
		address, err := netip.ParseAddr(l.IPAddress)
		if err == nil && l.State != leaseReclaimed {
			leases = append(leases, Lease{MAC: CanonicalMAC(l.HWAddress), Address: address})
		}
	}
	return leases, nil
}
