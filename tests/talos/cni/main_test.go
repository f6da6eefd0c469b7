package main

import (
	"encoding/json"
	"testing"
)

func TestDelegate(t *testing.T) {
	t.Parallel()
	const subnet = "FLANNEL_NETWORK=10.244.0.0/16\nFLANNEL_SUBNET=10.244.3.1/24\nFLANNEL_MTU=1450\nFLANNEL_IPMASQ=true\n"
	for name, tc := range map[string]struct {
		reason string
		config config
		want   string
	}{
		"Default": {
			reason: "without a delegate it is bridge, and flanneld masquerades",
			config: config{CNIVersion: "0.3.1", Name: "cbr0"},
			want: `{"cniVersion":"0.3.1","ipMasq":false,"ipam":{"ranges":[[{"subnet":"10.244.3.0/24"}]],"routes":[{"dst":"10.244.0.0/16"}],` +
				`"type":"host-local"},"mtu":1450,"name":"cbr0","type":"bridge"}`,
		},
		"Delegate": {
			reason: "fields of the delegate are kept",
			config: config{CNIVersion: "1.0.0", Name: "cbr0", Delegate: map[string]any{"type": "ptp", "hairpinMode": true}},
			want: `{"cniVersion":"1.0.0","hairpinMode":true,"ipMasq":false,"ipam":{"ranges":[[{"subnet":"10.244.3.0/24"}]],"routes":[{"dst":"10.244.0.0/16"}],` +
				`"type":"host-local"},"mtu":1450,"name":"cbr0","type":"ptp"}`,
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			plugin, got, err := delegate(tc.config, subnet)
			if err != nil {
				t.Fatal(err)
			}
			if string(got) != tc.want {
				t.Errorf("%s: got %s, want %s", tc.reason, got, tc.want)
			}
			var d struct{ Type string }
			if err := json.Unmarshal(got, &d); err != nil || d.Type != plugin {
				t.Errorf("plugin %q, type %q, %v", plugin, d.Type, err)
			}
		})
	}
	if _, _, err := delegate(config{}, "FLANNEL_MTU=1450\n"); err == nil {
		t.Error("a file without a subnet is no error")
	}
}
