package main

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"regexp"
	"strings"

	"github.com/siderolabs/talos/pkg/machinery/config/configloader"

	"github.com/vitistack/stack/tests/sim/kubevirt"
	"github.com/vitistack/stack/tests/sim/talos"
)

// guests makes nodes of the virtual machines that boot Talos Linux. Others boot
// something that nobody talks to.
type guests struct {
	fleet *talos.Fleet
	log   *slog.Logger
}

// talosImage is the address of a disk image or an installer of the image factory.
var talosImage = regexp.MustCompile(`/image/([0-9a-f]+)/(v[0-9]+\.[0-9]+\.[0-9]+)/([a-z]+)-(?:amd64|arm64)\.(raw\.xz|raw\.zst|qcow2|iso)$`)

// PowerOn implements kubevirt.Guests. A node without an address listens nowhere,
// as in life.
func (g guests) PowerOn(guest kubevirt.Guest) error {
	match := talosImage.FindStringSubmatch(guest.Image)
	if match == nil || len(guest.NICs) == 0 || len(guest.NICs[0].Addresses) == 0 {
		return nil
	}
	if err := readPlatformConfig(match[3], guest); err != nil {
		g.log.Warn("failed to load config via platform: the node begins again, and never comes to maintenance", "machine", guest.Name, "error", err)
		return nil
	}
	m := talos.Machine{
		ID: strings.ToLower(guest.ID), Address: guest.NICs[0].Addresses[0], Gateway: guest.NICs[0].Gateway,
		Static: static(guest), Schematic: match[1],
		Version: match[2], Kind: match[3], Preinstalled: match[4] != "iso",
		CPUs: int(guest.CPUs), Memory: uint64(guest.Memory),
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

// readPlatformConfig reads the user data of a seed as the platform nocloud of Talos does
// (internal/app/machined/pkg/runtime/v1alpha1/platform/nocloud): a file that is there has
// to be a machine configuration, unless its first line is that of cloud-init. Without a
// seed, and on other platforms, a node comes to maintenance.
func readPlatformConfig(platform string, guest kubevirt.Guest) error {
	seeded := guest.UserData != "" || guest.NetworkData != ""
	if platform != "nocloud" || !seeded || strings.HasPrefix(guest.UserData, "#cloud-config") {
		return nil
	}
	_, err := configloader.NewFromBytes([]byte(guest.UserData))
	if err == nil {
		return errors.New("the user data is a machine configuration, which simulated nodes take by their API alone")
	}
	return err
}

// static tells whether the guest's network data gives it the address, so that it is
// not from DHCP.
func static(guest kubevirt.Guest) bool {
	return strings.Contains(guest.NetworkData, guest.NICs[0].Addresses[0].Addr().String())
}

// PowerOff implements kubevirt.Guests.
func (g guests) PowerOff(id string) error { return known(g.fleet.PowerOff(strings.ToLower(id))) }

// Destroy implements kubevirt.Guests.
func (g guests) Destroy(id string) error { return known(g.fleet.Destroy(strings.ToLower(id))) }

// known passes over a guest that is no node.
func known(err error) error {
	if errors.Is(err, talos.ErrNoMachine) {
		return nil
	}
	return err
}
