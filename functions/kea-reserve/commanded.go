package main

import (
	"context"
	"encoding/json"
	"errors"
	"net/netip"
)

// commanded is a server with commands for reservations and subnets, which the
// hooks host_cmds and subnet_cmds give to Kea since 3.0. Each command is atomic:
// the server refuses a second reservation for a client or for an address.
type commanded struct {
	control *control
	has     map[string]bool
}

// addReservation is the command that refuses what somebody has already.
const addReservation = "reservation-add"

// everywhere has reservations looked up, written and deleted in the configuration
// in memory and in the database of hosts, if there is one.
const everywhere = "all"

func (s *commanded) Exclusive() bool { return false }

func (s *commanded) Look(ctx context.Context, network netip.Prefix, leases bool) (view, error) {
	v := view{canCreate: s.has["subnet4-add"]}
	subnets, err := s.subnets(ctx)
	if err != nil {
		return view{}, err
	}
	if v.subnet, v.found, err = resolve(network, subnets); err != nil || !v.found {
		return v, err
	}
	if v.held, err = s.reservations(ctx, v.subnet.id); err != nil {
		return view{}, err
	}
	if leases {
		v.leases, err = leasesOf(ctx, s.control, s.has, v.subnet.id)
	}
	return v, err
}

// reservations reads those of one subnet.
func (s *commanded) reservations(ctx context.Context, subnet uint32) ([]reservation, error) {
	var answer struct {
		Hosts []host `json:"hosts"`
	}
	arguments := map[string]any{"subnet-id": subnet, "operation-target": everywhere}
	if err := s.control.do(ctx, "reservation-get-all", arguments, &answer); err != nil && !isEmpty(err) {
		return nil, err
	}
	var held []reservation
	for _, h := range answer.Hosts {
		held = append(held, h.decode(subnet))
	}
	return held, nil
}

func (s *commanded) subnets(ctx context.Context) ([]subnet, error) {
	var answer struct {
		Subnets []struct {
			ID     uint32 `json:"id"`
			Subnet string `json:"subnet"`
		} `json:"subnets"`
	}
	if err := s.control.do(ctx, "subnet4-list", nil, &answer); err != nil && !isEmpty(err) {
		return nil, err
	}
	var subnets []subnet
	for _, a := range answer.Subnets {
		if prefix, err := netip.ParsePrefix(a.Subnet); err == nil {
			subnets = append(subnets, subnet{id: a.ID, prefix: prefix.Masked()})
		}
	}
	return subnets, nil
}

func (s *commanded) Find(ctx context.Context, macs []string) (view, error) {
	var v view
	for _, mac := range macs {
		var answer struct {
			Hosts []host `json:"hosts"`
		}
		arguments := map[string]any{"identifier-type": hwAddress, "identifier": mac}
		if err := s.control.do(ctx, "reservation-get-by-id", arguments, &answer); err != nil && !isEmpty(err) {
			return view{}, err
		}
		for _, h := range answer.Hosts {
			v.held = append(v.held, h.decode(h.SubnetID))
		}
	}
	return v, nil
}

// Change first takes away what is to go or to be another, so that the addresses
// are free for what comes. The server has a command for updating too, which
// deletes and adds as well, and is not there in every version.
func (s *commanded) Change(ctx context.Context, _ view, c change) error {
	if c.create != nil {
		if err := s.create(ctx, c); err != nil {
			return err
		}
	}
	for _, r := range append(c.remove, c.update...) {
		if err := s.remove(ctx, r); err != nil {
			return err
		}
	}
	for _, r := range append(c.update, c.add...) {
		arguments := map[string]any{"reservation": r.encode(), "operation-target": everywhere}
		err := s.control.do(ctx, addReservation, arguments, nil)
		written("add", err)
		if err != nil {
			return err
		}
	}
	return nil
}

func (s *commanded) remove(ctx context.Context, r reservation) error {
	arguments := map[string]any{
		"subnet-id": r.subnet, "identifier-type": r.client.kind, "identifier": r.client.value, "operation-target": everywhere,
	}
	err := s.control.do(ctx, "reservation-del", arguments, nil)
	if isEmpty(err) {
		return nil
	}
	written("remove", err)
	return err
}

func (s *commanded) create(ctx context.Context, c change) error {
	var err error
	for _, key := range c.classKeys() {
		arguments := map[string]any{"subnet4": []subnetJSON{c.create.encode(key)}}
		if err = s.control.do(ctx, "subnet4-add", arguments, nil); !errors.As(err, new(refused)) {
			break
		}
	}
	return err
}

// Made asks for the one subnet, or reads the whole configuration from a server without that
// command.
func (s *commanded) Made(ctx context.Context, v view) (bool, error) {
	if !s.has["subnet4-get"] {
		if !s.has["config-get"] {
			return false, nil
		}
		d, err := configOf(ctx, s.control)
		return err == nil && d.made(v.subnet.id), err
	}
	var answer struct {
		Subnets []struct {
			UserContext json.RawMessage `json:"user-context"`
		} `json:"subnet4"`
	}
	if err := s.control.do(ctx, "subnet4-get", map[string]any{"id": v.subnet.id}, &answer); err != nil && !isEmpty(err) {
		return false, err
	}
	return len(answer.Subnets) == 1 && owner(answer.Subnets[0].UserContext) != "", nil
}

// Retire reads the whole configuration, since no command lists subnets with their
// user-contexts. Reservations in a database of hosts are not in it.
func (s *commanded) Retire(ctx context.Context, network string, keep netip.Prefix) (bool, error) {
	if !s.has["config-get"] || !s.has["subnet4-del"] {
		return false, nil
	}
	d, err := configOf(ctx, s.control)
	if err != nil {
		return false, err
	}
	removed := false
	for _, id := range d.left(network, keep) {
		held, err := s.reservations(ctx, id)
		if err != nil {
			return removed, err
		}
		if len(held) > 0 {
			continue
		}
		if err := s.control.do(ctx, "subnet4-del", map[string]any{"id": id}, nil); err != nil && !isEmpty(err) {
			return removed, err
		}
		removed = true
	}
	return removed, nil
}

func (s *commanded) Persist(ctx context.Context) error {
	return s.control.do(ctx, "config-write", nil, nil)
}

// owner returns the UID of the NetworkNamespace that this stack made a subnet for, by the
// user-context of the subnet. It is empty for a subnet of others.
func owner(context json.RawMessage) string {
	var m map[string]any
	if json.Unmarshal(context, &m) != nil {
		return ""
	}
	uid, _ := m[ownerKey].(string)
	return uid
}

func isEmpty(err error) bool { return errors.Is(err, errEmpty) }
