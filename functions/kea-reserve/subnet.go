package main

import (
	"encoding/binary"
	"fmt"
	"net/netip"

	"github.com/vitistack/stack/functions/internal/reconcile"
)

// Subnet is a subnet of a Kea server.
type Subnet struct {
	ID     uint32
	Prefix netip.Prefix
}

// SubnetSpec is a subnet to make. It has no pool: only machines with a reservation
// are served, so that nobody takes an address between its choice and its
// reservation.
type SubnetSpec struct {
	Subnet
	Routers, DNS string
	Classes      []string
	// Network is the UID of the NetworkNamespace that the subnet is made for.
	Network string
}

// subnetJSON is a subnet in Kea's JSON.
type subnetJSON map[string]any

// classKeys are the names to try for the classes that Kea looks at once a subnet
// is selected: the one since 2.7.4, and where that is refused the one before.
func (c Change) classKeys() []string {
	keys := []string{"evaluate-additional-classes", "require-client-classes"}
	if c.Create == nil || len(c.Create.Classes) == 0 {
		return keys[:1]
	}
	return keys
}

func (b SubnetSpec) encode(classKey string) subnetJSON {
	s := subnetJSON{
		"id": b.ID, "subnet": b.Prefix.String(),
		"user-context": map[string]string{SubnetOwnerKey: b.Network},
	}
	if options := encodeOptions(b.Routers, b.DNS); options != nil {
		s["option-data"] = options
	}
	if len(b.Classes) > 0 {
		s[classKey] = b.Classes
	}
	return s
}

// SubnetOwnerKey is where the user-context of a subnet that this stack made has the UID
// of the NetworkNamespace.
const SubnetOwnerKey = "vitistack.io/networknamespace-uid"

// findSubnet finds the subnet that a network lies in: its own one, or else the
// smallest that contains it. Where there is none, found is false. Where a subnet
// covers a part of the network only, nothing that Kea could be told is right.
func findSubnet(network netip.Prefix, subnets []Subnet) (s Subnet, found bool, err error) {
	for _, candidate := range subnets {
		switch {
		case !candidate.Prefix.Overlaps(network):
		case candidate.Prefix.Bits() > network.Bits():
			err = reconcile.UserError{Reason: "SubnetOverlap", Message: fmt.Sprintf(
				"Kea has subnet %s (id %d), which covers only a part of %s: remove it, or give it the network's prefix", candidate.Prefix, candidate.ID, network)}
		case !found || candidate.Prefix.Bits() > s.Prefix.Bits():
			s, found = candidate, true
		}
	}
	if found {
		return s, true, nil
	}
	return Subnet{}, false, err
}

// SubnetID is the identity of a subnet that is made for a network: its first
// address as a number. It is the same on every server and at every try, and
// differs between networks that don't overlap.
func SubnetID(network netip.Prefix) uint32 {
	first := network.Masked().Addr().As4()
	return binary.BigEndian.Uint32(first[:])
}
