package main

import (
	"encoding/binary"
	"hash/fnv"
	"net/netip"
)

// isUsable reports whether a machine may have an address of the network: not the network's
// own, the broadcast address or the gateway.
func (req request) isUsable(a netip.Addr) bool {
	if !req.prefix.Contains(a) || a == req.gateway {
		return false
	}
	if req.prefix.Bits() >= 31 {
		return true
	}
	return a != req.prefix.Addr() && a != last(req.prefix)
}

// pick returns the first free address of a prefix, searching once around it from a place that
// holder determines. Different holders start at different places, so that they seldom choose
// the same address at the same time. It returns false if no address is free. It calls isFree
// once more than there are addresses that are not free.
func pick(prefix netip.Prefix, holder string, isFree func(netip.Addr) bool) (netip.Addr, bool) {
	hash := fnv.New32a()
	_, _ = hash.Write([]byte(holder))
	size := uint64(1) << (32 - prefix.Bits())
	first := number(prefix.Addr())
	start := uint64(hash.Sum32()) * size >> 32
	for i := range size {
		if a := address(first + uint32((start+i)%size)); isFree(a) {
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
