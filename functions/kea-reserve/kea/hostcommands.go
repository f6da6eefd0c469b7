package kea

import (
	"context"
	"encoding/json"
	"errors"
	"net/netip"
	"reflect"
)

// hostCommands is a server with commands for reservations and subnets, which the hooks
// host_cmds and subnet_cmds provide since Kea 3.0. Each command is atomic: the server refuses
// a second reservation for a client or an address.
type hostCommands struct {
	client *Client
	has    map[string]bool
}

// Commands of the hook host_cmds. reservation-add refuses a client and an address that have a
// reservation.
const (
	addReservation    = "reservation-add"
	removeReservation = "reservation-del"
)

// everywhere has a command read and write both the configuration in memory and the database of
// hosts, if there is one.
const everywhere = "all"

func (s *hostCommands) NeedsLock() bool { return false }

func (s *hostCommands) ReadSubnet(ctx context.Context, network netip.Prefix, leases bool) (State, error) {
	state := State{CanCreateSubnet: s.has["subnet4-add"]}
	subnets, err := s.subnets(ctx)
	if err != nil {
		return State{}, err
	}
	if state.Subnet, state.SubnetFound, err = findSubnet(network, subnets); err != nil || !state.SubnetFound {
		return state, err
	}
	if state.Reservations, err = s.reservations(ctx, state.Subnet.ID); err != nil {
		return State{}, err
	}
	if leases {
		state.Leases, err = leasesOf(ctx, s.client, s.has, state.Subnet.ID)
	}
	return state, err
}

// reservations reads the reservations of one subnet.
func (s *hostCommands) reservations(ctx context.Context, subnet uint32) ([]Reservation, error) {
	var answer struct {
		Hosts []host `json:"hosts"`
	}
	arguments := map[string]any{"subnet-id": subnet, "operation-target": everywhere}
	if err := s.client.do(ctx, "reservation-get-all", arguments, &answer); err != nil && !isEmpty(err) {
		return nil, err
	}
	var held []Reservation
	for _, h := range answer.Hosts {
		held = append(held, h.decode(subnet))
	}
	return held, nil
}

func (s *hostCommands) subnets(ctx context.Context) ([]Subnet, error) {
	var answer struct {
		Subnets []struct {
			ID     uint32 `json:"id"`
			Subnet string `json:"subnet"`
			Shared string `json:"shared-network-name"`
		} `json:"subnets"`
	}
	if err := s.client.do(ctx, "subnet4-list", nil, &answer); err != nil && !isEmpty(err) {
		return nil, err
	}
	var subnets []Subnet
	for _, a := range answer.Subnets {
		if prefix, err := netip.ParsePrefix(a.Subnet); err == nil {
			subnets = append(subnets, Subnet{ID: a.ID, Prefix: prefix.Masked(), Shared: a.Shared})
		}
	}
	return subnets, nil
}

func (s *hostCommands) FindReservations(ctx context.Context, macs []string) (State, error) {
	var state State
	for _, mac := range macs {
		var answer struct {
			Hosts []host `json:"hosts"`
		}
		arguments := map[string]any{"identifier-type": hwAddress, "identifier": mac}
		if err := s.client.do(ctx, "reservation-get-by-id", arguments, &answer); err != nil && !isEmpty(err) {
			return State{}, err
		}
		for _, h := range answer.Hosts {
			state.Reservations = append(state.Reservations, h.decode(h.SubnetID))
		}
	}
	return state, nil
}

// Change first removes what has to be removed or updated, so that the addresses are free.
// Kea's own command for an update does the same, and not every version has it.
func (s *hostCommands) Change(ctx context.Context, _ State, c Change) error {
	if c.Create != nil {
		if err := s.create(ctx, c); err != nil {
			return err
		}
	}
	for _, r := range append(c.Remove, c.Update...) {
		if err := s.remove(ctx, r); err != nil {
			return err
		}
	}
	for _, r := range append(c.Update, c.Add...) {
		arguments := map[string]any{"reservation": r.encode(), "operation-target": everywhere}
		err := s.client.do(ctx, addReservation, arguments, nil)
		countReservation("add", err)
		if err != nil {
			return err
		}
	}
	return nil
}

func (s *hostCommands) remove(ctx context.Context, r Reservation) error {
	err := s.client.do(ctx, removeReservation, r.removal(), nil)
	if isEmpty(err) {
		return nil
	}
	countReservation("remove", err)
	return err
}

func (s *hostCommands) ReleaseLeases(ctx context.Context, released []Reservation) error {
	return releaseLeases(ctx, s.client, s.has, released)
}

func (s *hostCommands) create(ctx context.Context, c Change) error {
	var err error
	for _, key := range c.classKeys() {
		arguments := map[string]any{"subnet4": []subnetJSON{c.Create.encode(key)}}
		if err = s.client.do(ctx, "subnet4-add", arguments, nil); !errors.As(err, new(CommandError)) {
			break
		}
	}
	return err
}

// IsManaged asks for the one subnet, or reads the whole configuration if the server lacks that
// command.
func (s *hostCommands) IsManaged(ctx context.Context, state State) (bool, error) {
	if !s.has["subnet4-get"] {
		if !s.has["config-get"] {
			return false, nil
		}
		d, err := readConfiguration(ctx, s.client)
		return err == nil && d.isOurs(state.Subnet.ID), err
	}
	var answer struct {
		Subnets []struct {
			UserContext json.RawMessage `json:"user-context"`
		} `json:"subnet4"`
	}
	if err := s.client.do(ctx, "subnet4-get", map[string]any{"id": state.Subnet.ID}, &answer); err != nil && !isEmpty(err) {
		return false, err
	}
	return len(answer.Subnets) == 1 && subnetOwner(answer.Subnets[0].UserContext) != "", nil
}

// RemoveUnusedSubnets reads the whole configuration, because no command lists subnets with their
// user-contexts. A subnet with reservations in a database of hosts is not empty.
func (s *hostCommands) RemoveUnusedSubnets(ctx context.Context, networks []string, keep netip.Prefix) (bool, error) {
	if !s.has["config-get"] || !s.has["subnet4-del"] {
		return false, nil
	}
	d, err := readConfiguration(ctx, s.client)
	if err != nil {
		return false, err
	}
	removed := false
	for _, id := range d.unusedSubnets(networks, keep) {
		held, err := s.reservations(ctx, id)
		if err != nil {
			return removed, err
		}
		if len(held) > 0 {
			continue
		}
		if err := s.client.do(ctx, "subnet4-del", map[string]any{"id": id}, nil); err != nil && !isEmpty(err) {
			return removed, err
		}
		removed = true
	}
	return removed, nil
}

func (s *hostCommands) Persist(ctx context.Context) error {
	return s.client.do(ctx, "config-write", nil, nil)
}

// IsFinal reports whether a server that refused a Change will refuse it again, because it
// still lacks what was tried. Otherwise another client changed the server meanwhile.
func (e CommandError) IsFinal(tried, remaining Change) bool {
	if e.Command == addReservation {
		tried.Create = nil // the subnet exists by then
	}
	return reflect.DeepEqual(tried, remaining)
}
