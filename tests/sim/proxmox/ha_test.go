package proxmox_test

import (
	"testing"
	"time"

	"github.com/vitistack/stack/tests/sim/proxmox"
)

// TestHighAvailability starts and stops a machine that high availability manages. The tasks end before that.
func TestHighAvailability(t *testing.T) {
	t.Parallel()
	r := setUp(t, proxmox.Options{Times: proxmox.Times{HA: 100 * time.Millisecond}})
	r.done("POST", "/nodes/pve1/qemu", params{"vmid": 100})
	if err := r.server.ManageHA(100); err != nil {
		t.Fatal(err)
	}
	const vm = "/nodes/pve1/qemu/100"
	type current struct {
		Status string
		HA     struct{ Managed int }
	}
	for _, step := range []struct{ action, before, after string }{{"start", "stopped", "running"}, {"shutdown", "running", "stopped"}} {
		r.done("POST", vm+"/status/"+step.action, params{})
		var now current
		if r.get(vm+"/status/current", &now); now.Status != step.before || now.HA.Managed != 1 {
			t.Errorf("after the task of %s it is %+v, want %s", step.action, now, step.before)
		}
		for now.Status != step.after && t.Context().Err() == nil {
			time.Sleep(time.Millisecond)
			r.get(vm+"/status/current", &now)
		}
	}
	if a := r.call("DELETE", vm, nil); a.status != "500 unable to remove VM 100 - used in HA resources and purge parameter not set." {
		t.Errorf("a machine that is managed: %s", a.status)
	}
	r.done("DELETE", vm+"?purge=1", nil)
}
