package main

import (
	"context"
	"errors"
	"fmt"
	"net/netip"
	"regexp"
	"strings"

	"github.com/vitistack/stack/tests/sim/kubevirt"
	"github.com/vitistack/stack/tests/sim/talos"
)

// guests creates a node for each virtual machine that boots Talos Linux. Other guests run nothing.
type guests struct{ fleet *talos.Fleet }

// talosImage matches the address of a disk image or an installer of the image factory.
var talosImage = regexp.MustCompile(`/image/([0-9a-f]+)/(v[0-9]+\.[0-9]+\.[0-9]+)/([a-z]+)-(?:amd64|arm64)\.(raw\.xz|raw\.zst|qcow2|iso)$`)

// PowerOn implements kubevirt.Guests. A node without an address does not listen, like a real one. The address of the platform
// comes first. A node that restarts without one, because it has taken its configuration from a CD that is gone, has the address
// of its configuration.
func (g guests) PowerOn(guest kubevirt.Guest) error {
	match := talosImage.FindStringSubmatch(guest.Image)
	if match == nil || len(guest.NICs) == 0 {
		return nil
	}
	nic := &guest.NICs[0]
	if len(nic.Addresses) == 0 {
		address, gateway, ok := g.fleet.ConfiguredAddress(strings.ToLower(guest.ID))
		if !ok {
			return nil
		}
		nic.Addresses, nic.Gateway = []netip.Prefix{address}, gateway
	}
	m := talos.Machine{
		ID: strings.ToLower(guest.ID), Address: nic.Addresses[0], Gateway: nic.Gateway,
		Static: static(guest), Schematic: match[1],
		Version: match[2], Kind: match[3], Preinstalled: match[4] != "iso",
		CPUs: int(guest.CPUs), Memory: uint64(guest.Memory), Seed: seedOf(guest),
	}
	for _, nic := range guest.NICs {
		m.Links = append(m.Links, talos.Link{Name: nic.Name, MAC: nic.MAC})
	}
	for i, disk := range guest.Disks {
		if disk.Bytes > 0 {
			m.Disks = append(m.Disks, talos.Disk{Device: fmt.Sprintf("/dev/vd%c", 'a'+i), Size: uint64(disk.Bytes)})
		}
	}
	return g.fleet.PowerOn(context.Background(), m)
}

// seedOf returns the user data of a guest's seed. A seed with only network data has an empty file of
// user data, in which Talos finds no valid configuration.
func seedOf(guest kubevirt.Guest) []byte {
	if guest.UserData == "" && guest.NetworkData != "" {
		return []byte("\n")
	}
	return []byte(guest.UserData)
}

// static reports whether the address is in the guest's network data, and so not from DHCP.
func static(guest kubevirt.Guest) bool {
	return strings.Contains(guest.NetworkData, guest.NICs[0].Addresses[0].Addr().String())
}

// PowerOff implements kubevirt.Guests.
func (g guests) PowerOff(id string) error { return known(g.fleet.PowerOff(strings.ToLower(id))) }

// Destroy implements kubevirt.Guests.
func (g guests) Destroy(id string) error { return known(g.fleet.Destroy(strings.ToLower(id))) }

// known ignores the error for a guest that is no node.
func known(err error) error {
	if errors.Is(err, talos.ErrNoMachine) {
		return nil
	}
	return err
}
