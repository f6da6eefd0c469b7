package kubevirt_test

import (
	"net/netip"
	"strings"
	"sync/atomic"
	"testing"

	"github.com/google/go-cmp/cmp"
	virtv1 "kubevirt.io/api/core/v1"

	"github.com/vitistack/stack/tests/sim/kubevirt"
)

// withNetworkData replaces the machine's network data, an indented block.
func withNetworkData(machine, data string) string {
	head, _, _ := strings.Cut(machine, "          networkData: |\n")
	return head + data
}

const version1 = `          networkData: |
            version: 1
            config:
            - type: physical
              name: eth0
              mac_address: "02:00:00:00:00:01"
              subnets:
              - {type: static, address: 192.168.10.22, netmask: 255.255.255.0, gateway: 192.168.10.1}
`

const inSecret = `          networkDataSecretRef: {name: m-cloudinit}
---
apiVersion: v1
kind: Secret
metadata: {name: m-cloudinit}
stringData:
  networkdata: |
    network:
      version: 2
      ethernets:
        eth0:
          addresses: [192.168.10.23/24, "2001:db8::23/64"]
          routes: [{to: default, via: 192.168.10.1}]
`

func TestAddresses(t *testing.T) {
	t.Parallel()
	const linkLocal = "fe80::ff:fe00:1"
	cases := map[string]struct {
		reason string
		edit   func(machine string) string
		want   []string // the addresses in the instance's status
		guest  string   // the guest's first address
	}{
		"Version2": {
			reason: "static addresses of version 2 are matched by MAC",
			edit:   func(m string) string { return m },
			want:   []string{"192.168.10.21", linkLocal}, guest: "192.168.10.21/24",
		},
		"Version1": {
			reason: "static addresses of version 1 are matched by MAC",
			edit:   func(m string) string { return withNetworkData(m, version1) },
			want:   []string{"192.168.10.22", linkLocal}, guest: "192.168.10.22/24",
		},
		"Secret": {
			reason: "network data in a Secret, by the guest's name of the interface, with both families",
			edit:   func(m string) string { return withNetworkData(m, inSecret) },
			want:   []string{"192.168.10.23", "2001:db8::23", linkLocal}, guest: "192.168.10.23/24",
		},
		"DHCP": {
			reason: "without network data the guest requests a lease",
			edit:   func(m string) string { return withNetworkData(m, "") },
			want:   []string{"192.168.10.99", linkLocal}, guest: "192.168.10.99/24",
		},
		"OtherMAC": {
			reason: "network data for another MAC address configures no interface",
			edit: func(m string) string {
				return strings.Replace(m, `match: {macaddress: "02:00:00:00:00:01"}`, `match: {macaddress: "02:00:00:00:00:99"}`, 1)
			},
			want: []string{linkLocal},
		},
		"NoAgent": {
			reason: "without an agent the guest's addresses are unknown",
			edit: func(m string) string {
				return strings.Replace(m, "metadata: {labels: {vitistack.io/machine: m}}\n    spec",
					`metadata: {labels: {vitistack.io/machine: m}, annotations: {sim.vitistack.io/guest-agent: "false"}}`+"\n    spec", 1)
			},
			guest: "192.168.10.21/24",
		},
	}
	for name, tc := range cases {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			c := start(t, kubevirt.Options{DHCP: func(mac, network string) (netip.Prefix, netip.Addr, bool) {
				ok := mac == "02:00:00:00:00:01" && strings.HasSuffix(network, "/vlan200")
				return netip.MustParsePrefix("192.168.10.99/24"), netip.MustParseAddr("192.168.10.1"), ok
			}})
			c.apply(networkManifest + "---\n" + claimManifest + "---\n" + tc.edit(machineManifest))
			vmi := c.vmi("m", "it runs", isRunning)
			if diff := cmp.Diff(tc.want, vmi.Status.Interfaces[0].IPs); diff != "" {
				t.Errorf("%s: addresses (-want +got):\n%s", tc.reason, diff)
			}
			guest, _ := c.guests.named("m")
			got := ""
			if len(guest.NICs[0].Addresses) > 0 {
				got = guest.NICs[0].Addresses[0].String()
			}
			if got != tc.guest {
				t.Errorf("%s: the guest has %q, want %q", tc.reason, got, tc.guest)
			}
			if tc.guest != "" && guest.NICs[0].Gateway.String() != "192.168.10.1" {
				t.Errorf("%s: the guest's gateway is %s", tc.reason, guest.NICs[0].Gateway)
			}
		})
	}
}

func TestInterfaceStatus(t *testing.T) {
	t.Parallel()
	c := start(t, kubevirt.Options{PodNetwork: netip.MustParsePrefix("127.244.0.0/16")})
	both := strings.NewReplacer(
		`bridge: {}}`, "bridge: {}}\n          - {name: default, masquerade: {}}",
		`{name: nic0, multus: {networkName: vlan200}}`, "{name: nic0, multus: {networkName: vlan200}}\n      - {name: default, pod: {}}",
	).Replace(manifest())
	c.apply(both)
	vmi := c.vmi("m", "it runs", isRunning)
	got := vmi.Status.Interfaces
	if len(got) != 2 || got[0].Name != "default" || got[1].Name != "nic0" {
		t.Fatalf("interfaces are %+v, want the pod network first", got)
	}
	pod := netip.MustParseAddr(got[0].IP)
	if !netip.MustParsePrefix("127.244.0.0/16").Contains(pod) || got[0].InfoSource != "domain, guest-agent" || got[0].PodInterfaceName != "eth0" {
		t.Errorf("pod network: %+v", got[0])
	}
	if got[1].InfoSource != "domain, guest-agent, multus-status" || got[1].MAC != "02:00:00:00:00:01" || got[1].InterfaceName != "eth0" {
		t.Errorf("bridged network: %+v", got[1])
	}
	if got[0].MAC == "" {
		t.Error("an interface without a MAC address got none")
	}
}

func TestLateLease(t *testing.T) {
	t.Parallel()
	var leased atomic.Bool
	var asked atomic.Int64
	c := start(t, kubevirt.Options{DHCP: func(string, string) (netip.Prefix, netip.Addr, bool) {
		asked.Add(1)
		return netip.MustParsePrefix("10.0.0.7/24"), netip.MustParseAddr("10.0.0.1"), leased.Load()
	}})
	c.apply(networkManifest + "---\n" + claimManifest + "---\n" + withNetworkData(machineManifest, ""))
	vmi := c.vmi("m", "it runs", isRunning)
	if ip := vmi.Status.Interfaces[0].IP; !strings.HasPrefix(ip, "fe80:") {
		t.Fatalf("without a lease the address is %q, want a link-local one", ip)
	}
	leased.Store(true)
	c.vmi("m", "it has the lease", func(vmi *virtv1.VirtualMachineInstance) bool { return vmi.Status.Interfaces[0].IP == "10.0.0.7" })
	if guest, _ := c.guests.named("m"); len(guest.NICs[0].Addresses) != 1 {
		t.Errorf("the guest did not get the lease: %+v", guest.NICs)
	}
}

func TestMissingReferences(t *testing.T) {
	t.Parallel()
	cases := map[string]struct {
		reason  string
		without func(manifest string) (machine, missing string)
		event   [2]string
	}{
		"Secret": {
			reason: "the pod does not start without its Secret",
			without: func(string) (string, string) {
				machine, secret, _ := strings.Cut(withNetworkData(machineManifest, inSecret), "---\n")
				return networkManifest + "---\n" + claimManifest + "---\n" + machine, secret
			},
			event: [2]string{"FailedMount", `secret "m-cloudinit" not found`},
		},
		"Network": {
			reason: "the pod does not start without its network",
			without: func(string) (string, string) {
				return claimManifest + "---\n" + machineManifest, networkManifest
			},
			event: [2]string{"FailedCreatePodSandBox", "cannot find a network-attachment-definition (vlan200)"},
		},
	}
	for name, tc := range cases {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			if name == "Network" {
				onlySimulated(t, "1.8 looks networks up before it creates a pod, because the feature gate ExternalNetResourceInjection is on since 1.9 only")
			}
			c := start(t, kubevirt.Options{})
			machine, missing := tc.without(manifest())
			c.apply(machine)
			c.event(tc.event[0], tc.event[1])
			c.status("m", virtv1.VirtualMachineStatusStarting)
			c.vmi("m", "it is Scheduling, because "+tc.reason, func(vmi *virtv1.VirtualMachineInstance) bool { return vmi.Status.Phase == virtv1.Scheduling })
			c.apply(missing)
			c.status("m", virtv1.VirtualMachineStatusRunning)
		})
	}
}
