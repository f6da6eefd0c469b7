package proxmox_test

import (
	"fmt"
	"strings"
	"testing"

	"github.com/vitistack/stack/tests/sim/proxmox"
)

// TestReleases makes the calls that differ between releases of Proxmox VE. README.md has the sources.
func TestReleases(t *testing.T) {
	t.Parallel()
	const agent = "/nodes/pve1/qemu/100/agent/network-get-interfaces"
	image := params{"content": "import", "filename": "talos.qcow2", "url": "https://factory.example/talos.qcow2"}
	appliance := params{"content": "import", "filename": "appliance.ova", "url": "https://factory.example/appliance.ova"}
	for name, tc := range map[string]struct {
		reason, release, privilege string
		verb, path                 string
		with                       params
		refused                    string
	}{
		"HAIn8":         {reason: "the parameter is new in 9", release: "8.4.14", verb: "POST", path: "/nodes/pve1/qemu", with: params{"vmid": 101, "ha-managed": 1}, refused: "400 Parameter verification failed."},
		"HAIn9":         {reason: "the parameter is new in 9", release: "9.0.3", verb: "POST", path: "/nodes/pve1/qemu", with: params{"vmid": 101, "ha-managed": 1}},
		"ImageIn83":     {reason: "only OVA files are imported", release: "8.3.5", verb: "POST", path: "/nodes/pve1/storage/local/download-url", with: image, refused: "400 Parameter verification failed."},
		"PackageIn83":   {reason: "OVA files are imported", release: "8.3.5", verb: "POST", path: "/nodes/pve1/storage/local/download-url", with: appliance},
		"ImageIn84":     {reason: "disk images are imported", release: "8.4.0", verb: "POST", path: "/nodes/pve1/storage/local/download-url", with: image},
		"MonitorIn8":    {reason: "the agent needs VM.Monitor", release: "8.4.14", privilege: "VM.Monitor", verb: "GET", path: agent},
		"MonitorIn9":    {reason: "VM.Monitor is gone", release: "9.0.3", privilege: "VM.Monitor", verb: "GET", path: agent, refused: "403 Permission check failed"},
		"GuestAuditIn9": {reason: "the agent has privileges of its own", release: "9.0.3", privilege: "VM.GuestAgent.Audit", verb: "GET", path: agent},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			r := setUp(t, proxmox.Options{Version: tc.release})
			r.done("POST", "/nodes/pve1/qemu", params{"vmid": 100, "agent": 1, "scsi0": "local-lvm:8", "net0": "virtio,bridge=vmbr0"})
			r.done("POST", "/nodes/pve1/qemu/100/status/start", params{})
			if tc.privilege != "" {
				r.server.SetUser(proxmox.User{Name: "viti@pve", Password: "pass", Grants: []proxmox.Grant{{Path: "/vms", Privileges: []string{"VM.Audit", tc.privilege}}}})
			}
			status := r.call(tc.verb, tc.path, tc.with).status
			if tc.refused == "" && status != "200 OK" || tc.refused != "" && !strings.HasPrefix(status, tc.refused) {
				t.Errorf("%s: %s answers %q, want %q", tc.reason, tc.release, status, tc.refused)
			}
		})
	}
}

// TestSerials starts machines whose disks have serial numbers of the limits of QEMU, and longer ones.
func TestSerials(t *testing.T) {
	t.Parallel()
	const refused = "start failed: QEMU exited with code 1"
	for version, limit := range map[string]int{"8.4.14": 20, proxmox.Version: 36} {
		r := setUp(t, proxmox.Options{Version: version})
		for id, want := range map[int]string{100 + limit: "OK", 101 + limit: refused} {
			r.done("POST", "/nodes/pve1/qemu", params{"vmid": id, "scsi0": "local-lvm:1,serial=" + strings.Repeat("a", id-100)})
			if exit := r.task("POST", fmt.Sprintf("/nodes/pve1/qemu/%d/status/start", id), params{}); exit != want {
				t.Errorf("Proxmox VE %s: with %d characters, the start ends with %q, want %q", version, id-100, exit, want)
			}
		}
	}
}
