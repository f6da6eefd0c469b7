package proxmox_test

import (
	"testing"

	"github.com/vitistack/stack/tests/sim/proxmox"
)

// TestPendingDisk adds disks to running machines. Not every disk can be plugged in.
func TestPendingDisk(t *testing.T) {
	t.Parallel()
	r := setUp(t, proxmox.Options{})
	for id, tc := range map[string]struct {
		reason, hotplug, disk string
		pending               bool
	}{
		"100": {"SCSI disks are plugged in by default", "1", "scsi1", false},
		"101": {"the option hotplug has no disk", "network,usb", "scsi1", true},
		"102": {"the option hotplug is off", "0", "virtio1", true},
		"103": {"SATA has no hotplug", "1", "sata1", true},
	} {
		r.done("POST", "/nodes/pve1/qemu", params{"vmid": id, "scsi0": "local-lvm:8", "hotplug": tc.hotplug})
		vm := "/nodes/pve1/qemu/" + id
		r.done("POST", vm+"/status/start", params{})
		r.done("POST", vm+"/config", params{tc.disk: "local-lvm:1"})
		value, pending := r.option(vm, tc.disk)
		if (pending != "") != tc.pending || (value != "") == tc.pending {
			t.Errorf("%s: %s is %q, and %q is pending", tc.reason, tc.disk, value, pending)
		}
		if digest, _ := r.option(vm, "digest"); digest == "" {
			t.Errorf("%s: the pending changes have no digest", tc.reason)
		}
		if !tc.pending {
			continue
		}
		if exit := r.task("PUT", vm+"/resize", params{"disk": tc.disk, "size": "2G"}); exit != "disk '"+tc.disk+"' does not exist" {
			t.Errorf("%s: growing the pending disk ends with %q", tc.reason, exit)
		}
		r.done("POST", vm+"/status/stop", params{})
		if value, pending := r.option(vm, tc.disk); value == "" || pending != "" {
			t.Errorf("%s: once it is off, %s is %q, and %q is pending", tc.reason, tc.disk, value, pending)
		}
	}
}

// option returns an option of a machine, and its pending value.
func (r *env) option(vm, key string) (value, pending string) {
	r.Helper()
	var options []struct{ Key, Value, Pending string }
	r.get(vm+"/pending", &options)
	for _, o := range options {
		if o.Key == key {
			return o.Value, o.Pending
		}
	}
	return "", ""
}

// TestFrozenGuest has QEMU stop the guest of a machine, whose process keeps running.
func TestFrozenGuest(t *testing.T) {
	t.Parallel()
	r := setUp(t, proxmox.Options{})
	r.done("POST", "/nodes/pve1/qemu", params{"vmid": 100, "scsi0": "local-lvm:8", "agent": 1})
	const vm = "/nodes/pve1/qemu/100"
	r.done("POST", vm+"/status/start", params{})
	if err := r.server.Freeze(100, "io-error"); err != nil {
		t.Fatal(err)
	}
	var state struct{ Status, QMPStatus string }
	if r.get(vm+"/status/current", &state); state.Status != "running" || state.QMPStatus != "io-error" {
		t.Errorf("a frozen guest has %+v", state)
	}
	if a := r.call("GET", vm+"/agent/network-get-interfaces", nil); a.status != "500 QEMU guest agent is not running" {
		t.Errorf("its agent answers %q", a.status)
	}
	if exit := r.task("POST", vm+"/status/shutdown", params{}); exit != "VM quit/powerdown failed - got timeout" {
		t.Errorf("its shutdown ends with %q", exit)
	}
	r.done("POST", vm+"/status/shutdown", params{"forceStop": 1})
	r.done("POST", vm+"/status/start", params{})
	if r.get(vm+"/status/current", &state); state.QMPStatus != "running" {
		t.Errorf("after its restart it has %+v", state)
	}
}
