package kubevirt_test

import (
	"fmt"
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	virtv1 "kubevirt.io/api/core/v1"
	cdiv1 "kubevirt.io/containerized-data-importer-api/pkg/apis/core/v1beta1"

	"github.com/vitistack/stack/tests/sim/kubevirt"
)

// TestRestart kills the simulator in each state of a machine, and expects a new simulator to continue.
func TestRestart(t *testing.T) {
	t.Parallel()
	const slow = 400 * time.Millisecond
	cases := map[string]struct {
		reason string
		times  kubevirt.Times
		reach  func(c *cluster) // brings the machine into the state
		finish func(c *cluster)
	}{
		"Provisioning": {
			"the new simulator creates the volume", kubevirt.Times{Provisioning: slow},
			func(c *cluster) { c.status("m", virtv1.VirtualMachineStatusUnschedulable) },
			func(c *cluster) { c.status("m", virtv1.VirtualMachineStatusRunning) },
		},
		"Scheduled": {
			"the new simulator starts the domain", kubevirt.Times{Starting: slow},
			func(c *cluster) {
				c.vmi("m", "it is scheduled", func(vmi *virtv1.VirtualMachineInstance) bool { return vmi.Status.Phase == virtv1.Scheduled })
			},
			func(c *cluster) { c.status("m", virtv1.VirtualMachineStatusRunning) },
		},
		"Booting": {
			"the guest boots again", kubevirt.Times{Booting: slow},
			func(c *cluster) { c.vmi("m", "it runs", isRunning) },
			func(c *cluster) {
				c.vmi("m", "its agent answers", func(vmi *virtv1.VirtualMachineInstance) bool {
					return len(vmi.Status.Interfaces) == 1 && vmi.Status.Interfaces[0].IP == "192.168.10.21"
				})
			},
		},
		"Running": {
			"the guest runs again", kubevirt.Times{},
			func(c *cluster) { c.status("m", virtv1.VirtualMachineStatusRunning) },
			func(c *cluster) { c.status("m", virtv1.VirtualMachineStatusRunning) },
		},
		"Stopping": {
			"the new simulator stops the guest", kubevirt.Times{Stopping: slow},
			func(c *cluster) {
				c.status("m", virtv1.VirtualMachineStatusRunning)
				c.delete(vms, "m")
			},
			func(c *cluster) { c.gone(vms, "m"); c.gone(vmis, "m") },
		},
	}
	for name, tc := range cases {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			c := start(t, kubevirt.Options{Times: tc.times})
			c.apply(manifest())
			tc.reach(c)
			c.restart()
			tc.finish(c)
			if get[virtv1.VirtualMachine](c, vms, "m") == nil {
				return
			}
			deadline := time.Now().Add(patience)
			for _, on := c.guests.named("m"); !on; _, on = c.guests.named("m") {
				if time.Now().After(deadline) {
					t.Fatalf("%s: the guest does not run", tc.reason)
				}
				<-time.After(20 * time.Millisecond)
			}
			if left := c.volumesLeft(); len(left) != 1 {
				t.Errorf("%s: volumes are %q, want one", tc.reason, left)
			}
		})
	}
}

func TestRestartDuringImport(t *testing.T) {
	t.Parallel()
	c := start(t, kubevirt.Options{Times: kubevirt.Times{Importing: 400 * time.Millisecond}})
	c.apply(bootFromImage())
	c.status("m", virtv1.VirtualMachineStatusProvisioning)
	c.dv("m-root", "it is being imported", func(dv *cdiv1.DataVolume) bool { return dv.Status.Phase == cdiv1.ImportInProgress })
	c.restart()
	c.status("m", virtv1.VirtualMachineStatusRunning)
	if left := c.volumesLeft(); len(left) != 1 {
		t.Errorf("volumes are %q, want one", left)
	}
}

// TestWrites limits the number of writes per machine. An idle simulator must not write.
func TestWrites(t *testing.T) {
	t.Parallel()
	onlySimulated(t, "it counts the writes of the simulator")
	const machines = 25
	c := start(t, kubevirt.Options{})
	c.apply(networkManifest)
	before := c.writes.Load()
	for i := range machines {
		name := fmt.Sprintf("m%d", i)
		c.apply(strings.NewReplacer("name: m,", "name: "+name+",", "m-root", name+"-root", "machine: m", "machine: "+name,
			"00:01", fmt.Sprintf("00:%02x", i), "10.21/24", fmt.Sprintf("10.%d/24", 20+i)).Replace(claimManifest + "---\n" + machineManifest))
	}
	for i := range machines {
		c.vm(fmt.Sprintf("m%d", i), "it is ready", func(vm *virtv1.VirtualMachine) bool { return vm.Status.Ready })
	}
	up := c.writes.Load() - before
	t.Logf("%.1f writes per machine with a disk until it runs", float64(up)/machines)
	const most = 12
	if up > most*machines {
		t.Errorf("%d machines took %d writes, want at most %d each", machines, up, most)
	}

	idle := c.writes.Load()
	<-time.After(2 * time.Second) // the simulator is idle
	if now := c.writes.Load(); now != idle {
		t.Errorf("%d writes while idle, want none", now-idle)
	}

	before = c.writes.Load()
	for i := range machines {
		c.delete(vms, fmt.Sprintf("m%d", i))
		c.delete(pvcs, fmt.Sprintf("m%d-root", i))
	}
	for i := range machines {
		c.gone(vms, fmt.Sprintf("m%d", i))
		c.gone(pvcs, fmt.Sprintf("m%d-root", i))
	}
	eventually(c, pvs, "none", "no volume is left", func(*corev1.PersistentVolume) bool { return len(c.volumesLeft()) == 0 })
	down := c.writes.Load() - before
	t.Logf("%.1f writes per machine with a disk until it is deleted", float64(down)/machines)
	if down > most*machines {
		t.Errorf("%d machines took %d writes for their deletion, want at most %d each", machines, down, most)
	}
}
