package kea

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"net/netip"
)

// configFile is a server without commands for reservations, as every free Kea before 3.0. It
// is read and written as a whole configuration, so two concurrent changes would lose one
// of them: change it only while holding the Lock.
type configFile struct {
	client *Client
	has    map[string]bool
}

// ErrChanged says that another client changed a server between ReadSubnet and Change. The next
// delivery looks again.
var ErrChanged = errors.New("another client changed the configuration of the server meanwhile")

func (s *configFile) NeedsLock() bool { return true }

func (s *configFile) ReadSubnet(ctx context.Context, network netip.Prefix, leases bool) (State, error) {
	d, err := readConfiguration(ctx, s.client)
	if err != nil {
		return State{}, err
	}
	state := State{CanCreateSubnet: true, config: d}
	if state.Subnet, state.SubnetFound, err = findSubnet(network, d.Subnets()); err != nil || !state.SubnetFound {
		return state, err
	}
	for _, r := range d.Reservations() {
		if r.Subnet == state.Subnet.ID {
			state.Reservations = append(state.Reservations, r)
		}
	}
	if leases {
		state.Leases, err = leasesOf(ctx, s.client, s.has, state.Subnet.ID)
	}
	return state, err
}

func (s *configFile) FindReservations(ctx context.Context, macs []string) (State, error) {
	d, err := readConfiguration(ctx, s.client)
	if err != nil {
		return State{}, err
	}
	state := State{config: d}
	for _, r := range d.Reservations() {
		for _, mac := range macs {
			if r.Client == (Identifier{hwAddress, mac}) {
				state.Reservations = append(state.Reservations, r)
			}
		}
	}
	return state, nil
}

func (s *configFile) Change(ctx context.Context, state State, c Change) error {
	var err error
	for _, key := range c.classKeys() {
		var next *Configuration
		if next, err = state.config.apply(c, key); err != nil {
			return err
		}
		if err = s.write(ctx, next); !errors.As(err, new(CommandError)) {
			break
		}
	}
	for range len(c.Add) + len(c.Update) {
		countReservation("add", err)
	}
	for range c.Remove {
		countReservation("remove", err)
	}
	return err
}

func (s *configFile) ReleaseLeases(ctx context.Context, released []Reservation) error {
	return releaseLeases(ctx, s.client, s.has, released)
}

// write sets a new configuration after the server has tested it. It returns ErrChanged if a
// client without the Lock has changed the configuration since it was read.
func (s *configFile) write(ctx context.Context, d *Configuration) error {
	dhcp4, err := d.encode()
	if err != nil {
		return err
	}
	arguments := map[string]json.RawMessage{"Dhcp4": dhcp4}
	if err := s.client.do(ctx, "config-test", arguments, nil); err != nil {
		return err
	}
	if err := s.unchanged(ctx, d); err != nil {
		return err
	}
	return s.client.do(ctx, "config-set", arguments, nil)
}

func (s *configFile) unchanged(ctx context.Context, d *Configuration) error {
	if s.has["config-hash-get"] && d.hash != "" {
		var answer struct {
			Hash string `json:"hash"`
		}
		if err := s.client.do(ctx, "config-hash-get", nil, &answer); err != nil {
			return err
		}
		if answer.Hash != d.hash {
			return ErrChanged
		}
		return nil
	}
	now, err := readConfiguration(ctx, s.client)
	if err != nil {
		return err
	}
	if !bytes.Equal(now.source, d.source) {
		return ErrChanged
	}
	return nil
}

func (s *configFile) RemoveUnusedSubnets(ctx context.Context, networks []string, keep netip.Prefix) (bool, error) {
	d, err := readConfiguration(ctx, s.client)
	if err != nil {
		return false, err
	}
	left := d.unusedSubnets(networks, keep)
	if len(left) == 0 {
		return false, nil
	}
	next, err := d.withoutSubnets(left)
	if err != nil {
		return false, err
	}
	return true, s.write(ctx, next)
}

// IsManaged looks into the configuration that the State already has.
func (s *configFile) IsManaged(_ context.Context, state State) (bool, error) {
	return state.config != nil && state.config.isOurs(state.Subnet.ID), nil
}

func (s *configFile) Persist(ctx context.Context) error {
	return s.client.do(ctx, "config-write", nil, nil)
}
