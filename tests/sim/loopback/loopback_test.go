package loopback_test

import (
	"net"
	"net/netip"
	"testing"

	"github.com/vitistack/stack/tests/sim/loopback"
)

func TestClaim(t *testing.T) {
	t.Parallel()
	held := map[netip.Prefix]bool{}
	for range 50 {
		r, err := loopback.Claim()
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { _ = r.Close() })
		if held[r.Prefix()] {
			t.Fatalf("range %s was claimed twice", r.Prefix())
		}
		held[r.Prefix()] = true
		if !r.Prefix().Contains(r.Address(2).Addr()) || r.Address(254).Bits() != 24 {
			t.Errorf("addresses %s and %s are not in range %s", r.Address(2), r.Address(254), r.Prefix())
		}
	}
}

func TestAddressIsUsable(t *testing.T) {
	t.Parallel()
	r, err := loopback.Claim()
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = r.Close() })
	l, err := net.Listen("tcp", netip.AddrPortFrom(r.Address(2).Addr(), 50000).String())
	if err != nil {
		t.Fatalf("cannot listen on a claimed address: %v", err)
	}
	_ = l.Close()
	for _, n := range []int{0, 1, 255} {
		func() {
			defer func() {
				if recover() == nil {
					t.Errorf("address %d was allocated", n)
				}
			}()
			r.Address(n)
		}()
	}
}
