package kea

import (
	"context"
	"errors"
	"net/netip"
	"slices"
)

// Lease is an address that a client has now.
type Lease struct {
	MAC     string
	Address netip.Addr
}

// leaseJSON is a lease in Kea's JSON.
type leaseJSON struct {
	HWAddress string `json:"hw-address"`
	IPAddress string `json:"ip-address"`
	State     int    `json:"state"`
	// LastTransaction is a Unix time.
	LastTransaction int64 `json:"cltt"`
}

// leaseReclaimed is the state of a lease that has expired. In any other state the address is
// not free.
const leaseReclaimed = 2

// leasesOf reads the leases of a subnet, or none if the server lacks the hook lease_cmds.
func leasesOf(ctx context.Context, c *Client, has map[string]bool, subnet uint32) ([]Lease, error) {
	if !has["lease4-get-all"] {
		return nil, nil
	}
	var answer struct {
		Leases []leaseJSON `json:"leases"`
	}
	err := c.do(ctx, "lease4-get-all", map[string]any{"subnets": []uint32{subnet}}, &answer)
	if err != nil && !isEmpty(err) {
		return nil, err
	}
	slices.SortStableFunc(answer.Leases, func(a, b leaseJSON) int { return int(b.LastTransaction - a.LastTransaction) })
	var leases []Lease
	for _, l := range answer.Leases {
		address, err := netip.ParseAddr(l.IPAddress)
		if err == nil && l.State != leaseReclaimed {
			leases = append(leases, Lease{MAC: CanonicalMAC(l.HWAddress), Address: address})
		}
	}
	return leases, nil
}

// releaseLeases deletes the leases that the clients of reservations have of the reserved addresses. It ignores a server
// that lacks the hook lease_cmds or refuses a command, because a lease expires.
func releaseLeases(ctx context.Context, c *Client, has map[string]bool, released []Reservation) error {
	if !has["lease4-get"] || !has["lease4-del"] {
		return nil
	}
	for _, r := range released {
		if !r.Address.IsValid() {
			continue
		}
		var l leaseJSON
		arguments := map[string]any{"ip-address": r.Address}
		err := c.do(ctx, "lease4-get", arguments, &l)
		if err == nil && MACIdentifier(CanonicalMAC(l.HWAddress)) == r.Client {
			err = c.do(ctx, "lease4-del", arguments, nil)
		}
		if err != nil && !isEmpty(err) && !errors.As(err, new(CommandError)) {
			return err
		}
	}
	return nil
}
