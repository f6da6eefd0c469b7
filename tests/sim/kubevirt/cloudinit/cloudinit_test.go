package cloudinit_test

import (
	"net/netip"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"

	"github.com/vitistack/stack/tests/sim/kubevirt/cloudinit"
)

var comparable = cmpopts.EquateComparable(netip.Addr{}, netip.Prefix{})

func prefixes(all ...string) []netip.Prefix {
	var p []netip.Prefix
	for _, s := range all {
		p = append(p, netip.MustParsePrefix(s))
	}
	return p
}

func TestParse(t *testing.T) {
	t.Parallel()
	cases := map[string]struct {
		reason string
		data   string
		want   []cloudinit.Interface
		err    string
	}{
		"Empty": {reason: "empty data configures no interface", data: "  \n"},
		"Version2": {
			reason: "version 2 with a match by MAC, and the deprecated gateway keys",
			data: `
version: 2
ethernets:
  b: {match: {macaddress: "02:AA:00:00:00:01"}, addresses: [10.0.0.5/24, "2001:db8::5/64"], gateway6: "2001:db8::1", gateway4: 10.0.0.1}
  a: {dhcp4: true}
`,
			want: []cloudinit.Interface{
				{Name: "a", DHCP: true},
				{Name: "b", MAC: "02:aa:00:00:00:01", Addresses: prefixes("10.0.0.5/24", "2001:db8::5/64"), Gateway: netip.MustParseAddr("10.0.0.1")},
			},
		},
		"Routes": {
			reason: "version 2 under a network key, with a default route",
			data: `
network:
  version: 2
  ethernets:
    eth0: {match: {name: ens3}, addresses: [10.0.0.5/24], routes: [{to: 10.1.0.0/16, via: 10.0.0.2}, {to: 0.0.0.0/0, via: 10.0.0.1}]}
`,
			want: []cloudinit.Interface{{Name: "ens3", Addresses: prefixes("10.0.0.5/24"), Gateway: netip.MustParseAddr("10.0.0.1")}},
		},
		"Version1": {
			reason: "version 1 with masks in each form, and entries that are no interfaces",
			data: `
version: 1
config:
- {type: nameserver, address: [10.0.0.2]}
- type: physical
  name: eth0
  mac_address: "02:AA:00:00:00:01"
  subnets:
  - {type: static, address: 10.0.0.5, netmask: 255.255.255.0, gateway: 10.0.0.1}
  - {type: static6, address: "2001:db8::5/64", gateway: "2001:db8::1"}
- {type: physical, name: eth1, subnets: [{type: dhcp4}]}
- {type: physical, name: eth2, subnets: [{type: static, address: 10.2.0.5, netmask: 16, routes: [{network: 0.0.0.0, netmask: 0.0.0.0, gateway: 10.2.0.1}]}]}
`,
			want: []cloudinit.Interface{
				{Name: "eth0", MAC: "02:aa:00:00:00:01", Addresses: prefixes("10.0.0.5/24", "2001:db8::5/64"), Gateway: netip.MustParseAddr("10.0.0.1")},
				{Name: "eth1", DHCP: true},
				{Name: "eth2", Addresses: prefixes("10.2.0.5/16"), Gateway: netip.MustParseAddr("10.2.0.1")},
			},
		},
		"Version3":   {reason: "another version is an error", data: "version: 3", err: "write version 1 or 2"},
		"NoYAML":     {reason: "other text is an error", data: "#!/bin/sh\n\techo", err: "decode network data"},
		"BadAddress": {reason: "an invalid address is an error", data: "version: 2\nethernets: {e: {addresses: [ten]}}", err: `address "ten" is neither`},
		"BadMask":    {reason: "an invalid mask is an error", data: "version: 1\nconfig: [{type: physical, name: e, subnets: [{type: static, address: 10.0.0.1, netmask: 255.0.255.0}]}]", err: "netmask 255.0.255.0"},
		"LongMask":   {reason: "a mask that is too long is an error", data: "version: 1\nconfig: [{type: physical, name: e, subnets: [{type: static, address: 10.0.0.1, netmask: 33}]}]", err: "at most 32"},
		"BadGateway": {reason: "an invalid gateway is an error", data: "version: 2\nethernets: {e: {gateway4: 10.0.0}}", err: `gateway "10.0.0"`},
	}
	for name, tc := range cases {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			got, err := cloudinit.Parse(tc.data)
			if tc.err != "" {
				if err == nil || !strings.Contains(err.Error(), tc.err) {
					t.Errorf("%s: got error %v, want %q", tc.reason, err, tc.err)
				}
				return
			}
			if err != nil {
				t.Fatalf("%s: %v", tc.reason, err)
			}
			if diff := cmp.Diff(tc.want, got, comparable); diff != "" {
				t.Errorf("%s (-want +got):\n%s", tc.reason, diff)
			}
		})
	}
}

func TestFor(t *testing.T) {
	t.Parallel()
	all := []cloudinit.Interface{
		{Name: "eth0", DHCP: true},
		{MAC: "02:aa:00:00:00:01", Name: "eth1"},
	}
	cases := map[string]struct {
		reason    string
		mac, name string
		want      string
		found     bool
	}{
		"MAC":     {"the MAC address selects the interface, in any case", "02:AA:00:00:00:01", "eth0", "eth1", true},
		"Name":    {"without a MAC address the name selects it", "02:aa:00:00:00:99", "eth0", "eth0", true},
		"Neither": {"the name does not select an entry with a MAC address", "02:aa:00:00:00:99", "eth1", "", false},
	}
	for name, tc := range cases {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			got, found := cloudinit.For(all, tc.mac, tc.name)
			if got.Name != tc.want || found != tc.found {
				t.Errorf("%s: got %q, %v; want %q, %v", tc.reason, got.Name, found, tc.want, tc.found)
			}
		})
	}
}
