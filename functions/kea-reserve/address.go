package main

import (
	"encoding/binary"
	"hash/fnv"
	"net/netip"
)

// isUsable tells whether a machine may have an address: one of the network's, but
// neither its own, nor the one for broadcast, nor the gateway.
func (req request) isUsable(a netip.Addr) bool {
	if !req.prefix.Contains(a) || a == req.gateway {
		return false
	}
	if req.prefix.Bits() >= 31 {
		return true
	}
	return a != req.prefix.Addr() && a != last(req.prefix)
}

// pick is the first free address, going round the prefix once from a place that
// holder determines. Different holders start at different places, so that they
// seldom choose the same address at the same time. It reports false where none is
// free, and calls free once more than there are addresses that are not.
func pick(prefix netip.Prefix, holder string, free func(netip.Addr) bool) (netip.Addr, bool) {
	hash := fnv.New32a()
	_, _ = hash.Write([]byte(holder))
	size := uint64(1) << (32 - prefix.Bits())
	first := number(prefix.Addr())
	start := uint64(hash.Sum32()) * size >> 32
	for i := range size {
		if a := address(first + uint32((start+i)%size)); free(a) {
			return a, true
		}
	}
	return netip.Addr{}, false
}

func last(prefix netip.Prefix) netip.Addr {
	return address(number(prefix.Addr()) | uint32(1<<(32-prefix.Bits())-1))
}

func number(a netip.Addr) uint32 {
	b := a.As4()
	return binary.BigEndian.Uint32(b[:])
}

func address(n uint32) netip.Addr {
	var b [4]byte
	binary.BigEndian.PutUint32(b[:], n)
	return netip.AddrFrom4(b)
}
