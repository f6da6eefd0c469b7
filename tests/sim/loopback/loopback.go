// Package loopback allocates address ranges of 127.0.0.0/8, so that simulated machines can listen on
// fixed ports without conflicts with other tests and processes.
package loopback

import (
	"errors"
	"fmt"
	"math/rand/v2"
	"net"
	"net/netip"
)

const (
	// guardPort is bound on the first address of a claimed range. Its listener owns the range.
	guardPort = 49998
	// firstNet and lastNet exclude ranges that are often used by hand, and that of 127.0.0.1.
	firstNet, lastNet = 128, 254
)

// ErrExhausted is returned if every range is in use.
var ErrExhausted = errors.New("no free 127.x.y.0/24 is left")

// Range is a claimed 127.x.y.0/24. The first address is reserved for the claim.
type Range struct {
	prefix netip.Prefix
	guard  net.Listener
}

// Claim claims a free range for this process until Close. Claims of any number of processes on one
// machine never overlap.
func Claim() (*Range, error) {
	const perNet = 256
	count := (lastNet - firstNet + 1) * perNet
	start := rand.IntN(count)
	for i := range count {
		at := (start + i) % count
		prefix := netip.PrefixFrom(netip.AddrFrom4([4]byte{127, byte(firstNet + at/perNet), byte(at % perNet), 0}), 24)
		guard, err := net.Listen("tcp", netip.AddrPortFrom(prefix.Addr().Next(), guardPort).String())
		if err == nil {
			return &Range{prefix: prefix, guard: guard}, nil
		}
	}
	return nil, ErrExhausted
}

// Prefix returns the whole range.
func (r *Range) Prefix() netip.Prefix { return r.prefix }

// Address returns the n-th address of the range with its prefix length. n is from 2 to 254. It panics
// for another n.
func (r *Range) Address(n int) netip.Prefix {
	if n < 2 || n > 254 {
		panic(fmt.Sprintf("loopback: address %d of %s: use 2 to 254", n, r.prefix))
	}
	at := r.prefix.Addr().As4()
	at[3] = byte(n)
	return netip.PrefixFrom(netip.AddrFrom4(at), r.prefix.Bits())
}

// Close releases the range. A second call returns an error and does nothing.
func (r *Range) Close() error { return r.guard.Close() }
