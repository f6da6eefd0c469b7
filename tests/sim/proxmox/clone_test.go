package proxmox_test

import (
	"testing"

	"github.com/vitistack/stack/tests/sim/proxmox"
)

// TestClones clones a template to VMIDs that are taken, and to another host although a CD is on local storage.
func TestClones(t *testing.T) {
	t.Parallel()
	r := setUp(t, proxmox.Options{})
	if err := r.server.AddMachine(proxmox.Machine{ID: 900, Node: "pve1", Config: map[string]string{"template": "1", "scsi0": "fast-ssd:4", "ide0": "local-lvm:cloudinit"}}, ""); err != nil {
		t.Fatal(err)
	}
	const clone = "/nodes/pve1/qemu/900/clone"
	r.done("POST", "/nodes/pve1/qemu", params{"vmid": 100})
	r.done("POST", "/nodes/pve2/qemu", params{"vmid": 101})
	if a := r.call("POST", clone, params{"newid": 100}); a.status != "500 unable to create VM 100: config file already exists" {
		t.Errorf("a VMID of the same host: %s", a.status)
	}
	if exit := r.task("POST", clone, params{"newid": 101}); exit != "close (rename) atomic file '/etc/pve/nodes/pve1/qemu-server/101.conf' failed: File exists" {
		t.Errorf("the task with a VMID of another host ends with %q", exit)
	}
	if a := r.call("POST", clone, params{"newid": 102, "target": "pve2"}); a.status != "500 can't clone VM to node 'pve2' (VM uses local storage)" {
		t.Errorf("a template with a CD on local storage: %s", a.status)
	}
	r.done("POST", clone, params{"newid": 102})
	if a := r.call("PUT", "/nodes/pve1/qemu/102/config", params{"ide2": "local-lvm:cloudinit", "delete": "ide0"}); a.status != "500 ide2 - cloud-init drive is already attached at 'ide0'" {
		t.Errorf("a second cloud-init drive: %s", a.status)
	}
}
