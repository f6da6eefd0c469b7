package main

import (
	"context"
	"fmt"
	"net/netip"
	"slices"
)

// server keeps reservations on one Kea server. There is one file for each way to
// do that. None of its methods tries anything twice.
type server interface {
	// Look reads the subnet that a network lies in with its reservations, and its
	// leases too if asked to. It returns a refusal where the server's subnets cut
	// the network into pieces.
	Look(ctx context.Context, network netip.Prefix, leases bool) (view, error)
	// Find reads the reservations of MAC addresses, in whatever subnet.
	Find(ctx context.Context, macs []string) (view, error)
	// Change makes a change to what a view of this server showed. An error says
	// nothing about what is done: look again.
	Change(ctx context.Context, v view, c change) error
	// Retire removes the subnets that were made for the NetworkNamespace with the UID
	// and that nothing is reserved in, but those that overlap keep. It reports whether
	// it has removed any.
	Retire(ctx context.Context, network string, keep netip.Prefix) (bool, error)
	// Made reports whether this stack made the subnet of a view of this server.
	Made(ctx context.Context, v view) (bool, error)
	// Persist makes the server keep what it has over a restart.
	Persist(ctx context.Context) error
	// Exclusive tells whether two changes at the same time may undo each other.
	Exclusive() bool
}

// connect finds out by which commands a server keeps reservations. A server that
// has the commands for it does so by them; any other is given a whole new
// configuration.
func connect(ctx context.Context, c *control) (server, error) {
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
	if missing("subnet4-list", addReservation, "reservation-del", "reservation-get-all", "reservation-get-by-id", "config-write") == "" {
		return &commanded{control: c, has: has}, nil
	}
	if lacks := missing("config-get", "config-test", "config-set", "config-write"); lacks != "" {
		return nil, fmt.Errorf("ask the %s Kea server: %w", c.role, unsupported{lacks})
	}
	return &rewritten{control: c, has: has}, nil
}

// leasesOf reads the leases of a subnet, from a server that can tell.
func leasesOf(ctx context.Context, c *control, has map[string]bool, subnet uint32) ([]lease, error) {
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
	var leases []lease
	for _, l := range answer.Leases {
		address, err := netip.ParseAddr(l.IPAddress)
		if err == nil && l.State != leaseReclaimed {
			leases = append(leases, lease{mac: canonicalMAC(l.HWAddress), address: address})
		}
	}
	return leases, nil
}
