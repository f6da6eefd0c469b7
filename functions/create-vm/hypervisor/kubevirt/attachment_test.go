package kubevirt

import (
	"testing"

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
		"Same":      {"it was made here", wanted, true},
		"Tuned":     {"somebody has prepared it", `{"cniVersion":"0.3.1","plugins":[{"type":"tuning"},{"type":"cnv-bridge","bridge":"br0","vlan":7,"mtu":9000}]}`, true},
		"Single":    {"it need not be a list", `{"type":"bridge","bridge":"br0","vlan":7}`, true},
		"Bridge":    {"another network has that", `{"plugins":[{"type":"bridge","bridge":"dmz-br0","vlan":7}]}`, false},
		"VLAN":      {"another network has that", `{"plugins":[{"type":"bridge","bridge":"br0","vlan":8}]}`, false},
		"Untagged":  {"it has the whole bridge", `{"plugins":[{"type":"bridge","bridge":"br0"}]}`, false},
		"NoBridge":  {"it leads elsewhere", `{"type":"macvlan","master":"eth0"}`, false},
		"Malformed": {"nobody knows where it leads", `{`, false},
	}
	for name, tc := range cases {
		if got := sameSegment(tc.there, wanted); got != tc.want {
			t.Errorf("%s: %s: got %t, want %t", name, tc.reason, got, tc.want)
		}
	}
}

// TestSpoofCheck looks at how a CNI configuration comes to check the MAC addresses of
// frames, with the parameter macspoofchk of the plugin bridge
// (https://www.cni.dev/plugins/current/main/bridge/).
func TestSpoofCheck(t *testing.T) {
	t.Parallel()
	cases := map[string]struct{ reason, there, want string }{
		"Earlier": {"an earlier version made it without",
			`{"cniVersion":"1.0.0","name":"n","plugins":[{"bridge":"br0","ipam":{},"type":"bridge","vlan":7}]}`,
			`{"cniVersion":"1.0.0","name":"n","plugins":[{"bridge":"br0","ipam":{},"macspoofchk":true,"type":"bridge","vlan":7}]}`},
		"Off": {"nobody may switch it off in what this stack made",
			`{"plugins":[{"bridge":"br0","macspoofchk":false,"type":"bridge"}]}`, `{"plugins":[{"bridge":"br0","macspoofchk":true,"type":"bridge"}]}`},
		"Tuned": {"other plugins and their parameters stand",
			`{"plugins":[{"type":"tuning"},{"bridge":"br0","mtu":9000,"type":"cnv-bridge"}]}`,
			`{"plugins":[{"type":"tuning"},{"bridge":"br0","macspoofchk":true,"mtu":9000,"type":"cnv-bridge"}]}`},
		"Single":    {"it need not be a list", `{"bridge":"br0","type":"bridge"}`, `{"bridge":"br0","macspoofchk":true,"type":"bridge"}`},
		"On":        {"there is nothing to do", `{"plugins": [{"bridge":"br0","macspoofchk":true}]}`, `{"plugins": [{"bridge":"br0","macspoofchk":true}]}`},
		"Malformed": {"nobody knows what it says", `{`, `{`},
		"NotAList":  {"nobody knows what it says", `{"plugins":7}`, `{"plugins":7}`},
	}
	for name, tc := range cases {
		if got := withSpoofCheck(tc.there); got != tc.want {
			t.Errorf("%s: %s: got %s, want %s", name, tc.reason, got, tc.want)
		}
	}
}
