package talos

import (
	"strings"
	"testing"

	"github.com/siderolabs/talos/pkg/machinery/config"

	"github.com/vitistack/stack/apis/v1alpha1"
)

func TestCheckEventSink(t *testing.T) {
	t.Parallel()
	for address, valid := range map[string]bool{
		"": true, "10.0.0.5:9993": true, "[2001:db8::5]:9993": true, "events.example.com:9993": true,
		"10.0.0.5": false, ":9993": false, "10.0.0.5:0": false, "10.0.0.5:70000": false, "10.0.0.5:events": false, "http://10.0.0.5:9993": false,
	} {
		got, err := CheckEventSink(address)
		if (err == nil) != valid || valid && got != address || err != nil && !strings.Contains(err.Error(), "such as 10.0.0.5:9993") {
			t.Errorf("%q: got %q, %v", address, got, err)
		}
	}
}

// TestEventSink renders configurations with an event sink, and with patches of it.
func TestEventSink(t *testing.T) {
	t.Parallel()
	const own = "apiVersion: v1alpha1\nkind: EventSinkConfig\nendpoint: 192.0.2.1:1\n"
	for name, tc := range map[string]struct {
		reason, talos, sink, patch, want string
	}{
		"None":    {"no address is configured", "1.13.9", "", "", ""},
		"Newest":  {"nodes send their events", "1.13.9", "10.0.0.5:9993", "", "10.0.0.5:9993"},
		"Oldest":  {"Talos has the document since 1.5", "1.5.0", "10.0.0.5:9993", "", "10.0.0.5:9993"},
		"Before":  {"Talos would reject the document", "1.4.0", "10.0.0.5:9993", "", ""},
		"Patched": {"the requester has an event sink already", "1.13.9", "10.0.0.5:9993", own, "192.0.2.1:1"},
		"Added":   {"only the requester has an event sink", "1.13.9", "", own, "192.0.2.1:1"},
		"Removed": {"the requester wants no events to be sent", "1.13.9", "10.0.0.5:9993", "apiVersion: v1alpha1\nkind: EventSinkConfig\n$patch: delete\n", ""},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			contract, err := config.ParseContractFromVersion("v" + tc.talos)
			if err != nil {
				t.Fatal(err)
			}
			n := NodeConfig{Name: "shop-cp-0", Role: v1alpha1.RoleControlPlane, Version: "1.33.13"}
			if tc.patch != "" {
				p, err := ReadPatch("a.yaml", []byte(tc.patch))
				if err != nil {
					t.Fatal(err)
				}
				n.Patches = []Patch{p}
			}
			p, err := Render(ClusterConfig{
				Name: "shop", Endpoint: "https://192.168.10.5:6443", Talos: tc.talos, Contract: contract, Disk: "/dev/vda", Installer: "installer",
				Keys: &Keys{Present: testBundle()}, EventSink: tc.sink,
			}, n)
			if err != nil {
				t.Fatal(err)
			}
			got := ""
			if endpoint := p.Runtime().EventsEndpoint(); endpoint != nil {
				got = *endpoint
			}
			if got != tc.want {
				t.Errorf("%s: got %q, want %q", tc.reason, got, tc.want)
			}
		})
	}
}
