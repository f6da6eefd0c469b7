package proxmox_test

import (
	"testing"

	"github.com/vitistack/stack/tests/sim/proxmox"
)

// TestChangeInPart has a change fail at a drive. The next change applies the rest of it too.
func TestChangeInPart(t *testing.T) {
	t.Parallel()
	r := setUp(t, proxmox.Options{Storages: []proxmox.Storage{{Name: "small", Type: "lvmthin", Content: []string{"images"}, Capacity: 8 << 30}}})
	r.done("POST", "/nodes/pve1/qemu", params{"vmid": 100, "cores": 1})
	const vm = "/nodes/pve1/qemu/100"
	if a := r.call("PUT", vm+"/config", params{"cores": 2, "tags": "new", "scsi0": "small:9"}); a.status == "200 OK" {
		t.Error("a disk is larger than its storage")
	}
	if value, pending := r.option(vm, "tags"); value != "" || pending != "new" {
		t.Errorf("tags are %q, and %q is pending", value, pending)
	}
	r.do("PUT", vm+"/config", params{"description": "later"})
	if value, pending := r.option(vm, "tags"); value != "new" || pending != "" {
		t.Errorf("tags are %q, and %q is pending after the next change", value, pending)
	}
}
