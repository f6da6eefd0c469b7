package main

import (
	"net/netip"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"sigs.k8s.io/yaml"

	"github.com/vitistack/stack/functions/create-vm/hypervisor"
	"github.com/vitistack/stack/tests/stand/cloudinit"
)

// aNIC returns an interface with addresses. If routed is true, the first address of each prefix is a
// gateway.
func aNIC(name, mac string, static, routed bool, addresses ...string) hypervisor.NIC {
	n := hypervisor.NIC{Name: name, MAC: mac, Static: static}
	for _, text := range addresses {
		p := netip.MustParsePrefix(text)
		n.Addresses = append(n.Addresses, p)
		if routed {
			n.Gateways = append(n.Gateways, p.Masked().Addr().Next())
		}
	}
	return n
}

func TestNetworkConfig(t *testing.T) {
	t.Parallel()
	const mac1, mac2 = "02:00:00:00:00:01", "02:00:00:00:00:02"
	type ethernet = map[string]any
	match := func(mac string) map[string]any { return map[string]any{"macaddress": mac} }
	static := func(name, mac string, fields ethernet) ethernet {
		e := ethernet{"match": match(mac), "set-name": name, "dhcp4": false, "dhcp6": false}
		for k, v := range fields {
			e[k] = v
		}
		return e
	}
	leased := func(name, mac string, fields ethernet) ethernet {
		e := static(name, mac, fields)
		e["dhcp4"] = true
		return e
	}
	for name, tc := range map[string]struct {
		reason string
		nics   []hypervisor.NIC
		want   map[string]any
	}{
		"Lease": {
			reason: "a guest requests one lease by default",
			nics:   []hypervisor.NIC{aNIC("eth0", mac1, false, true, "10.0.0.5/24")},
		},
		"Static": {
			reason: "the configuration has everything, with IPv6 in the form that every version of cloud-init reads",
			nics:   []hypervisor.NIC{aNIC("eth0", mac1, true, true, "10.0.0.5/24", "2001:db8::5/64")},
			want: map[string]any{"eth0": static("eth0", mac1, ethernet{
				"addresses": []any{"10.0.0.5/24", "2001:db8::5/64"}, "gateway4": "10.0.0.1", "gateway6": "2001:db8::1",
			})},
		},
		"TwoStatic": {
			reason: "two default routes with one metric are rejected, so the first interface has it",
			nics:   []hypervisor.NIC{aNIC("eth0", mac1, true, true, "10.0.0.5/24"), aNIC("eth1", mac2, true, true, "10.1.0.5/24")},
			want: map[string]any{
				"eth0": static("eth0", mac1, ethernet{"addresses": []any{"10.0.0.5/24"}, "gateway4": "10.0.0.1"}),
				"eth1": static("eth1", mac2, ethernet{"addresses": []any{"10.1.0.5/24"}}),
			},
		},
		"NoGatewayFirst": {
			reason: "an interface without a gateway leaves the default route to the next one",
			nics:   []hypervisor.NIC{aNIC("eth0", mac1, true, false, "10.0.0.5/24"), aNIC("eth1", mac2, true, true, "10.1.0.5/24")},
			want: map[string]any{
				"eth0": static("eth0", mac1, ethernet{"addresses": []any{"10.0.0.5/24"}}),
				"eth1": static("eth1", mac2, ethernet{"addresses": []any{"10.1.0.5/24"}, "gateway4": "10.1.0.1"}),
			},
		},
		"StaticAndLease": {
			reason: "cloud-init does not set up an interface without an entry",
			nics:   []hypervisor.NIC{aNIC("eth0", mac1, true, true, "10.0.0.5/24"), aNIC("eth1", mac2, false, true, "10.1.0.5/24")},
			want: map[string]any{
				"eth0": static("eth0", mac1, ethernet{"addresses": []any{"10.0.0.5/24"}, "gateway4": "10.0.0.1"}),
				"eth1": leased("eth1", mac2, ethernet{"dhcp4-overrides": map[string]any{"route-metric": 4096.}}),
			},
		},
		"LeaseAndStatic": {
			reason: "the default route comes with the lease",
			nics:   []hypervisor.NIC{aNIC("eth0", mac1, false, true, "10.0.0.5/24"), aNIC("eth1", mac2, true, true, "10.1.0.5/24")},
			want: map[string]any{
				"eth0": leased("eth0", mac1, nil),
				"eth1": static("eth1", mac2, ethernet{"addresses": []any{"10.1.0.5/24"}}),
			},
		},
		"TwoLeases": {
			reason: "a guest without a configuration requests a lease on its first interface only",
			nics:   []hypervisor.NIC{aNIC("eth0", mac1, false, true, "10.0.0.5/24"), aNIC("eth1", mac2, false, true, "10.1.0.5/24")},
			want: map[string]any{
				"eth0": leased("eth0", mac1, nil),
				"eth1": leased("eth1", mac2, ethernet{"dhcp4-overrides": map[string]any{"route-metric": 4096.}}),
			},
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			text, err := networkData(assignDefaultRoutes(tc.nics))
			if err != nil {
				t.Fatal(err)
			}
			var got struct{ Ethernets map[string]any }
			if err := yaml.Unmarshal([]byte(text), &got); err != nil {
				t.Fatal(err)
			}
			if diff := cmp.Diff(tc.want, got.Ethernets); diff != "" {
				t.Errorf("%s (-want +got):\n%s", tc.reason, diff)
			}
		})
	}
}

// TestNetworkConfigIsRead renders configurations with Debian's cloud-init and netplan.
func TestNetworkConfigIsRead(t *testing.T) {
	t.Parallel()
	const mac1, mac2 = "02:00:00:00:00:01", "02:00:00:00:00:02"
	routed := aNIC("eth0", mac1, true, true, "10.0.0.5/24", "2001:db8::5/64")
	linkLocal := routed
	linkLocal.Gateways = []netip.Addr{netip.MustParseAddr("10.0.0.1"), netip.MustParseAddr("fe80::1")}
	for name, tc := range map[string]struct {
		reason string
		nics   []hypervisor.NIC
		// has and lacks are lines of the file of each interface.
		has, lacks map[string][]string
		eni        []string
	}{
		"DualStack": {
			reason: "both default routes are present, also with ifupdown, where cloud-init loses ::/0",
			nics:   []hypervisor.NIC{routed},
			has:    map[string][]string{"eth0": {"Address=10.0.0.5/24", "Address=2001:db8::5/64", "Gateway=10.0.0.1", "Gateway=2001:db8::1"}},
			eni:    []string{"gateway 10.0.0.1", "gateway 2001:db8::1"},
		},
		"LinkLocal": {
			reason: "the usual IPv6 gateway is link-local",
			nics:   []hypervisor.NIC{linkLocal},
			has:    map[string][]string{"eth0": {"Gateway=10.0.0.1", "Gateway=fe80::1"}},
			eni:    []string{"gateway fe80::1"},
		},
		"TwoStatic": {
			reason: "netplan rejects two default routes with one metric",
			nics:   []hypervisor.NIC{routed, aNIC("eth1", mac2, true, true, "10.1.0.5/24", "2001:db8:1::5/64")},
			has:    map[string][]string{"eth0": {"Gateway=10.0.0.1"}, "eth1": {"Address=10.1.0.5/24"}},
			lacks:  map[string][]string{"eth1": {"Gateway="}},
		},
		"StaticAndLease": {
			reason: "an interface without an entry is not set up",
			nics:   []hypervisor.NIC{routed, aNIC("eth1", mac2, false, true, "10.1.0.5/24")},
			has:    map[string][]string{"eth0": {"Gateway=10.0.0.1"}, "eth1": {"DHCP=ipv4", "RouteMetric=4096"}},
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			text, err := networkData(assignDefaultRoutes(tc.nics))
			if err != nil {
				t.Fatal(err)
			}
			interfaces := []cloudinit.Interface{{Name: "eth0", MAC: mac1}, {Name: "eth1", MAC: mac2}}[:len(tc.nics)]
			files, err := cloudinit.Networkd(t, text, interfaces...)
			if err != nil {
				t.Fatalf("%s: %v", tc.reason, err)
			}
			for name, lines := range tc.has {
				for _, line := range lines {
					if !strings.Contains(files[name], line+"\n") {
						t.Errorf("%s: %s has no %s:\n%s", tc.reason, name, line, files[name])
					}
				}
			}
			for name, lines := range tc.lacks {
				for _, line := range lines {
					if strings.Contains(files[name], line) {
						t.Errorf("%s: %s has %s:\n%s", tc.reason, name, line, files[name])
					}
				}
			}
			file, err := cloudinit.Eni(t, text, interfaces...)
			if err != nil {
				t.Fatalf("%s: %v", tc.reason, err)
			}
			for _, line := range tc.eni {
				if !strings.Contains(file, line+"\n") {
					t.Errorf("%s: no %s:\n%s", tc.reason, line, file)
				}
			}
		})
	}
}
