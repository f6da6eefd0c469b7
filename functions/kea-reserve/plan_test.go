package main

import (
	"errors"
	"fmt"
	"net/netip"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/vitistack/stack/functions/internal/reconcile"
)

func addr(s string) netip.Addr { return netip.MustParseAddr(s) }

var segment = netip.MustParsePrefix("10.77.0.0/24")

// testWish is a wish of one interface, eth0 with macA.
func testWish(change func(*request)) request {
	w := request{
		uid: "u1", name: "ns/vm", network: "n1", prefix: segment, gateway: addr("10.77.0.1"), dns: []string{"10.9.9.9"},
		interfaces: []interfaceRequest{{name: "eth0", mac: macA}},
	}
	if change != nil {
		change(&w)
	}
	return w
}

// own is the reservation that testWish has at an address.
func own(address string) Reservation {
	w := testWish(nil)
	return w.reservation(w.interfaces[0], 7, addr(address))
}

// others is somebody else's reservation.
func others(mac, address string) Reservation {
	r := Reservation{Subnet: 7, Client: Identifier{HWAddress, mac}}
	if address != "" {
		r.Address = addr(address)
	}
	return r
}

func there(held ...Reservation) View {
	return View{Subnet: Subnet{ID: 7, Prefix: segment}, SubnetFound: true, CanCreateSubnet: true, Reservations: held}
}

func TestDecide(t *testing.T) {
	t.Parallel()
	leased := func(v View, leases ...Lease) View { v.Leases = leases; return v }
	predecessor := own("10.77.0.50")
	predecessor.Owner.UID = "u0"
	oldTerms := own("10.77.0.50")
	oldTerms.DNS = "10.9.9.1"
	const macC = "52:54:00:00:00:0c"
	nics := func(interfaces ...interfaceRequest) request {
		return testWish(func(w *request) { w.interfaces = interfaces })
	}
	asking := func(mac, address string) interfaceRequest {
		return interfaceRequest{name: "eth0", mac: mac, requested: addr(address)}
	}
	had := func(mac, address string) interfaceRequest {
		return interfaceRequest{name: "eth0", mac: mac, current: addr(address)}
	}
	second := func(n interfaceRequest) interfaceRequest { n.name = "eth1"; return n }
	holds := func(n interfaceRequest, address string) Reservation {
		return testWish(nil).reservation(n, 7, addr(address))
	}
	cases := map[string]struct {
		reason  string
		wish    request
		views   []View
		address string
		changes []Change
		refusal string
	}{
		"Reserved": {
			reason: "there is nothing to do", wish: testWish(nil), views: []View{there(own("10.77.0.50")), there(own("10.77.0.50"))},
			address: "10.77.0.50", changes: []Change{{}, {}},
		},
		"OneServerLacksIt": {
			reason: "servers are brought in step", wish: testWish(nil), views: []View{there(own("10.77.0.50")), there()},
			address: "10.77.0.50", changes: []Change{{}, {Add: []Reservation{own("10.77.0.50")}}},
		},
		"ServersDisagree": {
			reason: "the address that the machine has been told stays", wish: testWish(func(w *request) { w.interfaces[0].current = addr("10.77.0.60") }),
			views:   []View{there(own("10.77.0.50")), there(own("10.77.0.60"))},
			address: "10.77.0.60", changes: []Change{{Update: []Reservation{own("10.77.0.60")}}, {}},
		},
		"TakenOnTheOther": {
			reason: "an address that another has too is given up", wish: testWish(nil),
			views:   []View{there(own("10.77.0.50")), leased(there(others(macB, "10.77.0.50")), Lease{macA, addr("10.77.0.70")})},
			address: "10.77.0.70", changes: []Change{{Update: []Reservation{own("10.77.0.70")}}, {Add: []Reservation{own("10.77.0.70")}}},
		},
		"Lost": {
			reason: "a server that lost all gives the same address again", wish: testWish(func(w *request) { w.interfaces[0].current = addr("10.77.0.60") }),
			views: []View{there()}, address: "10.77.0.60", changes: []Change{{Add: []Reservation{own("10.77.0.60")}}},
		},
		"Lease": {
			reason: "a machine keeps the address that it is using", wish: testWish(nil),
			views: []View{leased(there(), Lease{macA, addr("10.77.0.123")})}, address: "10.77.0.123", changes: []Change{{Add: []Reservation{own("10.77.0.123")}}},
		},
		"LeaseOutside": {
			reason: "a lease of another network is of no use", wish: testWish(func(w *request) { w.interfaces[0].requested = addr("10.77.0.9") }),
			views: []View{leased(there(), Lease{macA, addr("10.99.0.123")})}, address: "10.77.0.9", changes: []Change{{Add: []Reservation{own("10.77.0.9")}}},
		},
		"OtherLease": {
			reason: "an own reservation is not given up for a lease that ends by itself", wish: testWish(nil),
			views: []View{leased(there(own("10.77.0.50")), Lease{macB, addr("10.77.0.50")})}, address: "10.77.0.50", changes: []Change{{}},
		},
		"Terms": {
			reason: "the network's DNS servers have changed", wish: testWish(nil),
			views: []View{there(oldTerms)}, address: "10.77.0.50", changes: []Change{{Update: []Reservation{own("10.77.0.50")}}},
		},
		"Predecessor": {
			reason: "one of the same name in the same network cannot exist any more", wish: testWish(nil),
			views: []View{there(predecessor)}, address: "10.77.0.50", changes: []Change{{Update: []Reservation{own("10.77.0.50")}}},
		},
		"OtherMAC": {
			reason: "an interface that is gone gives its reservation back", wish: testWish(func(w *request) {
				w.interfaces[0].mac, w.interfaces[0].requested = macB, addr("10.77.0.9")
			}),
			views: []View{there(own("10.77.0.50"))}, address: "10.77.0.9",
			changes: []Change{{Remove: []Reservation{own("10.77.0.50")}, Add: []Reservation{func() Reservation {
				r := own("10.77.0.9")
				r.Client.Value = macB
				return r
			}()}}},
		},
		"MACOfAsked": {
			reason: "an interface that asks for its address keeps it under another MAC address", wish: nics(asking(macB, "10.77.0.50")),
			views: []View{leased(there(own("10.77.0.50")), Lease{macA, addr("10.77.0.50")})}, address: "10.77.0.50",
			changes: []Change{{Remove: []Reservation{own("10.77.0.50")}, Add: []Reservation{holds(asking(macB, "10.77.0.50"), "10.77.0.50")}}},
		},
		"MACOnOneServer": {
			reason: "the other server has not been given it yet", wish: nics(asking(macB, "10.77.0.50")),
			views: []View{there(holds(asking(macB, "10.77.0.50"), "10.77.0.50")), there(own("10.77.0.50"))}, address: "10.77.0.50",
			changes: []Change{{}, {Remove: []Reservation{own("10.77.0.50")}, Add: []Reservation{holds(asking(macB, "10.77.0.50"), "10.77.0.50")}}},
		},
		"MACOfAnother": {
			reason: "somebody else has it on the other server", wish: nics(asking(macB, "10.77.0.50")),
			views: []View{there(own("10.77.0.50")), there(others(macC, "10.77.0.50"))}, refusal: "AddressTaken: interface eth0 asks for 10.77.0.50, which has a reservation of hw-address " + macC,
		},
		"MACOfHad": {
			reason: "an address that nobody uses goes with its interface", wish: nics(had(macB, "10.77.0.50")), views: []View{there(own("10.77.0.50"))}, address: "10.77.0.50",
			changes: []Change{{Remove: []Reservation{own("10.77.0.50")}, Add: []Reservation{holds(asking(macB, "10.77.0.50"), "10.77.0.50")}}},
		},
		"MACOfLeased": {
			reason: "Kea would give the address to nobody else before the lease ends", wish: nics(had(macB, "10.77.0.50")),
			views:   []View{leased(there(own("10.77.0.50")), Lease{macA, addr("10.77.0.50")}, Lease{macB, addr("10.77.0.70")})},
			address: "10.77.0.70", changes: []Change{{Remove: []Reservation{own("10.77.0.50")}, Add: []Reservation{holds(had(macB, "10.77.0.50"), "10.77.0.70")}}},
		},
		"Exchange": {
			reason: "two interfaces ask for each other's address", wish: nics(asking(macA, "10.77.0.51"), second(asking(macB, "10.77.0.50"))),
			views: []View{there(own("10.77.0.50"), holds(second(asking(macB, "10.77.0.51")), "10.77.0.51"))}, address: "10.77.0.51 10.77.0.50",
			changes: []Change{{Update: []Reservation{own("10.77.0.51"), holds(second(asking(macB, "10.77.0.50")), "10.77.0.50")}}},
		},
		"HandedOn": {
			reason: "who asks comes before who had it", wish: nics(had(macC, "10.77.0.50"), second(asking(macB, "10.77.0.50"))),
			views: []View{leased(there(own("10.77.0.50")), Lease{macC, addr("10.77.0.70")})}, address: "10.77.0.70 10.77.0.50",
			changes: []Change{{
				Remove: []Reservation{own("10.77.0.50")},
				Add:    []Reservation{holds(had(macC, "10.77.0.50"), "10.77.0.70"), holds(second(asking(macB, "10.77.0.50")), "10.77.0.50")},
			}},
		},
		"BothAsk": {
			reason: "what is given up is given once", wish: nics(asking(macB, "10.77.0.50"), second(asking(macC, "10.77.0.50"))),
			views: []View{there(own("10.77.0.50"))}, refusal: "AddressTaken: interface eth1 asks for 10.77.0.50, which has interface eth0",
		},
		"KeptByItsOwn": {
			reason: "an interface that asks for none keeps what it has", wish: nics(had(macA, "10.77.0.50"), second(asking(macB, "10.77.0.50"))),
			views: []View{there(own("10.77.0.50"))}, refusal: "AddressTaken: interface eth1 asks for 10.77.0.50, which has NetworkConfiguration ns/vm",
		},
		"Twice": {
			reason: "a database and the configuration may both have it", wish: testWish(nil),
			views: []View{there(own("10.77.0.50"), own("10.77.0.50"))}, address: "10.77.0.50", changes: []Change{{}},
		},
		"OutsideNow": {
			reason: "the network has moved", wish: testWish(func(w *request) { w.interfaces[0].requested = addr("10.77.0.9") }),
			views: []View{there(own("10.99.0.50"))}, address: "10.77.0.9", changes: []Change{{Update: []Reservation{own("10.77.0.9")}}},
		},
		"Foreign": {
			reason: "nobody else's reservation is touched", wish: testWish(nil), views: []View{there(), there(others(macA, ""))},
			refusal: `ForeignReservation: Kea has a reservation of no address for hw-address 52:54:00:00:00:0a`,
		},
		"Kept": {
			reason: "the control plane's address may be its only node's", wish: testWish(func(w *request) {
				w.interfaces[0].requested, w.reserved = addr("10.77.0.9"), map[netip.Addr]bool{addr("10.77.0.9"): true}
			}),
			views: []View{there()}, address: "10.77.0.9", changes: []Change{{Add: []Reservation{own("10.77.0.9")}}},
		},
		"Gateway": {
			reason: "nobody would be reached any more", wish: testWish(func(w *request) { w.interfaces[0].requested = addr("10.77.0.1") }),
			views: []View{there()}, refusal: "AddressOutsidePool: interface eth0 asks for 10.77.0.1, which is no usable address of 10.77.0.0/24",
		},
		"LeasedToAnother": {
			reason: "somebody is using it", wish: testWish(func(w *request) { w.interfaces[0].requested = addr("10.77.0.9") }),
			views: []View{there(), leased(there(), Lease{macB, addr("10.77.0.9")})}, refusal: "AddressTaken: interface eth0 asks for 10.77.0.9, which has a lease of " + macB,
		},
		"NoSubnet": {
			reason: "a server without subnet_cmds cannot make one", wish: testWish(nil), views: []View{{}},
			refusal: "SubnetMissing: Kea has no subnet that contains 10.77.0.0/24",
		},
		"NewSubnet": {
			reason: "two servers of one network need the same identity", wish: testWish(func(w *request) { w.interfaces[0].requested = addr("10.77.0.9") }),
			views: []View{{CanCreateSubnet: true}, there()}, address: "10.77.0.9",
			changes: []Change{
				{Create: &SubnetSpec{Subnet: Subnet{7, segment}, Routers: "10.77.0.1", DNS: "10.9.9.9", Network: "n1"}, Add: []Reservation{own("10.77.0.9")}},
				{Add: []Reservation{own("10.77.0.9")}},
			},
		},
	}
	for name, tc := range cases {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			got, err := makePlan(tc.wish, tc.views)
			var no reconcile.UserError
			if errors.As(err, &no); tc.refusal != "" {
				if !strings.HasPrefix(no.Error(), tc.refusal) {
					t.Errorf("%s: got %v, %v", tc.reason, got, err)
				}
				return
			}
			if err != nil || fmt.Sprint(got.addresses) != "["+tc.address+"]" {
				t.Fatalf("%s: got %v, error %v", tc.reason, got.addresses, err)
			}
			if diff := cmp.Diff(tc.changes, got.changes, cmp.AllowUnexported(Change{}, SubnetSpec{}, Subnet{}, Reservation{}, Identifier{}),
				cmp.Comparer(func(a, b netip.Addr) bool { return a == b }), cmp.Comparer(func(a, b netip.Prefix) bool { return a == b })); diff != "" {
				t.Errorf("%s: changes (-want +got):\n%s", tc.reason, diff)
			}
		})
	}
}

func TestPick(t *testing.T) {
	t.Parallel()
	w := testWish(func(w *request) { w.prefix = netip.MustParsePrefix("10.77.0.0/28"); w.gateway = addr("10.77.0.1") })
	taken := map[netip.Addr]bool{}
	for range 13 {
		a, ok := pick(w.prefix, "u1/eth0", func(a netip.Addr) bool { return !taken[a] && w.isUsable(a) })
		if !ok || !w.isUsable(a) || taken[a] {
			t.Fatalf("got %s, %t with %v taken", a, ok, taken)
		}
		taken[a] = true
	}
	if a, ok := pick(w.prefix, "u1/eth0", func(a netip.Addr) bool { return !taken[a] && w.isUsable(a) }); ok {
		t.Errorf("a network with 13 usable addresses gave a 14th: %s", a)
	}
	starts := map[netip.Addr]bool{}
	for _, holder := range []string{"a/eth0", "a/eth1", "b/eth0", "c/eth0", "d/eth0", "e/eth0"} {
		a, _ := pick(netip.MustParsePrefix("10.0.0.0/8"), holder, func(netip.Addr) bool { return true })
		starts[a] = true
	}
	if len(starts) != 6 {
		t.Errorf("6 holders start at %d places", len(starts))
	}
	for _, prefix := range []string{"10.0.0.4/31", "10.0.0.4/32"} {
		p := netip.MustParsePrefix(prefix)
		if w := (request{prefix: p}); !w.isUsable(p.Addr()) {
			t.Errorf("%s has no address for broadcast, but %s is not usable", p, p.Addr())
		}
	}
}
