package main

import (
	"fmt"
	"net/netip"
	"slices"
	"strconv"

	"github.com/vitistack/stack/functions/kea-reserve/kea"
)

// allowedVariable is the environment variable of a subnetList.
const allowedVariable = "KEA_ALLOWED_SUBNETS"

// subnetList lists subnets by their IDs, and by prefixes that contain them.
type subnetList struct {
	ids      []uint32
	prefixes []netip.Prefix
}

// parseSubnetList reads a list separated by commas, for example 7, 10.20.0.0/16.
func parseSubnetList(text string) (subnetList, error) {
	var l subnetList
	for _, part := range list(text) {
		if id, err := strconv.ParseUint(part, 10, 32); err == nil {
			l.ids = append(l.ids, uint32(id))
			continue
		}
		prefix, err := netip.ParsePrefix(part)
		if err != nil {
			return subnetList{}, fmt.Errorf("read %s: %q is no subnet: write ids and prefixes, for example 7, 10.20.0.0/16", allowedVariable, part)
		}
		l.prefixes = append(l.prefixes, prefix.Masked())
	}
	return l, nil
}

func (l subnetList) contain(s kea.Subnet) bool {
	return slices.Contains(l.ids, s.ID) || slices.ContainsFunc(l.prefixes, func(p netip.Prefix) bool {
		return p.Bits() <= s.Prefix.Bits() && p.Contains(s.Prefix.Addr())
	})
}
