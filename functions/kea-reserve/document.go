package main

import (
	"encoding/json"
	"errors"
	"fmt"
	"net/netip"
	"slices"
)

// fields is a JSON object whose values are kept as they came, so that a
// configuration loses nothing that this function does not know.
type fields map[string]json.RawMessage

// document is the configuration of a Kea server. Subnets are in it at two places:
// at its top, and within shared networks.
type document struct {
	source json.RawMessage
	hash   string
	dhcp4  fields
	shared []fields
	// lists are the subnets of dhcp4, and then those of each of shared.
	lists [][]fields
}

var errDocument = errors.New("read Kea's configuration: it is not of the form that Kea writes")

func parseDocument(source json.RawMessage) (*document, error) {
	d := &document{source: source}
	if json.Unmarshal(source, &d.dhcp4) != nil || d.dhcp4 == nil {
		return nil, errDocument
	}
	if !d.dhcp4.into("shared-networks", &d.shared) {
		return nil, errDocument
	}
	for _, owner := range append([]fields{d.dhcp4}, d.shared...) {
		var list []fields
		if !owner.into("subnet4", &list) {
			return nil, errDocument
		}
		d.lists = append(d.lists, list)
	}
	return d, nil
}

// into decodes one value, and leaves what v points to as it is where there is
// none. It reports whether the value is of v's type.
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

func (d *document) subnets() []subnet {
	var all []subnet
	for _, s := range slices.Concat(d.lists...) {
		var text string
		s.into("subnet", &text)
		if prefix, err := netip.ParsePrefix(text); err == nil {
			all = append(all, subnet{id: s.id(), prefix: prefix.Masked()})
		}
	}
	return all
}

func (d *document) reservations() []reservation {
	var all []reservation
	for _, s := range slices.Concat(d.lists...) {
		var hosts []host
		s.into("reservations", &hosts)
		for _, h := range hosts {
			all = append(all, h.decode(s.id()))
		}
	}
	return all
}

// with is the document after a change. A subnet that it makes has its classes by
// the name classKey.
func (d *document) with(c change, classKey string) (*document, error) {
	next, err := d.copy()
	if err != nil {
		return nil, err
	}
	if c.create != nil {
		made := fields{}
		for key, value := range c.create.encode(classKey) {
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

func (d *document) copy() (*document, error) {
	next, err := parseDocument(d.source)
	if err != nil {
		return nil, err
	}
	next.hash = d.hash
	return next, nil
}

// edit makes a change in the reservations of one subnet.
func edit(s fields, c change) error {
	id := s.id()
	gone, come := map[identifier]bool{}, []reservation{}
	for _, r := range append(c.remove, c.update...) {
		if r.subnet == id {
			gone[r.client] = true
		}
	}
	for _, r := range append(c.update, c.add...) {
		if r.subnet == id {
			come = append(come, r)
		}
	}
	if len(gone)+len(come) == 0 {
		return nil
	}
	var kept []json.RawMessage
	s.into("reservations", &kept)
	kept = slices.DeleteFunc(kept, func(raw json.RawMessage) bool {
		var h host
		return json.Unmarshal(raw, &h) == nil && gone[h.identifier()]
	})
	for _, r := range come {
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

// left are the identities of the subnets that were made for a NetworkNamespace, have
// no reservation in the document, and don't overlap keep.
func (d *document) left(network string, keep netip.Prefix) []uint32 {
	used := map[uint32]bool{}
	for _, r := range d.reservations() {
		used[r.subnet] = true
	}
	for _, s := range d.subnets() {
		used[s.id] = used[s.id] || s.prefix.Overlaps(keep)
	}
	var ids []uint32
	for _, s := range slices.Concat(d.lists...) {
		if uid := owner(s["user-context"]); uid != "" && uid == network && !used[s.id()] {
			ids = append(ids, s.id())
		}
	}
	return ids
}

// made reports whether this stack made the subnet of an identity.
func (d *document) made(id uint32) bool {
	return slices.ContainsFunc(slices.Concat(d.lists...), func(s fields) bool { return s.id() == id && owner(s["user-context"]) != "" })
}

// without is the document without some subnets.
func (d *document) without(ids []uint32) (*document, error) {
	next, err := d.copy()
	if err != nil {
		return nil, err
	}
	for i, list := range next.lists {
		next.lists[i] = slices.DeleteFunc(list, func(s fields) bool { return slices.Contains(ids, s.id()) })
	}
	return next, nil
}

// encode is the document as the server is to have it.
func (d *document) encode() (json.RawMessage, error) {
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
