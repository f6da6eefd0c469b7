package talos

import (
	"context"
	"fmt"
	"net"
	"slices"
	"strings"

	"github.com/cosi-project/runtime/pkg/safe"
	"github.com/siderolabs/talos/pkg/machinery/resources/hardware"
	"github.com/siderolabs/talos/pkg/machinery/resources/network"
)

// Identity is what identifies a node before it has a configuration.
type Identity struct {
	// uuid is the system UUID of the firmware, and macs are the permanent MAC addresses of the
	// physical interfaces, in lower case.
	uuid string
	macs []string
}

// Matches reports whether a node is the machine with a UID or one of these MAC addresses. One is
// enough, because some hypervisors choose the UUID themselves, and some networks the addresses.
func (i Identity) Matches(uid string, macs []string) bool {
	return i.uuid == strings.ToLower(uid) || slices.ContainsFunc(i.macs, func(mac string) bool { return slices.Contains(macs, mac) })
}

// String describes the identity, for a message.
func (i Identity) String() string {
	return fmt.Sprintf("system UUID %s and MAC addresses %s", i.uuid, strings.Join(i.macs, ", "))
}

// Identify reads the identity of a node in maintenance mode.
func Identify(ctx context.Context, address string, pinned Fingerprint) (Identity, error) {
	ctx, c, end, err := connectPinned(ctx, address, pinned, ShortTimeout)
	if err != nil {
		return Identity{}, err
	}
	defer end()
	info, err := safe.StateGetByID[*hardware.SystemInformation](ctx, c.COSI, hardware.SystemInformationID)
	if err != nil {
		return Identity{}, fmt.Errorf("read system information of %s: %w", address, err)
	}
	links, err := safe.StateListAll[*network.LinkStatus](ctx, c.COSI)
	if err != nil {
		return Identity{}, fmt.Errorf("list the interfaces of %s: %w", address, err)
	}
	id := Identity{uuid: strings.ToLower(info.TypedSpec().UUID)}
	for l := range links.All() {
		if mac := net.HardwareAddr(l.TypedSpec().PermanentAddr).String(); mac != "" && l.TypedSpec().Physical() {
			id.macs = append(id.macs, mac)
		}
	}
	return id, nil
}

// HasLinkAlias reports whether a network interface of a node has an alias.
func HasLinkAlias(ctx context.Context, address string, a *Credentials, alias string) (bool, error) {
	ctx, c, end, err := Connect(ctx, address, a, DialTimeout)
	if err != nil {
		return false, err
	}
	defer end()
	links, err := safe.StateListAll[*network.LinkStatus](ctx, c.COSI)
	if err != nil {
		return false, fmt.Errorf("list the interfaces of %s: %w", address, err)
	}
	for l := range links.All() {
		for found := range network.AllLinkAliases(l) {
			if found == alias {
				return true, nil
			}
		}
	}
	return false, nil
}
