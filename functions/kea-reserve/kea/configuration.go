package kea

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net/netip"
	"slices"
	"sync"
)

// fields is a JSON object whose values stay as they came, so that a configuration keeps the
// settings that this package does not know.
type fields map[string]json.RawMessage

// Configuration is the configuration of a Kea server. It has subnets at its top level and in
// shared networks.
type Configuration struct {
	source json.RawMessage
	hash   string
	dhcp4  fields
	shared []fields
	// lists are the subnets of dhcp4, and then those of each shared network.
	lists [][]fields
}

var errConfiguration = errors.New("read Kea's configuration: it is not of the form that Kea writes")

// ParseConfiguration reads a configuration in the form that config-get returns.
func ParseConfiguration(source json.RawMessage) (*Configuration, error) {
	d := &Configuration{source: source}
	if json.Unmarshal(source, &d.dhcp4) != nil || d.dhcp4 == nil {
		return nil, errConfiguration
	}
	if !d.dhcp4.into("shared-networks", &d.shared) {
		return nil, errConfiguration
	}
	for _, owner := range append([]fields{d.dhcp4}, d.shared...) {
		var list []fields
		if !owner.into("subnet4", &list) {
			return nil, errConfiguration
		}
		d.lists = append(d.lists, list)
	}
	return d, nil
}

// into decodes one value into v, and leaves v unchanged if the key is missing. It reports
// whether the value has the type of v.
func (f fields) into(key string, v any) bool {
	raw, ok := f[key]
	return !ok || json.Unmarshal(raw, v) == nil
}

func (f fields) set(key string, v any) error {
	raw, err := json.Marshal(v)
	if err != nil {
		return fmt.Errorf("encode %s: %w", key, err)
	}
	f[key] = raw
	return nil
}

func (f fields) id() (id uint32) {
	f.into("id", &id)
	return id
}

// Subnets returns all subnets with a valid prefix.
func (d *Configuration) Subnets() []Subnet {
	var all []Subnet
	for i, list := range d.lists {
		var shared string
		if i > 0 {
			d.shared[i-1].into("name", &shared)
		}
		for _, s := range list {
			var text string
			s.into("subnet", &text)
			if prefix, err := netip.ParsePrefix(text); err == nil {
				all = append(all, Subnet{ID: s.id(), Prefix: prefix.Masked(), Shared: shared})
			}
		}
	}
	return all
}

// Reservations returns the reservations of all subnets.
func (d *Configuration) Reservations() []Reservation {
	var all []Reservation
	for _, s := range slices.Concat(d.lists...) {
		var hosts []host
		s.into("reservations", &hosts)
		for _, h := range hosts {
			all = append(all, h.decode(s.id()))
		}
	}
	return all
}

// apply returns the configuration after a change. classKey is the key under which a new subnet
// has its client classes.
func (d *Configuration) apply(c Change, classKey string) (*Configuration, error) {
	next, err := d.copy()
	if err != nil {
		return nil, err
	}
	if c.Create != nil {
		made := fields{}
		for key, value := range c.Create.encode(classKey) {
			if err := made.set(key, value); err != nil {
				return nil, err
			}
		}
		next.lists[0] = append(next.lists[0], made)
	}
	for _, s := range slices.Concat(next.lists...) {
		if err := edit(s, c); err != nil {
			return nil, err
		}
	}
	return next, nil
}

func (d *Configuration) copy() (*Configuration, error) {
	next, err := ParseConfiguration(d.source)
	if err != nil {
		return nil, err
	}
	next.hash = d.hash
	return next, nil
}

// edit changes the reservations of one subnet.
func edit(s fields, c Change) error {
	id := s.id()
	replaced, added := map[Identifier]bool{}, []Reservation{}
	for _, r := range append(c.Remove, c.Update...) {
		if r.Subnet == id {
			replaced[r.Client] = true
		}
	}
	for _, r := range append(c.Update, c.Add...) {
		if r.Subnet == id {
			added = append(added, r)
		}
	}
	if len(replaced)+len(added) == 0 {
		return nil
	}
	var kept []json.RawMessage
	s.into("reservations", &kept)
	kept = slices.DeleteFunc(kept, func(raw json.RawMessage) bool {
		var h host
		return json.Unmarshal(raw, &h) == nil && replaced[h.identifier()]
	})
	for _, r := range added {
		h := r.encode()
		h.SubnetID = 0 // says the place already
		raw, err := json.Marshal(h)
		if err != nil {
			return fmt.Errorf("encode a reservation: %w", err)
		}
		kept = append(kept, raw)
	}
	return s.set("reservations", kept)
}

// unusedSubnets returns the IDs of the subnets that were created for NetworkNamespaces, have
// no reservation in the configuration, and do not overlap keep.
func (d *Configuration) unusedSubnets(networks []string, keep netip.Prefix) []uint32 {
	used := map[uint32]bool{}
	for _, r := range d.Reservations() {
		used[r.Subnet] = true
	}
	for _, s := range d.Subnets() {
		used[s.ID] = used[s.ID] || s.Prefix.Overlaps(keep)
	}
	var ids []uint32
	for _, s := range slices.Concat(d.lists...) {
		if uid := subnetOwner(s["user-context"]); uid != "" && slices.Contains(networks, uid) && !used[s.id()] {
			ids = append(ids, s.id())
		}
	}
	return ids
}

// isOurs reports whether the stack created the subnet with an ID.
func (d *Configuration) isOurs(id uint32) bool {
	return slices.ContainsFunc(slices.Concat(d.lists...), func(s fields) bool { return s.id() == id && subnetOwner(s["user-context"]) != "" })
}

// withoutSubnets returns the configuration without some subnets.
func (d *Configuration) withoutSubnets(ids []uint32) (*Configuration, error) {
	next, err := d.copy()
	if err != nil {
		return nil, err
	}
	for i, list := range next.lists {
		next.lists[i] = slices.DeleteFunc(list, func(s fields) bool { return slices.Contains(ids, s.id()) })
	}
	return next, nil
}

// encode returns the configuration as JSON for config-set.
func (d *Configuration) encode() (json.RawMessage, error) {
	for i, owner := range append([]fields{d.dhcp4}, d.shared...) {
		if _, had := owner["subnet4"]; !had && len(d.lists[i]) == 0 {
			continue
		}
		if err := owner.set("subnet4", d.lists[i]); err != nil {
			return nil, err
		}
	}
	if len(d.shared) > 0 {
		if err := d.dhcp4.set("shared-networks", d.shared); err != nil {
			return nil, err
		}
	}
	return json.Marshal(d.dhcp4)
}

// ReadMarked reads from the configurations of all servers, with one request each, the reservations that
// the stack has made, and the UIDs of the NetworkNamespaces for which it has created subnets. It does not
// show reservations in a database of hosts. Any server that does not answer is an error.
func ReadMarked(ctx context.Context, clients []*Client) (made []Reservation, networks []string, err error) {
	configurations, errs := make([]*Configuration, len(clients)), make([]error, len(clients))
	var wait sync.WaitGroup
	for i, c := range clients {
		wait.Go(func() { configurations[i], errs[i] = readConfiguration(ctx, c) })
	}
	wait.Wait()
	for i, c := range configurations {
		if errs[i] != nil {
			return nil, nil, errs[i]
		}
		networks = append(networks, c.networks()...)
		for _, r := range c.Reservations() {
			if r.Owner.UID != "" {
				made = append(made, r)
			}
		}
	}
	slices.Sort(networks)
	return made, slices.Compact(networks), nil
}

// networks returns the UIDs of the NetworkNamespaces for which the stack has created subnets.
func (d *Configuration) networks() []string {
	var uids []string
	for _, s := range slices.Concat(d.lists...) {
		if uid := subnetOwner(s["user-context"]); uid != "" {
			uids = append(uids, uid)
		}
	}
	return uids
}

// readConfiguration reads the configuration of a server.
func readConfiguration(ctx context.Context, c *Client) (*Configuration, error) {
	var answer struct {
		Dhcp4 json.RawMessage `json:"Dhcp4"`
		// Hash exists since Kea 2.4.
		Hash string `json:"hash"`
	}
	if err := c.do(ctx, "config-get", nil, &answer); err != nil {
		return nil, err
	}
	d, err := ParseConfiguration(answer.Dhcp4)
	if err != nil {
		return nil, err
	}
	d.hash = answer.Hash
	return d, nil
}
