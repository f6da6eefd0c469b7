package proxmox_test

import (
	"encoding/json"
	"net/http"
	"testing"

	"github.com/vitistack/stack/tests/sim/proxmox"
)

// TestFirewallOptions reads and writes firewall options as pve-firewall defines them.
func TestFirewallOptions(t *testing.T) {
	t.Parallel()
	r := setUp(t, proxmox.Options{
		Firewall: true,
		Users:    []proxmox.User{{Name: "viti@pve", Grants: everything}},
		Tokens: []proxmox.Token{
			{ID: tokenID, Secret: secret},
			{ID: "viti@pve!reader", Secret: secret, Separate: true, Grants: []proxmox.Grant{{Path: "/vms", Privileges: []string{"VM.Audit"}}}},
		},
	})
	r.done("POST", "/nodes/pve1/qemu", params{"vmid": 100})
	const path = "/nodes/pve1/qemu/100/firewall/options"
	r.do("PUT", path, params{"enable": 1, "macfilter": 1, "policy_in": "ACCEPT", "radv": 0})
	r.do("PUT", path, params{"delete": "radv"})
	var has map[string]any
	if err := json.Unmarshal(r.do("GET", path, nil), &has); err != nil {
		t.Fatal(err)
	}
	if has["enable"] != 1. || has["macfilter"] != 1. || has["policy_in"] != "ACCEPT" || has["radv"] != nil {
		t.Errorf("options are %v", has)
	}
	var cluster map[string]any
	if err := json.Unmarshal(r.do("GET", "/cluster/firewall/options", nil), &cluster); err != nil || cluster["enable"] != 1. {
		t.Errorf("the cluster's options are %v, %v", cluster, err)
	}
	for _, tc := range []struct {
		reason, token, method, path string
		with                        params
		status                      string
	}{
		{"an unknown option", tokenID, "PUT", path, params{"spoofing": 0}, "400 Parameter verification failed."},
		{"an unknown policy", tokenID, "PUT", path, params{"policy_in": "ALLOW"}, "400 Parameter verification failed."},
		{"the deletion of an unknown option", tokenID, "PUT", path, params{"delete": "spoofing"}, "400 Parameter verification failed."},
		{"another client has changed it", tokenID, "PUT", path, params{"enable": 0, "digest": "0"}, "500 detected modified configuration - file changed by other user? Try again."},
		{"the right to read is no right to write", "viti@pve!reader", "PUT", path, params{"enable": 0}, "403 Permission check failed (/vms/100, VM.Config.Network)"},
		{"the cluster's options require Sys.Audit on /", "viti@pve!reader", "GET", "/cluster/firewall/options", nil, "403 Permission check failed (/, Sys.Audit)"},
	} {
		r.header = http.Header{"Authorization": {"PVEAPIToken=" + tc.token + "=" + secret}}
		if a := r.call(tc.method, tc.path, tc.with); a.status != tc.status {
			t.Errorf("%s: got %q, want %q", tc.reason, a.status, tc.status)
		}
	}
}
