// Package underlay implements the addresses of simulated networks. A simulated machine has an address
// of its network, and listens on an address of 127.0.0.0/8 that this package assigns. Programs reach
// it through a SOCKS5 proxy, as they would reach a tenant's network through a gateway.
package underlay

import (
	"context"
	"fmt"
	"net"
	"net/netip"
	"sync"
	"syscall"

	"github.com/vitistack/stack/tests/sim/loopback"
)

// network is the only underlay of a process.
var network struct {
	mu       sync.Mutex
	assigned map[netip.Addr]netip.Addr
	// current is the range that addresses are taken from, and next the next address.
	current *loopback.Range
	next    int
}

// lastHost is the last address of a loopback.Range.
const lastHost = 254

// Assign returns the loopback address for an address. It returns a loopback address unchanged, and
// returns the same at each call. It returns an error if no loopback range is free.
func Assign(address netip.Addr) (netip.Addr, error) {
	address = address.Unmap()
	if address.IsLoopback() {
		return address, nil
	}
	network.mu.Lock()
	defer network.mu.Unlock()
	if local, ok := network.assigned[address]; ok {
		return local, nil
	}
	if network.current == nil || network.next > lastHost {
		claimed, err := loopback.Claim()
		if err != nil {
			return netip.Addr{}, fmt.Errorf("assign a loopback address to %s: %w", address, err)
		}
		network.current, network.next = claimed, 2
	}
	local := network.current.Address(network.next).Addr()
	network.next++
	if network.assigned == nil {
		network.assigned = map[netip.Addr]netip.Addr{}
	}
	network.assigned[address] = local
	return local, nil
}

// Find returns the loopback address for an address, and false if no machine ever had it.
func Find(address netip.Addr) (netip.Addr, bool) {
	address = address.Unmap()
	if address.IsLoopback() {
		return address, true
	}
	network.mu.Lock()
	defer network.mu.Unlock()
	local, ok := network.assigned[address]
	return local, ok
}

// Dial connects to a machine by its own address, as another machine of the network does.
func Dial(ctx context.Context, address string) (net.Conn, error) {
	to, err := netip.ParseAddrPort(address)
	if err != nil {
		return nil, err
	}
	local, ok := Find(to.Addr())
	if !ok {
		return nil, &net.OpError{Op: "dial", Net: "tcp", Addr: net.TCPAddrFromAddrPort(to), Err: syscall.EHOSTUNREACH}
	}
	return new(net.Dialer).DialContext(ctx, "tcp", netip.AddrPortFrom(local, to.Port()).String())
}
