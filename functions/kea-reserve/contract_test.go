package main

import (
	"net/netip"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/vitistack/stack/apis/v1alpha1"
	"github.com/vitistack/stack/apis/v1alpha2"
	"github.com/vitistack/stack/events"
	"github.com/vitistack/stack/functions/internal/network"
	stand "github.com/vitistack/stack/tests/stand/kea"
)

const macA, macB = "52:54:00:00:00:0a", "52:54:00:00:00:0b"

func TestReserve(t *testing.T) {
	onEach(t, stand.Options{}, func(t *testing.T, b backend) {
		w := newEnv(t, []string{b.URL()})
		w.network("net", "10.77.0.0/24", nil)
		w.configuration("vm", []string{macA, "52-54-00-00-00-0B"}, nil)
		nc := w.reconcile("vm")
		first, second := addressOf(t, nc, 0), addressOf(t, nc, 1)
		want := v1alpha1.NetworkConfigurationStatus{
			Phase: v1alpha1.NetworkConfigurationReady, Status: "OK", Message: "Kea has a reservation for every interface",
			ObservedGeneration: 1, NetworkNamespaceName: "net",
		}
		var interfaces []v1alpha1.InterfaceStatus
		for i, address := range []string{first, second} {
			interfaces = append(interfaces, v1alpha1.InterfaceStatus{
				Name: nc.Spec.NetworkInterfaces[i].Name, MACAddress: nc.Spec.NetworkInterfaces[i].MACAddress,
				IPv4Addresses: []string{address}, VLAN: "42", IPv4Subnet: "10.77.0.0/24", IPv4Gateway: "10.77.0.1",
				DNS: []string{"10.9.9.9"}, DHCPReserved: true, IPAllocated: true, AllocationMethod: v1alpha2.AllocationDHCP,
			})
		}
		want.SetInterfaces(interfaces)
		got := nc.Status
		got.Conditions = nil
		if diff := cmp.Diff(want, got); diff != "" {
			t.Errorf("status (-want +got):\n%s", diff)
		}
		if first == second {
			t.Errorf("both interfaces have %s", first)
		}
		b.Restart(t)
		for mac, want := range map[string]string{macA: first, macB: second} {
			offer, err := b.Lease(t.Context(), mac, netip.MustParseAddr("10.77.0.1"))
			if err != nil {
				t.Fatalf("%s gets no address after a restart: %v", mac, err)
			}
			if offer.Address.String() != want || offer.Mask != 24 ||
				!cmp.Equal(offer.Routers, []netip.Addr{netip.MustParseAddr("10.77.0.1")}, cmp.Comparer(sameAddress)) ||
				!cmp.Equal(offer.DNS, []netip.Addr{netip.MustParseAddr("10.9.9.9")}, cmp.Comparer(sameAddress)) {
				t.Errorf("%s got %+v by DHCP, want %s with the network's gateway and DNS", mac, offer, want)
			}
		}
	})
}

func sameAddress(a, b netip.Addr) bool { return a == b }

func TestRedelivery(t *testing.T) {
	onEach(t, stand.Options{}, func(t *testing.T, b backend) {
		w := newEnv(t, []string{b.URL()})
		w.network("net", "10.77.0.0/24", nil)
		w.configuration("vm", []string{macA}, nil)
		first, there := w.reconcile("vm"), hosts(t, b)
		for _, eventType := range []string{events.TypeRefAdd, events.TypeRefUpdate, events.TypeResync, events.TypeResync} {
			w.must(w.deliver("NetworkConfiguration", "vm", eventType))
		}
		if again := w.get("vm"); again.ResourceVersion != first.ResourceVersion {
			t.Errorf("a repeated delivery wrote a difference: %s", cmp.Diff(first, again))
		}
		if diff := cmp.Diff(there, hosts(t, b)); diff != "" {
			t.Errorf("a repeated delivery changed Kea (-want +got):\n%s", diff)
		}
	})
}

// forget removes all reservations from a server with one subnet, as an administrator may.
func forget(t *testing.T, b backend, subnet stand.Subnet) {
	t.Helper()
	var config map[string]any
	if _, err := b.Command(t.Context(), "config-get", nil, &config); err != nil {
		t.Fatal(err)
	}
	dhcp4 := config["Dhcp4"].(map[string]any)
	dhcp4["subnet4"] = []stand.Subnet{subnet}
	if result, err := b.Command(t.Context(), "config-set", map[string]any{"Dhcp4": dhcp4}, nil); err != nil || result != 0 {
		t.Fatalf("config-set: result %d, error %v", result, err)
	}
}

// TestRepair removes a reservation from Kea by hand.
func TestRepair(t *testing.T) {
	onEach(t, stand.Options{Subnets: []stand.Subnet{{ID: 7, Subnet: "10.77.0.0/24"}}}, func(t *testing.T, b backend) {
		w := newEnv(t, []string{b.URL()})
		w.network("net", "10.77.0.0/24", nil)
		w.configuration("vm", []string{macA}, nil)
		want := addressOf(t, w.reconcile("vm"), 0)
		forget(t, b, stand.Subnet{ID: 7, Subnet: "10.77.0.0/24"})
		w.must(w.deliver("NetworkConfiguration", "vm", events.TypeResync))
		if got := hosts(t, b)[macA]; got != want {
			t.Errorf("after a resync the reservation has %q, want %s again", got, want)
		}
	})
}

func TestSubnets(t *testing.T) {
	cases := map[string]struct {
		reason  string
		subnets []stand.Subnet
		shared  map[string][]stand.Subnet
		network string
		ready   string
		in      uint32
	}{
		"Missing": {reason: "the subnet is created, with the same ID on every server", network: "10.77.0.0/24", in: 10<<24 + 77<<16},
		"Same":    {reason: "the subnet exists", subnets: []stand.Subnet{{ID: 7, Subnet: "10.77.0.0/24"}}, network: "10.77.0.0/24", in: 7},
		"Within":  {reason: "the network is a part of a subnet", subnets: []stand.Subnet{{ID: 7, Subnet: "10.77.0.0/16"}}, network: "10.77.5.0/24", in: 7},
		"Closest": {reason: "Kea serves clients from the subnet with the lowest ID", subnets: []stand.Subnet{{ID: 9, Subnet: "10.0.0.0/8"}, {ID: 8, Subnet: "10.77.0.0/16"}}, network: "10.77.5.0/24", in: 8},
		"Floor": {
			reason: "Kea finds a reservation in every subnet of a shared network", network: "10.77.5.0/24", in: 8,
			shared: map[string][]stand.Subnet{"floor": {{ID: 7, Subnet: "10.0.0.0/8"}, {ID: 8, Subnet: "10.77.0.0/16"}}},
		},
		"Hidden": {
			reason: "Kea would serve clients from another subnet", subnets: []stand.Subnet{{ID: 7, Subnet: "10.0.0.0/8"}, {ID: 8, Subnet: "10.77.5.0/24"}}, network: "10.77.5.0/24",
			ready: "False SubnetOverlap: Kea serves clients of 10.77.5.0/24 from subnet 10.0.0.0/8 (id 7) and not from 10.77.5.0/24 (id 8), because its id is lower: " +
				"give 10.77.5.0/24 the lower id, or remove 10.0.0.0/8",
		},
		"Shared":    {reason: "a subnet of a shared network counts as well", shared: map[string][]stand.Subnet{"floor": {{ID: 9, Subnet: "10.77.0.0/24"}}}, network: "10.77.0.0/24", in: 9},
		"Elsewhere": {reason: "other subnets have no effect", subnets: []stand.Subnet{{ID: 7, Subnet: "10.78.0.0/24"}}, network: "10.77.0.0/24", in: 10<<24 + 77<<16},
		"Part": {
			reason: "Kea would serve only a part of the network", subnets: []stand.Subnet{{ID: 7, Subnet: "10.77.0.0/25"}}, network: "10.77.0.0/24",
			ready: "False SubnetOverlap: Kea has subnet 10.77.0.0/25 (id 7), which covers only a part of 10.77.0.0/24: remove it, or give it that prefix and have the platform team add 10.77.0.0/24 to KEA_ALLOWED_SUBNETS (kea.allowedSubnets of the chart)",
		},
	}
	t.Parallel()
	for name, tc := range cases {
		t.Run(name, func(t *testing.T) {
			onEach(t, stand.Options{Subnets: tc.subnets, SharedNetworks: tc.shared}, func(t *testing.T, b backend) {
				w := newEnv(t, []string{b.URL()})
				w.network("net", tc.network, nil)
				w.configuration("vm", []string{macA}, nil)
				nc := w.reconcile("vm")
				if tc.ready != "" {
					if ready(nc) != tc.ready || len(hosts(t, b)) != 0 || nc.Status.Phase != v1alpha1.NetworkConfigurationError {
						t.Errorf("%s: got phase %s, Ready %s", tc.reason, nc.Status.Phase, ready(nc))
					}
					return
				}
				address := netip.MustParseAddr(addressOf(t, nc, 0))
				all := reservationsOf(t, b)
				if len(all) != 1 || all[0].Subnet != tc.in || all[0].Address != address || !netip.MustParsePrefix(tc.network).Contains(address) {
					t.Errorf("%s: got %v in Kea, and %s in the status", tc.reason, all, address)
				}
				if offer, err := b.Lease(t.Context(), macA, netip.MustParsePrefix(tc.network).Addr().Next()); err != nil || offer.Address != address {
					t.Errorf("%s: DHCP gives %+v, error %v, want %s", tc.reason, offer, err, address)
				}
			})
		})
	}
}

func TestLeases(t *testing.T) {
	options := stand.Options{Subnets: []stand.Subnet{{ID: 7, Subnet: "10.77.0.0/24"}, {ID: 8, Subnet: "10.78.0.0/29"}}}
	onEach(t, options, func(t *testing.T, b backend) {
		lease := func(mac, address string, subnet int) {
			t.Helper()
			arguments := map[string]any{"ip-address": address, "hw-address": mac, "subnet-id": subnet}
			if result, err := b.Command(t.Context(), "lease4-add", arguments, nil); err != nil || result != 0 {
				t.Fatalf("lease4-add: result %d, error %v", result, err)
			}
		}
		w := newEnv(t, []string{b.URL()})
		w.network("net", "10.77.0.0/24", nil)
		w.network("small", "10.78.0.0/29", nil)
		lease(macA, "10.77.0.123", 7)
		in := func(network string) func(*v1alpha1.NetworkConfiguration) {
			return func(nc *v1alpha1.NetworkConfiguration) { nc.Spec.NetworkNamespaceName = network }
		}
		w.configuration("had", []string{macA}, in("net"))
		if got := addressOf(t, w.reconcile("had"), 0); got != "10.77.0.123" {
			t.Errorf("a machine with a lease of 10.77.0.123 has a reservation of %s", got)
		}
		for _, address := range []string{"10.78.0.2", "10.78.0.3", "10.78.0.5", "10.78.0.6"} {
			lease("52:54:00:00:01:0"+address[8:], address, 8)
		}
		w.configuration("new", []string{macB}, in("small"))
		if got := addressOf(t, w.reconcile("new"), 0); got != "10.78.0.4" {
			t.Errorf("got %s, want 10.78.0.4, the only free address", got)
		}
	})
}

func TestForeign(t *testing.T) {
	held := []stand.Reservation{
		{HWAddress: macA, IPAddress: "10.77.0.50"},
		{ClientID: "01:02:03", IPAddress: "10.77.0.60"},
		{HWAddress: "52:54:00:00:09:01", IPAddress: "10.77.0.70", UserContext: map[string]any{"vitistack.io/uid": "x", "vitistack.io/networkconfiguration": "other/vm"}},
	}
	options := stand.Options{Subnets: []stand.Subnet{{ID: 7, Subnet: "10.77.0.0/24", Reservations: held}}}
	onEach(t, options, func(t *testing.T, b backend) {
		w := newEnv(t, []string{b.URL()})
		w.network("net", "10.77.0.0/24", nil)
		asking := func(address string) func(*v1alpha1.NetworkConfiguration) {
			return func(nc *v1alpha1.NetworkConfiguration) {
				nc.Spec.NetworkInterfaces[0].IPv4Addresses = []v1alpha2.IPv4Address{v1alpha2.IPv4Address(address)}
			}
		}
		before := hosts(t, b)
		mine := w.configuration("mine", []string{macA}, nil)
		w.configuration("taken", []string{macB}, asking("10.77.0.60"))
		w.configuration("marked", []string{macB}, asking("10.77.0.70"))
		w.configuration("gateway", []string{macB}, asking("10.77.0.1"))
		for name, want := range map[string]string{
			"mine": "False ForeignReservation: Kea has a reservation of 10.77.0.50 for hw-address " + macA +
				" that this stack did not make: remove it, or set \"vitistack.io/uid\" in its user-context to " + string(mine.UID) + " to hand it over",
			"taken":   "False AddressTaken: interface eth0 requests 10.77.0.60, which has a reservation of client-id 010203: request another address, or remove it from the interface",
			"marked":  "False AddressTaken: interface eth0 requests 10.77.0.70, which has NetworkConfiguration other/vm: request another address, or remove it from the interface",
			"gateway": "False AddressOutsidePool: interface eth0 requests 10.77.0.1, which is not a usable address of 10.77.0.0/24: request another address, or remove it from the interface",
		} {
			nc := w.reconcile(name)
			if strings.ReplaceAll(ready(nc), "01:02:03", "010203") != want || nc.Status.Phase != v1alpha1.NetworkConfigurationError || nc.Status.NextCheckTime == nil {
				t.Errorf("%s: got phase %s, next check %v, Ready %s, want %s", name, nc.Status.Phase, nc.Status.NextCheckTime, ready(nc), want)
			}
		}
		if diff := cmp.Diff(before, hosts(t, b)); diff != "" {
			t.Errorf("reservations of another owner changed (-want +got):\n%s", diff)
		}
		w.delete("mine")
		w.must(w.deliver("NetworkConfiguration", "mine", events.TypeRefUpdate))
		if diff := cmp.Diff(before, hosts(t, b)); diff != "" || !w.isDeleted("mine") {
			t.Errorf("the deletion removed a reservation of another owner (-want +got):\n%s", diff)
		}
		w.configuration("free", []string{macB}, asking("10.77.0.80"))
		if got := addressOf(t, w.reconcile("free"), 0); got != "10.77.0.80" || hosts(t, b)[macB] != got {
			t.Errorf("the requested address is free, but got %s", got)
		}
	})
}

// TestExhausted allocates the only address of a network to a machine, which gets a lease of it, and releases it.
func TestExhausted(t *testing.T) {
	onEach(t, stand.Options{}, func(t *testing.T, b backend) {
		w := newEnv(t, []string{b.URL()})
		w.network("net", "10.77.0.0/30", nil)
		for i, name := range []string{"first", "second", "third"} {
			w.configuration(name, []string{macA[:16] + string(rune('a'+i))}, nil)
		}
		if got := addressOf(t, w.reconcile("first"), 0); got != "10.77.0.2" {
			t.Errorf("got %s, want 10.77.0.2, the only address other than network, gateway and broadcast", got)
		}
		if offer, err := b.Lease(t.Context(), macA, netip.MustParseAddr("10.77.0.1")); err != nil || offer.Address.String() != "10.77.0.2" {
			t.Errorf("DHCP gives %+v, error %v", offer, err)
		}
		for _, name := range []string{"third", "second"} {
			nc := w.reconcile(name)
			want := "False PoolExhausted: 10.77.0.0/30 has no free address: release one, or use a larger network"
			if ready(nc) != want || nc.Status.Phase != v1alpha1.NetworkConfigurationPending {
				t.Errorf("%s: got phase %s, Ready %s", name, nc.Status.Phase, ready(nc))
			}
		}
		w.delete("first")
		w.must(w.deliver("NetworkConfiguration", "first", events.TypeRefUpdate))
		if got := w.sentNames(t); !slices.Equal(got, []string{"NetworkConfiguration second"}) {
			t.Errorf("the release requeued %v, want the oldest request", got)
		}
		w.must(w.deliver("NetworkConfiguration", "second", events.TypeResync))
		if got := addressOf(t, w.get("second"), 0); got != "10.77.0.2" {
			t.Errorf("got %s, want the address that was released", got)
		}
		if got := w.sentNames(t); !slices.Equal(got, []string{"NetworkConfiguration third"}) {
			t.Errorf("the allocation requeued %v, want the next request", got)
		}
	})
}

func TestDelete(t *testing.T) {
	onEach(t, stand.Options{}, func(t *testing.T, b backend) {
		w := newEnv(t, []string{b.URL()})
		w.network("net", "10.77.0.0/24", nil)
		w.configuration("vm", []string{macA, macB}, nil)
		w.configuration("other", []string{"52:54:00:00:00:0c"}, nil)
		w.reconcile("vm")
		other := addressOf(t, w.reconcile("other"), 0)
		w.delete("vm")
		if w.isDeleted("vm") {
			t.Fatal("the finalizer does not keep it")
		}
		for range 2 {
			w.must(w.deliver("NetworkConfiguration", "vm", events.TypeRefUpdate))
		}
		if !w.isDeleted("vm") {
			t.Errorf("it still exists: %s", ready(w.get("vm")))
		}
		b.Restart(t)
		if diff := cmp.Diff(map[string]string{"52:54:00:00:00:0c": other}, hosts(t, b)); diff != "" {
			t.Errorf("reservations after a restart (-want +got):\n%s", diff)
		}
	})
}

// TestDeleteInUse deletes a NetworkConfiguration that a machine uses.
func TestDeleteInUse(t *testing.T) {
	onEach(t, stand.Options{}, func(t *testing.T, b backend) {
		w := newEnv(t, []string{b.URL()})
		w.network("net", "10.77.0.0/24", nil)
		w.configuration("vm", []string{macA}, func(nc *v1alpha1.NetworkConfiguration) { network.AddUser(nc, "one") })
		w.reconcile("vm")
		there := hosts(t, b)
		w.delete("vm")
		for _, eventType := range []string{events.TypeRefUpdate, events.TypeResync} {
			w.must(w.deliver("NetworkConfiguration", "vm", eventType))
		}
		if diff := cmp.Diff(there, hosts(t, b)); diff != "" {
			t.Errorf("reservations while the Machine exists (-want +got):\n%s", diff)
		}
		nc := w.get("vm")
		before := nc.DeepCopy()
		network.RemoveUser(nc, "one")
		if _, err := w.kube.Patch(t.Context(), before, nc); err != nil {
			t.Fatal(err)
		}
		w.must(w.deliver("NetworkConfiguration", "vm", events.TypeRefUpdate))
		if left := hosts(t, b); !w.isDeleted("vm") || len(left) > 0 {
			t.Errorf("reservations %v are left after the deletion of the Machine", left)
		}
	})
}
