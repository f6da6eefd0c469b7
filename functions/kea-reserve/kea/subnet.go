package kea

import (
	"encoding/binary"
	"encoding/json"
	"fmt"
	"net/netip"

	"github.com/vitistack/stack/functions/internal/reconcile"
)

// Subnet is a subnet of a Kea server.
type Subnet struct {
	ID     uint32
	Prefix netip.Prefix
	// Shared is the name of its shared network, or empty.
	Shared string
}

// SubnetSpec is a subnet to create. It has no pool: Kea serves only clients with a
// reservation, so that no other client gets an address between its choice and its reservation. It has
// no DNS servers, because Kea would send them to clients whose reservation has none.
type SubnetSpec struct {
	Subnet
	Routers string
	Classes []string
	// Network is the UID of the NetworkNamespace for which the subnet is created.
	Network string
}

// subnetJSON is a subnet in Kea's JSON.
type subnetJSON map[string]any

// classKeys returns the keys to try for the client classes of a new subnet: the one since Kea
// 2.7.4, and the former one if the server refuses that.
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
		// A machine that boots by PXE has another client identifier than its operating system. By default Kea
		// refuses the second one the address while the first one has a lease of it.
		"match-client-id": false,
		"user-context":    map[string]string{SubnetOwnerKey: b.Network},
	}
	if options := encodeOptions(b.Routers, ""); options != nil {
		s["option-data"] = options
	}
	if len(b.Classes) > 0 {
		s[classKey] = b.Classes
	}
	return s
}

// SubnetOwnerKey is the key in the user-context of a subnet under which the stack writes the
// UID of the NetworkNamespace.
const SubnetOwnerKey = "vitistack.io/networknamespace-uid"

// findSubnet returns the smallest subnet that contains a network. found is false if there is
// none. It returns a UserError if subnets cover only a part of the network, or if Kea serves the
// clients of the network from another subnet.
func findSubnet(network netip.Prefix, subnets []Subnet) (s Subnet, found bool, err error) {
	for _, candidate := range subnets {
		switch {
		case !candidate.Prefix.Overlaps(network):
		case candidate.Prefix.Bits() > network.Bits():
			err = reconcile.UserError{Reason: "SubnetOverlap", Message: fmt.Sprintf(
				"Kea has subnet %[1]s (id %[2]d), which covers only a part of %[3]s: remove it, or give it that prefix and have the platform team add %[3]s to KEA_ALLOWED_SUBNETS (kea.allowedSubnets of the chart)", candidate.Prefix, candidate.ID, network)}
		case !found || candidate.Prefix.Bits() > s.Prefix.Bits():
			s, found = candidate, true
		}
	}
	if !found {
		return Subnet{}, false, err
	}
	if err := checkSelected(network, s, subnets); err != nil {
		return Subnet{}, false, err
	}
	return s, true, nil
}

// checkSelected returns a UserError if Kea serves the clients of a network from another subnet than s. Of the subnets that
// contain the address of a link, Kea selects the one with the lowest ID. It finds a reservation in all subnets of a shared
// network.
func checkSelected(network netip.Prefix, s Subnet, subnets []Subnet) error {
	for _, other := range subnets {
		contains := other.Prefix.Bits() <= network.Bits() && other.Prefix.Overlaps(network)
		if contains && other.ID < s.ID && (s.Shared == "" || other.Shared != s.Shared) {
			return reconcile.UserError{Reason: "SubnetOverlap", Message: fmt.Sprintf(
				"Kea serves clients of %s from subnet %s (id %d) and not from %s (id %d), because its id is lower: give %s the lower id, or remove %s",
				network, other.Prefix, other.ID, s.Prefix, s.ID, s.Prefix, other.Prefix)}
		}
	}
	return nil
}

// SubnetID returns the ID of a subnet that is created for a network: its first address as a
// number. It is the same on every server and after every retry, and differs between networks
// that do not overlap.
func SubnetID(network netip.Prefix) uint32 {
	first := network.Masked().Addr().As4()
	return binary.BigEndian.Uint32(first[:])
}

// subnetOwner returns the UID of the NetworkNamespace for which the stack created a subnet. It
// is empty for any other subnet.
func subnetOwner(context json.RawMessage) string {
	var m map[string]any
	if json.Unmarshal(context, &m) != nil {
		return ""
	}
	uid, _ := m[SubnetOwnerKey].(string)
	return uid
}
