package proxmox_test

import (
	"testing"
	"time"

	"github.com/vitistack/stack/tests/sim/proxmox"
)

// TestVolumesOfAStart has high availability start machines on a host without the volume in a CD drive.
func TestVolumesOfAStart(t *testing.T) {
	t.Parallel()
	r := setUp(t, proxmox.Options{})
	if err := r.server.AddVolumeOn("pve1", "local", "iso/talos.iso", "https://x/talos.iso", 1<<28); err != nil {
		t.Fatal(err)
	}
	r.done("POST", "/nodes/pve1/qemu", params{"vmid": 100, "scsi0": "fast-ssd:8", "ide0": "local:iso/talos.iso,media=cdrom"})
	r.done("POST", "/nodes/pve1/qemu/100/status/start", params{})
	r.server.SetOffline("pve1", true)
	if err := r.server.Recover(100, "pve2"); err != nil {
		t.Fatal(err)
	}
	const vm, failed = "/nodes/pve2/qemu/100", "command 'ha-manager set vm:100 --state started' failed: exit code 255"
	if exit := r.task("POST", vm+"/status/start", params{}); exit != failed {
		t.Errorf("the start of a machine that high availability has given up ends with %q", exit)
	}
	if err := r.server.DisableHA(100); err != nil {
		t.Fatal(err)
	}
	r.done("POST", vm+"/status/start", params{}) // the task only requests it
	for state := ""; state != "error" && t.Context().Err() == nil; time.Sleep(time.Millisecond) {
		var now struct{ HA struct{ State string } }
		r.get(vm+"/status/current", &now)
		state = now.HA.State
	}
	r.do("PUT", vm+"/config", params{"ide0": "none,media=cdrom"})
	if err := r.server.DisableHA(100); err != nil {
		t.Fatal(err)
	}
	r.done("POST", vm+"/status/start", params{})
}

// TestDiskStays deletes a machine whose storage does not delete the disk.
func TestDiskStays(t *testing.T) {
	t.Parallel()
	for release, want := range map[string]string{"8.4.14": "OK", "9.1.3": "WARNINGS: 1"} {
		r := setUp(t, proxmox.Options{Version: release})
		r.done("POST", "/nodes/pve1/qemu", params{"vmid": 100, "scsi0": "fast-ssd:4"})
		const disk = "fast-ssd:vm-100-disk-0"
		r.server.HoldVolume(disk)
		if exit := r.task("DELETE", "/nodes/pve1/qemu/100?purge=1&destroy-unreferenced-disks=1", nil); exit != want {
			t.Errorf("%s: the task ends with %q, want %q", release, exit, want)
		}
		if left := r.server.Volumes(); len(r.server.Machines()) != 0 || len(left) != 1 || left[0] != disk {
			t.Errorf("%s: left are %v and %v", release, r.server.Machines(), left)
		}
	}
}
