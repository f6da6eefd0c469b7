package main

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"net/netip"
)

// rewritten is a server without commands for reservations, as all free Kea before
// 3.0 is. It is read and written as a whole configuration, so that of two who
// change it at the same time one undoes the other: change it under the lock only.
type rewritten struct {
	control *control
	has     map[string]bool
}

// errMoved says that a server was changed between looking and changing. The next
// delivery looks again.
var errMoved = errors.New("the server was changed by somebody else meanwhile")

func (s *rewritten) Exclusive() bool { return true }

func (s *rewritten) Look(ctx context.Context, network netip.Prefix, leases bool) (view, error) {
	d, err := configOf(ctx, s.control)
	if err != nil {
		return view{}, err
	}
	v := view{canCreate: true, document: d}
	if v.subnet, v.found, err = resolve(network, d.subnets()); err != nil || !v.found {
		return v, err
	}
	for _, r := range d.reservations() {
		if r.subnet == v.subnet.id {
			v.held = append(v.held, r)
		}
	}
	if leases {
		v.leases, err = leasesOf(ctx, s.control, s.has, v.subnet.id)
	}
	return v, err
}

func (s *rewritten) Find(ctx context.Context, macs []string) (view, error) {
	d, err := configOf(ctx, s.control)
	if err != nil {
		return view{}, err
	}
	v := view{document: d}
	for _, r := range d.reservations() {
		for _, mac := range macs {
			if r.client == (identifier{hwAddress, mac}) {
				v.held = append(v.held, r)
			}
		}
	}
	return v, nil
}

// configOf reads the configuration of a server.
func configOf(ctx context.Context, c *control) (*document, error) {
	var answer struct {
		Dhcp4 json.RawMessage `json:"Dhcp4"`
		// Hash is there since 2.4.
		Hash string `json:"hash"`
	}
	if err := c.do(ctx, "config-get", nil, &answer); err != nil {
		return nil, err
	}
	d, err := parseDocument(answer.Dhcp4)
	if err != nil {
		return nil, err
	}
	d.hash = answer.Hash
	return d, nil
}

func (s *rewritten) Change(ctx context.Context, v view, c change) error {
	var err error
	for _, key := range c.classKeys() {
		var next *document
		if next, err = v.document.with(c, key); err != nil {
			return err
		}
		if err = s.write(ctx, next); !errors.As(err, new(refused)) {
			break
		}
	}
	for range len(c.add) + len(c.update) {
		written("add", err)
	}
	for range c.remove {
		written("remove", err)
	}
	return err
}

// write gives the server a new configuration, after it has found it good, and
// unless somebody who does not know the lock has changed it since it was read.
func (s *rewritten) write(ctx context.Context, d *document) error {
	dhcp4, err := d.encode()
	if err != nil {
		return err
	}
	arguments := map[string]json.RawMessage{"Dhcp4": dhcp4}
	if err := s.control.do(ctx, "config-test", arguments, nil); err != nil {
		return err
	}
	if err := s.unchanged(ctx, d); err != nil {
		return err
	}
	return s.control.do(ctx, "config-set", arguments, nil)
}

func (s *rewritten) unchanged(ctx context.Context, d *document) error {
	if s.has["config-hash-get"] && d.hash != "" {
		var answer struct {
			Hash string `json:"hash"`
		}
		if err := s.control.do(ctx, "config-hash-get", nil, &answer); err != nil {
			return err
		}
		if answer.Hash != d.hash {
			return errMoved
		}
		return nil
	}
	now, err := configOf(ctx, s.control)
	if err != nil {
		return err
	}
	if !bytes.Equal(now.source, d.source) {
		return errMoved
	}
	return nil
}

func (s *rewritten) Retire(ctx context.Context, network string, keep netip.Prefix) (bool, error) {
	d, err := configOf(ctx, s.control)
	if err != nil {
		return false, err
	}
	left := d.left(network, keep)
	if len(left) == 0 {
		return false, nil
	}
	next, err := d.without(left)
	if err != nil {
		return false, err
	}
	return true, s.write(ctx, next)
}

// Made reads the configuration that the view has already.
func (s *rewritten) Made(_ context.Context, v view) (bool, error) {
	return v.document != nil && v.document.made(v.subnet.id), nil
}

func (s *rewritten) Persist(ctx context.Context) error {
	return s.control.do(ctx, "config-write", nil, nil)
}
