package talos

import (
	"net/netip"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/siderolabs/talos/pkg/machinery/config/configloader"
)

func TestWiringOf(t *testing.T) {
	t.Parallel()
	const dhcp = "127.128.0.2/24"
	cases := map[string]struct {
		reason  string
		machine Machine
		config  string
		name    string
		address string
		vips    []string
	}{
		"NoConfig": {
			reason: "a machine without a configuration has the address from DHCP, and names itself",
			name:   "talos-sww-p0d", address: dhcp,
		},
		"PlatformName": {
			reason: "the platform names the machine", machine: Machine{Hostname: "VM-1.example.org"},
			name: "vm-1", address: dhcp,
		},
		"ConfiguredName": {
			reason: "the name in the configuration takes precedence", machine: Machine{Hostname: "vm-1"},
			config: "apiVersion: v1alpha1\nkind: HostnameConfig\nhostname: cp-1\n", name: "cp-1", address: dhcp,
		},
		"AddressName": {
			reason: "a name from the address",
			config: "apiVersion: v1alpha1\nkind: HostnameConfig\nauto: talos-addr\n", name: "talos-127-128-0-2", address: dhcp,
		},
		"Static": {
			reason: "a static address replaces DHCP",
			config: "apiVersion: v1alpha1\nkind: LinkConfig\nname: eth0\naddresses:\n  - address: 127.128.0.9/24\n", name: "talos-127-128-0-9", address: "127.128.0.9/24",
		},
		"OtherLink": {
			reason: "the link does not exist",
			config: "apiVersion: v1alpha1\nkind: LinkConfig\nname: eth7\naddresses:\n  - address: 127.128.0.9/24\n", name: "talos-127-128-0-2", address: dhcp,
		},
		"Taken": {
			reason: "a configured link without an address or DHCP has none",
			config: "apiVersion: v1alpha1\nkind: LinkConfig\nname: eth0\nmtu: 1400\n", name: "talos-sww-p0d", address: "invalid Prefix",
		},
		"TakenFromStatic": {
			reason: "a static address stays", machine: Machine{Static: true},
			config: "apiVersion: v1alpha1\nkind: LinkConfig\nname: eth0\nmtu: 1400\n", name: "talos-127-128-0-2", address: dhcp,
		},
		"DHCPBesides": {
			reason: "a configured link keeps DHCP if it requests it",
			config: "apiVersion: v1alpha1\nkind: LinkConfig\nname: eth0\nmtu: 1400\n---\napiVersion: v1alpha1\nkind: DHCPv4Config\nname: eth0\n",
			name:   "talos-127-128-0-2", address: dhcp,
		},
		"VIP": {
			reason: "control planes share a virtual address",
			config: "apiVersion: v1alpha1\nkind: Layer2VIPConfig\nname: 127.128.0.100\nlink: eth0\n", name: "talos-127-128-0-2", address: dhcp, vips: []string{"127.128.0.100"},
		},
	}
	for name, tc := range cases {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			m := tc.machine
			m.ID, m.Links, m.Address = "one", []Link{{Name: "eth0", MAC: "02:00:00:00:00:01"}}, netip.MustParsePrefix(dhcp)
			got := wiringOf(m, nil)
			if tc.config != "" {
				cfg, err := configloader.NewFromBytes([]byte("version: v1alpha1\nmachine:\n  type: controlplane\ncluster: {}\n---\n" + tc.config))
				if err != nil {
					t.Fatal(err)
				}
				got = wiringOf(m, cfg)
			}
			var vips []string
			for _, v := range got.vips {
				vips = append(vips, v.String())
			}
			if diff := cmp.Diff([]any{tc.name, tc.address, tc.vips}, []any{got.hostname, got.address.String(), vips}); diff != "" {
				t.Errorf("%s (-want +got):\n%s", tc.reason, diff)
			}
		})
	}
}

func TestGlob(t *testing.T) {
	t.Parallel()
	cases := map[string]struct {
		pattern, s string
		want       bool
	}{
		"Exact":  {"02:00:00:00:00:01", "02:00:00:00:00:01", true},
		"Prefix": {"02:00:*", "02:00:00:00:00:01", true},
		"Suffix": {"*:01", "02:00:00:00:00:01", true},
		"Middle": {"02:*:00:*:01", "02:00:00:00:00:01", true},
		"Other":  {"03:*", "02:00:00:00:00:01", false},
		"Short":  {"02:*:02", "02:00:00:00:00:01", false},
	}
	for name, tc := range cases {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			if got := glob(tc.pattern, tc.s); got != tc.want {
				t.Errorf("%q matches %q: %v, want %v", tc.pattern, tc.s, got, tc.want)
			}
		})
	}
}

func TestImages(t *testing.T) {
	t.Parallel()
	const schematic = "376567988ad370138ad8b2698212367b8edcb69b5fd68c80be1f2ec7d603b4ba"
	cases := map[string]struct {
		reason    string
		image     string
		want      string
		schematic string
	}{
		"Empty":   {"an empty image installs nothing", "", "v1.12.0", ""},
		"Tag":     {"the tag is the version", "ghcr.io/siderolabs/installer:v1.13.2", "v1.13.2", ""},
		"Port":    {"the port of a registry is no tag", "registry:5000/siderolabs/installer", "", ""},
		"Digest":  {"a digest does not hide the tag", "ghcr.io/siderolabs/installer:v1.13.2@sha256:0000", "v1.13.2", ""},
		"Factory": {"the path of a factory image contains the schematic", "factory.talos.dev/nocloud-installer/" + schematic + ":v1.13.2", "v1.13.2", schematic},
		"Unknown": {"a version that is not simulated", "ghcr.io/siderolabs/installer:v1.7.0", "", ""},
	}
	for name, tc := range cases {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			got, err := releaseOf(tc.image, release{Version: "v1.12.0"})
			if (err == nil) != (tc.want != "") || (err == nil && got.Version != tc.want) {
				t.Errorf("%s: got %v, %v", tc.reason, got, err)
			}
			if got := schematicOf(tc.image); got != tc.schematic {
				t.Errorf("%s: schematic is %q, want %q", tc.reason, got, tc.schematic)
			}
		})
	}
}
