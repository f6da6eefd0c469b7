package main

import (
	"net/netip"
	"strings"
	"testing"

	"github.com/vitistack/stack/apis/v1alpha1"
	"github.com/vitistack/stack/events"
	"github.com/vitistack/stack/functions/kea-reserve/kea"
	stand "github.com/vitistack/stack/tests/stand/kea"
)

// TestSubnetsOfOthers has a tenant choose a prefix inside a subnet that another user has created in
// Kea.
func TestSubnetsOfOthers(t *testing.T) {
	t.Parallel()
	office := stand.Subnet{ID: 7, Subnet: "10.77.0.0/16", UserContext: map[string]any{"site": "office"}}
	made := office
	made.UserContext = map[string]any{kea.SubnetOwnerKey: "9f5b3b9e-8f6e-4a55-9a31-0c5f6f3a7d10"}
	shared := map[string][]stand.Subnet{"floor": {office}}
	for name, tc := range map[string]struct {
		reason  string
		options stand.Options
		network string
		allowed string
		refused bool
		mask    int
	}{
		"Within":       {reason: "the prefix is a part of the subnet", options: stand.Options{Subnets: []stand.Subnet{office}}, network: "10.77.5.0/24", refused: true},
		"Same":         {reason: "the prefix is that of the subnet", options: stand.Options{Subnets: []stand.Subnet{office}}, network: "10.77.0.0/16", refused: true},
		"Shared":       {reason: "the subnet is in a shared network", options: stand.Options{SharedNetworks: shared}, network: "10.77.5.0/24", refused: true},
		"OthersListed": {reason: "the list has other subnets", options: stand.Options{Subnets: []stand.Subnet{office}}, network: "10.77.5.0/24", allowed: "8, 10.77.5.0/24, 192.168.0.0/16", refused: true},
		"ByID":         {reason: "its id is listed", options: stand.Options{Subnets: []stand.Subnet{office}}, network: "10.77.5.0/24", allowed: "8, 7", mask: 16},
		"ByPrefix":     {reason: "its prefix is listed", options: stand.Options{Subnets: []stand.Subnet{office}}, network: "10.77.5.0/24", allowed: "10.77.0.0/16", mask: 16},
		"ByParent":     {reason: "it is inside a listed prefix", options: stand.Options{SharedNetworks: shared}, network: "10.77.5.0/24", allowed: "10.0.0.0/8", mask: 16},
		"OwnSubnet":    {reason: "this stack created it for a network that is deleted", options: stand.Options{Subnets: []stand.Subnet{made}}, network: "10.77.0.0/16", mask: 16},
		"OwnWider":     {reason: "this stack created it for a wider network, so that machines would get another mask", options: stand.Options{Subnets: []stand.Subnet{made}}, network: "10.77.5.0/24", refused: true},
	} {
		t.Run(name, func(t *testing.T) {
			onEach(t, tc.options, func(t *testing.T, b backend) {
				w := newEnv(t, []string{b.URL()}, allowedVariable+"="+tc.allowed)
				w.network("net", tc.network, nil)
				w.configuration("vm", []string{macA}, nil)
				nc := w.reconcile("vm")
				if !tc.refused {
					if got := hosts(t, b)[macA]; got == "" || got != addressOf(t, nc, 0) {
						t.Errorf("%s: Kea has %q, Ready %s", tc.reason, got, ready(nc))
					}
					if offer, err := b.Lease(t.Context(), macA, netip.MustParsePrefix(tc.network).Addr().Next()); err != nil || offer.Mask != tc.mask {
						t.Errorf("%s: DHCP gives %+v, error %v, want the mask %d", tc.reason, offer, err, tc.mask)
					}
					return
				}
				got := ready(nc)
				for _, part := range []string{"False SubnetNotAllowed: " + tc.network + " lies in subnet 10.77.0.0/16 (id 7) of Kea", "add 7 or 10.77.0.0/16 to KEA_ALLOWED_SUBNETS"} {
					if !strings.Contains(got, part) {
						t.Errorf("%s: Ready %s, want %q in it", tc.reason, got, part)
					}
				}
				if len(hosts(t, b)) != 0 || nc.Status.Phase != v1alpha1.NetworkConfigurationError {
					t.Errorf("%s: Kea has %v, phase %s", tc.reason, hosts(t, b), nc.Status.Phase)
				}
			})
		})
	}
}

// TestSubnetTakenOffTheList removes a subnet from the list. Existing reservations are kept and can be
// released.
func TestSubnetTakenOffTheList(t *testing.T) {
	onEach(t, stand.Options{Subnets: []stand.Subnet{{ID: 7, Subnet: "10.77.0.0/24"}}}, func(t *testing.T, b backend) {
		w := newEnv(t, []string{b.URL()}, allowedVariable+"=7")
		w.network("net", "10.77.0.0/24", nil)
		w.configuration("vm", []string{macA}, nil)
		address := addressOf(t, w.reconcile("vm"), 0)
		w.f = w.function([]string{b.URL()}, allowedVariable+"=")
		w.must(w.deliver("NetworkConfiguration", "vm", events.TypeResync))
		if nc := w.get("vm"); hosts(t, b)[macA] != address || !strings.HasPrefix(ready(nc), "True") {
			t.Errorf("Kea has %v, Ready %s: the machine uses %s", hosts(t, b), ready(nc), address)
		}
		w.configuration("new", []string{macB}, nil)
		if got := ready(w.reconcile("new")); !strings.Contains(got, "SubnetNotAllowed") {
			t.Errorf("a new interface: Ready %s", got)
		}
		w.delete("vm")
		w.must(w.deliver("NetworkConfiguration", "vm", events.TypeRefUpdate))
		if !w.isDeleted("vm") || len(hosts(t, b)) != 0 {
			t.Errorf("its reservation cannot be released: Kea has %v", hosts(t, b))
		}
	})
}

func TestSubnetList(t *testing.T) {
	t.Parallel()
	l, err := parseSubnetList(" 7, 10.20.0.0/16 ,,2001:db8::/32")
	if err != nil {
		t.Fatal(err)
	}
	for name, tc := range map[string]struct {
		reason string
		subnet kea.Subnet
		want   bool
	}{
		"ID":     {"its id is listed", kea.Subnet{ID: 7, Prefix: netip.MustParsePrefix("192.0.2.0/24")}, true},
		"Prefix": {"its prefix is listed", kea.Subnet{ID: 8, Prefix: netip.MustParsePrefix("10.20.0.0/16")}, true},
		"Within": {"it is inside a listed prefix", kea.Subnet{ID: 8, Prefix: netip.MustParsePrefix("10.20.3.0/24")}, true},
		"Wider":  {"it is wider than the listed prefix", kea.Subnet{ID: 8, Prefix: netip.MustParsePrefix("10.0.0.0/8")}, false},
		"Other":  {"it is another subnet", kea.Subnet{ID: 8, Prefix: netip.MustParsePrefix("10.21.0.0/24")}, false},
	} {
		if got := l.contain(tc.subnet); got != tc.want {
			t.Errorf("%s: %s: got %t", name, tc.reason, got)
		}
	}
	if _, err := parseSubnetList("all"); err == nil || !strings.Contains(err.Error(), `read KEA_ALLOWED_SUBNETS: "all" is no subnet: write ids and prefixes`) {
		t.Errorf("got %v", err)
	}
}
