package main

import (
	"errors"
	"fmt"
	"net/netip"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/vitistack/stack/apis/v1alpha1"
	"github.com/vitistack/stack/apis/v1alpha2"
	"github.com/vitistack/stack/functions/internal/reconcile"
	"github.com/vitistack/stack/functions/kea-reserve/kea"
)

func addr(s string) netip.Addr { return netip.MustParseAddr(s) }

var segment = netip.MustParsePrefix("10.77.0.0/24")

// testRequest returns a request of one interface, eth0 with macA.
func testRequest(change func(*request)) request {
	w := request{
		uid: "u1", name: "ns/vm", network: "n1", prefix: segment, gateway: addr("10.77.0.1"), dns: []string{"10.9.9.9"},
		interfaces: []interfaceRequest{{name: "eth0", mac: macA}},
	}
	if change != nil {
		change(&w)
	}
	return w
}

// own returns the reservation of testRequest at an address.
func own(address string) kea.Reservation {
	w := testRequest(nil)
	return w.reservation(w.interfaces[0], 7, addr(address))
}

// others returns a reservation of another owner.
func others(mac, address string) kea.Reservation {
	r := kea.Reservation{Subnet: 7, Client: kea.MACIdentifier(mac)}
	if address != "" {
		r.Address = addr(address)
	}
	return r
}

func there(held ...kea.Reservation) kea.State {
	return kea.State{Subnet: kea.Subnet{ID: 7, Prefix: segment}, SubnetFound: true, CanCreateSubnet: true, Reservations: held}
}

// TestServersKeepTheirAddresses has a network whose DNS servers and egress address are in its prefix. Only a machine that requests one of their
// addresses, or has it, gets it.
func TestServersKeepTheirAddresses(t *testing.T) {
	t.Parallel()
	nn := &v1alpha2.NetworkNamespace{
		Spec:   v1alpha2.NetworkNamespaceSpec{IPAllocation: &v1alpha2.IPAllocationPolicy{Type: v1alpha2.AllocationDHCP, DHCP: &v1alpha2.DHCPOptions{DNS: []string{"10.77.0.4"}}}},
		Status: v1alpha2.NetworkNamespaceStatus{IPv4Prefix: "10.77.0.0/29", IPv4Gateway: "10.77.0.1", IPv4EgressIP: "10.77.0.2", DNS: []string{"10.77.0.3", "10.77.0.4", "10.77.0.5"}},
	}
	state := kea.State{Subnet: kea.Subnet{ID: 7, Prefix: netip.MustParsePrefix("10.77.0.0/29")}, SubnetFound: true}
	for name, tc := range map[string]struct {
		requested string
		lease     []kea.Lease
		want      string
	}{
		"Any":       {want: "10.77.0.6"},
		"Requested": {requested: "10.77.0.3", want: "10.77.0.3"},
		"Leased":    {lease: []kea.Lease{{MAC: macA, Address: addr("10.77.0.4")}}, want: "10.77.0.4"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			nc := &v1alpha1.NetworkConfiguration{ObjectMeta: metav1.ObjectMeta{UID: "u1"}, Spec: v1alpha1.NetworkConfigurationSpec{NetworkInterfaces: []v1alpha1.InterfaceSpec{{Name: "eth0", MACAddress: macA}}}}
			if tc.requested != "" {
				nc.Spec.NetworkInterfaces[0].IPv4Addresses = []v1alpha2.IPv4Address{v1alpha2.IPv4Address(tc.requested)}
			}
			with := state
			with.Leases = tc.lease
			req, err := newRequest(nc, nn, nil)
			if err != nil {
				t.Fatal(err)
			}
			if p, err := planReservations(req, []kea.State{with}); err != nil || p.addresses[0] != addr(tc.want) {
				t.Errorf("got %v, %v: want %s", p.addresses, err, tc.want)
			}
		})
	}
}

func TestDecide(t *testing.T) {
	t.Parallel()
	leased := func(v kea.State, leases ...kea.Lease) kea.State { v.Leases = leases; return v }
	predecessor := own("10.77.0.50")
	predecessor.Owner.UID = "u0"
	oldTerms := own("10.77.0.50")
	oldTerms.DNS = "10.9.9.1"
	const macC = "52:54:00:00:00:0c"
	nics := func(interfaces ...interfaceRequest) request {
		return testRequest(func(w *request) { w.interfaces = interfaces })
	}
	asking := func(mac, address string) interfaceRequest {
		return interfaceRequest{name: "eth0", mac: mac, requested: addr(address)}
	}
	had := func(mac, address string) interfaceRequest {
		return interfaceRequest{name: "eth0", mac: mac, current: addr(address)}
	}
	second := func(n interfaceRequest) interfaceRequest { n.name = "eth1"; return n }
	holds := func(n interfaceRequest, address string) kea.Reservation {
		return testRequest(nil).reservation(n, 7, addr(address))
	}
	cases := map[string]struct {
		reason    string
		request   request
		states    []kea.State
		address   string
		changes   []kea.Change
		userError string
	}{
		"Reserved": {
			reason: "everything is as requested", request: testRequest(nil), states: []kea.State{there(own("10.77.0.50")), there(own("10.77.0.50"))},
			address: "10.77.0.50", changes: []kea.Change{{}, {}},
		},
		"OneServerLacksIt": {
			reason: "a missing server gets the reservation", request: testRequest(nil), states: []kea.State{there(own("10.77.0.50")), there()},
			address: "10.77.0.50", changes: []kea.Change{{}, {Add: []kea.Reservation{own("10.77.0.50")}}},
		},
		"ServersDisagree": {
			reason: "the address that the machine already has is kept", request: testRequest(func(w *request) { w.interfaces[0].current = addr("10.77.0.60") }),
			states:  []kea.State{there(own("10.77.0.50")), there(own("10.77.0.60"))},
			address: "10.77.0.60", changes: []kea.Change{{Update: []kea.Reservation{own("10.77.0.60")}}, {}},
		},
		"TakenOnTheOther": {
			reason: "an address that another owner has too is released", request: testRequest(nil),
			states:  []kea.State{there(own("10.77.0.50")), leased(there(others(macB, "10.77.0.50")), kea.Lease{MAC: macA, Address: addr("10.77.0.70")})},
			address: "10.77.0.70", changes: []kea.Change{{Update: []kea.Reservation{own("10.77.0.70")}}, {Add: []kea.Reservation{own("10.77.0.70")}}},
		},
		"Lost": {
			reason: "a server that lost its reservations gets the same address again", request: testRequest(func(w *request) { w.interfaces[0].current = addr("10.77.0.60") }),
			states: []kea.State{there()}, address: "10.77.0.60", changes: []kea.Change{{Add: []kea.Reservation{own("10.77.0.60")}}},
		},
		"Lease": {
			reason: "a machine keeps the address of its lease", request: testRequest(nil),
			states: []kea.State{leased(there(), kea.Lease{MAC: macA, Address: addr("10.77.0.123")})}, address: "10.77.0.123", changes: []kea.Change{{Add: []kea.Reservation{own("10.77.0.123")}}},
		},
		"LeaseOutside": {
			reason: "a lease in another network is ignored", request: testRequest(func(w *request) { w.interfaces[0].requested = addr("10.77.0.9") }),
			states: []kea.State{leased(there(), kea.Lease{MAC: macA, Address: addr("10.99.0.123")})}, address: "10.77.0.9", changes: []kea.Change{{Add: []kea.Reservation{own("10.77.0.9")}}},
		},
		"OtherLease": {
			reason: "an own reservation takes precedence over a lease, which expires", request: testRequest(nil),
			states: []kea.State{leased(there(own("10.77.0.50")), kea.Lease{MAC: macB, Address: addr("10.77.0.50")})}, address: "10.77.0.50", changes: []kea.Change{{}},
		},
		"Terms": {
			reason: "the network's DNS servers have changed", request: testRequest(nil),
			states: []kea.State{there(oldTerms)}, address: "10.77.0.50", changes: []kea.Change{{Update: []kea.Reservation{own("10.77.0.50")}}},
		},
		"Predecessor": {
			reason: "a second object of the same name in the same network cannot exist", request: testRequest(nil),
			states: []kea.State{there(predecessor)}, address: "10.77.0.50", changes: []kea.Change{{Update: []kea.Reservation{own("10.77.0.50")}}},
		},
		"Former": {
			reason: "a restored object adopts the reservation of its former UIDs", request: testRequest(func(w *request) {
				w.uid, w.network, w.former, w.formerNetworks = "u2", "n2", []string{"u1"}, []string{"n1"}
			}),
			states: []kea.State{there(own("10.77.0.50"))}, address: "10.77.0.50",
			changes: []kea.Change{{Update: []kea.Reservation{func() kea.Reservation {
				r := own("10.77.0.50")
				r.Owner.UID, r.Owner.Network = "u2", "n2"
				return r
			}()}}},
		},
		"FormerOfNetwork": {
			reason: "in a restored network, the name is proof as before", request: testRequest(func(w *request) {
				w.uid, w.network, w.formerNetworks = "u2", "n2", []string{"n1"}
			}),
			states: []kea.State{there(own("10.77.0.50"))}, address: "10.77.0.50",
			changes: []kea.Change{{Update: []kea.Reservation{func() kea.Reservation {
				r := own("10.77.0.50")
				r.Owner.UID, r.Owner.Network = "u2", "n2"
				return r
			}()}}},
		},
		"AdoptedByOther": {
			reason:  "a NetworkConfiguration whose reservation was adopted does not take it back",
			request: testRequest(nil), states: []kea.State{there(func() kea.Reservation {
				r := own("10.77.0.50")
				r.Owner.UID, r.Owner.Network = "u2", "n2"
				return r
			}())}, userError: "DuplicateMACAddress: MAC address " + macA + " of interface eth0 is also that of NetworkConfiguration ns/vm",
		},
		"Unmarked": {
			reason:  "an administrator has it adopt the reservation of the kea-operator",
			request: testRequest(func(w *request) { w.unmarked, w.interfaces[0].current = true, addr("10.77.0.50") }),
			states:  []kea.State{there(others(macA, "10.77.0.50"), others(macB, "10.77.0.51"))}, address: "10.77.0.50",
			changes: []kea.Change{{Update: []kea.Reservation{own("10.77.0.50")}}},
		},
		"UnmarkedOtherAddress": {
			reason:  "the reservation has another address than the machine, so a person has to decide",
			request: testRequest(func(w *request) { w.unmarked, w.interfaces[0].current = true, addr("10.77.0.50") }),
			states:  []kea.State{there(others(macA, "10.77.0.60"))}, userError: "ForeignReservation: Kea has a reservation of 10.77.0.60",
		},
		"OtherMAC": {
			reason: "a removed interface releases its reservation", request: testRequest(func(w *request) {
				w.interfaces[0].mac, w.interfaces[0].requested = macB, addr("10.77.0.9")
			}),
			states: []kea.State{there(own("10.77.0.50"))}, address: "10.77.0.9",
			changes: []kea.Change{{Remove: []kea.Reservation{own("10.77.0.50")}, Add: []kea.Reservation{func() kea.Reservation {
				r := own("10.77.0.9")
				r.Client.Value = macB
				return r
			}()}}},
		},
		"MACOfAsked": {
			reason: "an interface that requests its address keeps it under another MAC address", request: nics(asking(macB, "10.77.0.50")),
			states: []kea.State{leased(there(own("10.77.0.50")), kea.Lease{MAC: macA, Address: addr("10.77.0.50")})}, address: "10.77.0.50",
			changes: []kea.Change{{Remove: []kea.Reservation{own("10.77.0.50")}, Add: []kea.Reservation{holds(asking(macB, "10.77.0.50"), "10.77.0.50")}}},
		},
		"MACOnOneServer": {
			reason: "the other server lacks the reservation", request: nics(asking(macB, "10.77.0.50")),
			states: []kea.State{there(holds(asking(macB, "10.77.0.50"), "10.77.0.50")), there(own("10.77.0.50"))}, address: "10.77.0.50",
			changes: []kea.Change{{}, {Remove: []kea.Reservation{own("10.77.0.50")}, Add: []kea.Reservation{holds(asking(macB, "10.77.0.50"), "10.77.0.50")}}},
		},
		"MACOfAnother": {
			reason: "another owner has it on the other server", request: nics(asking(macB, "10.77.0.50")),
			states: []kea.State{there(own("10.77.0.50")), there(others(macC, "10.77.0.50"))}, userError: "AddressTaken: interface eth0 requests 10.77.0.50, which has a reservation of hw-address " + macC,
		},
		"MACOfHad": {
			reason: "an unused address is released with its interface", request: nics(had(macB, "10.77.0.50")), states: []kea.State{there(own("10.77.0.50"))}, address: "10.77.0.50",
			changes: []kea.Change{{Remove: []kea.Reservation{own("10.77.0.50")}, Add: []kea.Reservation{holds(asking(macB, "10.77.0.50"), "10.77.0.50")}}},
		},
		"MACOfLeased": {
			reason: "Kea offers the address to no other client before the lease ends", request: nics(had(macB, "10.77.0.50")),
			states:  []kea.State{leased(there(own("10.77.0.50")), kea.Lease{MAC: macA, Address: addr("10.77.0.50")}, kea.Lease{MAC: macB, Address: addr("10.77.0.70")})},
			address: "10.77.0.70", changes: []kea.Change{{Remove: []kea.Reservation{own("10.77.0.50")}, Add: []kea.Reservation{holds(had(macB, "10.77.0.50"), "10.77.0.70")}}},
		},
		"Exchange": {
			reason: "two interfaces request each other's address", request: nics(asking(macA, "10.77.0.51"), second(asking(macB, "10.77.0.50"))),
			states: []kea.State{there(own("10.77.0.50"), holds(second(asking(macB, "10.77.0.51")), "10.77.0.51"))}, address: "10.77.0.51 10.77.0.50",
			changes: []kea.Change{{Update: []kea.Reservation{own("10.77.0.51"), holds(second(asking(macB, "10.77.0.50")), "10.77.0.50")}}},
		},
		"HandedOn": {
			reason: "a request takes precedence over an earlier holder", request: nics(had(macC, "10.77.0.50"), second(asking(macB, "10.77.0.50"))),
			states: []kea.State{leased(there(own("10.77.0.50")), kea.Lease{MAC: macC, Address: addr("10.77.0.70")})}, address: "10.77.0.70 10.77.0.50",
			changes: []kea.Change{{
				Remove: []kea.Reservation{own("10.77.0.50")},
				Add:    []kea.Reservation{holds(had(macC, "10.77.0.50"), "10.77.0.70"), holds(second(asking(macB, "10.77.0.50")), "10.77.0.50")},
			}},
		},
		"BothAsk": {
			reason: "a released address is allocated once", request: nics(asking(macB, "10.77.0.50"), second(asking(macC, "10.77.0.50"))),
			states: []kea.State{there(own("10.77.0.50"))}, userError: "AddressTaken: interface eth1 requests 10.77.0.50, which has interface eth0",
		},
		"KeptByItsOwn": {
			reason: "an interface without a request keeps its address", request: nics(had(macA, "10.77.0.50"), second(asking(macB, "10.77.0.50"))),
			states: []kea.State{there(own("10.77.0.50"))}, userError: "AddressTaken: interface eth1 requests 10.77.0.50, which has NetworkConfiguration ns/vm",
		},
		"Twice": {
			reason: "a database and the configuration may both have it", request: testRequest(nil),
			states: []kea.State{there(own("10.77.0.50"), own("10.77.0.50"))}, address: "10.77.0.50", changes: []kea.Change{{}},
		},
		"OutsideNow": {
			reason: "the network has moved", request: testRequest(func(w *request) { w.interfaces[0].requested = addr("10.77.0.9") }),
			states: []kea.State{there(own("10.99.0.50"))}, address: "10.77.0.9", changes: []kea.Change{{Update: []kea.Reservation{own("10.77.0.9")}}},
		},
		"Foreign": {
			reason: "a reservation of another owner is never changed", request: testRequest(nil), states: []kea.State{there(), there(others(macA, ""))},
			userError: `ForeignReservation: Kea has a reservation of no address for hw-address 52:54:00:00:00:0a`,
		},
		"Kept": {
			reason: "the endpoint's address may be the address of its only node", request: testRequest(func(w *request) {
				w.interfaces[0].requested, w.reserved = addr("10.77.0.9"), map[netip.Addr]bool{addr("10.77.0.9"): true}
			}),
			states: []kea.State{there()}, address: "10.77.0.9", changes: []kea.Change{{Add: []kea.Reservation{own("10.77.0.9")}}},
		},
		"Gateway": {
			reason: "the address of the gateway is never allocated", request: testRequest(func(w *request) { w.interfaces[0].requested = addr("10.77.0.1") }),
			states: []kea.State{there()}, userError: "AddressOutsidePool: interface eth0 requests 10.77.0.1, which is not a usable address of 10.77.0.0/24",
		},
		"LeasedToAnother": {
			reason: "another client has a lease of it", request: testRequest(func(w *request) { w.interfaces[0].requested = addr("10.77.0.9") }),
			states: []kea.State{there(), leased(there(), kea.Lease{MAC: macB, Address: addr("10.77.0.9")})}, userError: "AddressTaken: interface eth0 requests 10.77.0.9, which has a lease of " + macB,
		},
		"NoSubnet": {
			reason: "a server without subnet_cmds cannot create a subnet", request: testRequest(nil), states: []kea.State{{}},
			userError: "SubnetMissing: Kea has no subnet that contains 10.77.0.0/24: load libdhcp_subnet_cmds.so so that the stack can make it, or add one and have the platform team add 10.77.0.0/24 to KEA_ALLOWED_SUBNETS",
		},
		"NewSubnet": {
			reason: "two servers of one network need the same ID", request: testRequest(func(w *request) { w.interfaces[0].requested = addr("10.77.0.9") }),
			states: []kea.State{{CanCreateSubnet: true}, there()}, address: "10.77.0.9",
			changes: []kea.Change{
				{Create: &kea.SubnetSpec{Subnet: kea.Subnet{ID: 7, Prefix: segment}, Routers: "10.77.0.1", Network: "n1"}, Add: []kea.Reservation{own("10.77.0.9")}},
				{Add: []kea.Reservation{own("10.77.0.9")}},
			},
		},
	}
	for name, tc := range cases {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			got, err := planReservations(tc.request, tc.states)
			var no reconcile.UserError
			if errors.As(err, &no); tc.userError != "" {
				if !strings.HasPrefix(no.Error(), tc.userError) {
					t.Errorf("%s: got %v, %v", tc.reason, got, err)
				}
				return
			}
			if err != nil || fmt.Sprint(got.addresses) != "["+tc.address+"]" {
				t.Fatalf("%s: got %v, error %v", tc.reason, got.addresses, err)
			}
			if diff := cmp.Diff(tc.changes, got.changes, cmp.AllowUnexported(kea.Change{}, kea.SubnetSpec{}, kea.Subnet{}, kea.Reservation{}, kea.Identifier{}),
				cmp.Comparer(func(a, b netip.Addr) bool { return a == b }), cmp.Comparer(func(a, b netip.Prefix) bool { return a == b })); diff != "" {
				t.Errorf("%s: changes (-want +got):\n%s", tc.reason, diff)
			}
		})
	}
}

func TestPick(t *testing.T) {
	t.Parallel()
	w := testRequest(func(w *request) { w.prefix = netip.MustParsePrefix("10.77.0.0/28"); w.gateway = addr("10.77.0.1") })
	taken := map[netip.Addr]bool{}
	for range 13 {
		a, ok := pick(w.prefix, "u1/eth0", func(a netip.Addr) bool { return !taken[a] && w.isUsable(a) })
		if !ok || !w.isUsable(a) || taken[a] {
			t.Fatalf("got %s, %t with %v taken", a, ok, taken)
		}
		taken[a] = true
	}
	if a, ok := pick(w.prefix, "u1/eth0", func(a netip.Addr) bool { return !taken[a] && w.isUsable(a) }); ok {
		t.Errorf("a network with 13 usable addresses allocated a 14th: %s", a)
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
			t.Errorf("%s has no broadcast address, but %s is not usable", p, p.Addr())
		}
	}
}
