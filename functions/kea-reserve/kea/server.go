// Package kea reads and writes reservations and subnets of ISC Kea DHCP servers by their control API.
package kea

import (
	"context"
	"fmt"
	"net/netip"
	"slices"
)

// Server reads and changes the reservations of one Kea server. hostCommands and configFile
// implement it. No method retries.
type Server interface {
	// ReadSubnet reads the subnet that contains a network, with its reservations and, if leases is
	// true, its leases. It returns a UserError if the server has subnets that cover only parts
	// of the network.
	ReadSubnet(ctx context.Context, network netip.Prefix, leases bool) (State, error)
	// FindReservations reads the reservations of MAC addresses in all subnets.
	FindReservations(ctx context.Context, macs []string) (State, error)
	// Change applies a change that was planned for a State of this server. After an error, a part of
	// the change may be applied: read again.
	Change(ctx context.Context, state State, c Change) error
	// ReleaseLeases deletes the leases of reservations that are about to be removed because no machine uses their
	// addresses, so that other machines can get them at once.
	ReleaseLeases(ctx context.Context, released []Reservation) error
	// RemoveUnusedSubnets removes the empty subnets that were created for the NetworkNamespaces with the UIDs
	// networks, except subnets that overlap keep. It reports whether it has removed any.
	RemoveUnusedSubnets(ctx context.Context, networks []string, keep netip.Prefix) (bool, error)
	// IsManaged reports whether this stack created the subnet of a State of this server.
	IsManaged(ctx context.Context, state State) (bool, error)
	// Persist writes the configuration file of the server, so that the changes survive a
	// restart.
	Persist(ctx context.Context) error
	// NeedsLock reports whether concurrent changes can overwrite each other, so that Change
	// needs the Lock.
	NeedsLock() bool
}

// State has what one Kea server has for a network: a subnet, its reservations and its leases.
type State struct {
	// Subnet contains the network if SubnetFound. Otherwise it can be created if
	// CanCreateSubnet.
	Subnet          Subnet
	SubnetFound     bool
	CanCreateSubnet bool
	Reservations    []Reservation
	Leases          []Lease
	// config is the configuration of a server without commands for reservations. A Change edits
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

// connect asks a server for its commands and returns hostCommands if it has those for
// reservations and subnets, and configFile otherwise.
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
