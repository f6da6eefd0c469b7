package kubevirt

import (
	"testing"

	kubevirtv1 "kubevirt.io/api/core/v1"

	"github.com/vitistack/stack/apis/v1alpha1"
	"github.com/vitistack/stack/functions/create-vm/hypervisor"
)

func TestSameSegment(t *testing.T) {
	t.Parallel()
	wanted, err := attachmentConfig(hypervisor.NIC{Bridge: "br0", VLAN: 7}, "net-br0-vlan7", v1alpha1.ProviderDefaults{})
	if err != nil {
		t.Fatal(err)
	}
	cases := map[string]struct {
		reason, there string
		want          bool
	}{
		"Same":      {"the function created it", wanted, true},
		"Tuned":     {"a user has extended it", `{"cniVersion":"0.3.1","plugins":[{"type":"tuning"},{"type":"cnv-bridge","bridge":"br0","vlan":7,"mtu":9000}]}`, true},
		"Single":    {"a single plugin is valid too", `{"type":"bridge","bridge":"br0","vlan":7}`, true},
		"Bridge":    {"another bridge is another network", `{"plugins":[{"type":"bridge","bridge":"dmz-br0","vlan":7}]}`, false},
		"VLAN":      {"another VLAN is another network", `{"plugins":[{"type":"bridge","bridge":"br0","vlan":8}]}`, false},
		"Untagged":  {"it carries the whole bridge", `{"plugins":[{"type":"bridge","bridge":"br0"}]}`, false},
		"NoBridge":  {"it has no bridge", `{"type":"macvlan","master":"eth0"}`, false},
		"Malformed": {"its network cannot be determined", `{`, false},
	}
	for name, tc := range cases {
		if got := sameSegment(tc.there, wanted); got != tc.want {
			t.Errorf("%s: %s: got %t, want %t", name, tc.reason, got, tc.want)
		}
	}
}

func TestAttachmentNameIn(t *testing.T) {
	t.Parallel()
	network := func(name, attachment string) []kubevirtv1.Network {
		return []kubevirtv1.Network{{Name: "pod"}, {Name: name, NetworkSource: kubevirtv1.NetworkSource{Multus: &kubevirtv1.MultusNetwork{NetworkName: attachment}}}}
	}
	cases := map[string]struct {
		reason   string
		networks []kubevirtv1.Network
		mtu      int32
		want     string
	}{
		"New":     {"it does not exist yet", nil, 9000, "net-br0-vlan7-mtu9000"},
		"Default": {"the hypervisor chooses the MTU", nil, 0, "net-br0-vlan7"},
		"Created": {"the virtual machine has it", network("eth0", "net-br0-vlan7-mtu9000"), 9000, "net-br0-vlan7-mtu9000"},
		"Earlier": {"an earlier version left out the MTU", network("eth0", "net-br0-vlan7"), 9000, "net-br0-vlan7"},
		"Other":   {"another interface has it", network("eth1", "net-br0-vlan7"), 9000, "net-br0-vlan7-mtu9000"},
		"Adopted": {"the virtual machine has an attachment of another tool", network("eth0", "infra/lan"), 9000, "net-br0-vlan7-mtu9000"},
	}
	for name, tc := range cases {
		nic := hypervisor.NIC{Name: "eth0", Network: "net", VLAN: 7, MTU: tc.mtu}
		if got := attachmentNameIn(tc.networks, nic, v1alpha1.ProviderDefaults{}); got != tc.want {
			t.Errorf("%s: %s: got %s, want %s", name, tc.reason, got, tc.want)
		}
	}
}

// TestSpoofCheck adds the check of source MAC addresses to a CNI configuration: the parameter
// macspoofchk of the plugin bridge (https://www.cni.dev/plugins/current/main/bridge/).
func TestSpoofCheck(t *testing.T) {
	t.Parallel()
	cases := map[string]struct{ reason, there, want string }{
		"Earlier": {"an earlier version created it without the check",
			`{"cniVersion":"1.0.0","name":"n","plugins":[{"bridge":"br0","ipam":{},"type":"bridge","vlan":7}]}`,
			`{"cniVersion":"1.0.0","name":"n","plugins":[{"bridge":"br0","ipam":{},"macspoofchk":true,"type":"bridge","vlan":7}]}`},
		"Off": {"an attachment of this stack always has the check",
			`{"plugins":[{"bridge":"br0","macspoofchk":false,"type":"bridge"}]}`, `{"plugins":[{"bridge":"br0","macspoofchk":true,"type":"bridge"}]}`},
		"Tuned": {"other plugins and their parameters are kept",
			`{"plugins":[{"type":"tuning"},{"bridge":"br0","mtu":9000,"type":"cnv-bridge"}]}`,
			`{"plugins":[{"type":"tuning"},{"bridge":"br0","macspoofchk":true,"mtu":9000,"type":"cnv-bridge"}]}`},
		"Single":    {"a single plugin is valid too", `{"bridge":"br0","type":"bridge"}`, `{"bridge":"br0","macspoofchk":true,"type":"bridge"}`},
		"On":        {"the check is on already", `{"plugins": [{"bridge":"br0","macspoofchk":true}]}`, `{"plugins": [{"bridge":"br0","macspoofchk":true}]}`},
		"Malformed": {"a configuration that cannot be parsed is kept", `{`, `{`},
		"NotAList":  {"a configuration that cannot be parsed is kept", `{"plugins":7}`, `{"plugins":7}`},
	}
	for name, tc := range cases {
		if got := withSpoofCheck(tc.there); got != tc.want {
			t.Errorf("%s: %s: got %s, want %s", name, tc.reason, got, tc.want)
		}
	}
}
