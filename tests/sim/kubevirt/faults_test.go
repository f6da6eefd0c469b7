package kubevirt_test

import (
	"errors"
	"fmt"
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	virtv1 "kubevirt.io/api/core/v1"

	"github.com/vitistack/stack/tests/sim/faults"
	"github.com/vitistack/stack/tests/sim/kubevirt"
)

func plan(t *testing.T, rules ...faults.Rule) *faults.Plan {
	t.Helper()
	p := &faults.Plan{}
	if err := p.Set(rules...); err != nil {
		t.Fatal(err)
	}
	return p
}

func TestCapacity(t *testing.T) {
	t.Parallel()
	node := fmt.Sprintf("small-%d", time.Now().UnixNano())
	c := start(t, kubevirt.Options{Hypervisors: []kubevirt.Hypervisor{{Name: node, CPU: "4", Memory: "6Gi"}}})
	// Nodes of other tests exist as well, so the machine selects this one.
	only := strings.Replace(machineManifest, "      domain:", "      nodeSelector: {kubernetes.io/hostname: "+node+"}\n      domain:", 1)
	c.apply(networkManifest + "---\n" + claimManifest + "---\n" + only)
	vmi := c.vmi("m", "it runs", isRunning)
	if vmi.Status.NodeName != node {
		t.Fatalf("it runs on %s, want %s", vmi.Status.NodeName, node)
	}
	second := strings.NewReplacer("name: m,", "name: m2,", "m-root", "m2-root", "machine: m", "machine: m2", "00:01", "00:02").Replace(only)
	c.apply(strings.ReplaceAll(claimManifest, "m-root", "m2-root") + "---\n" + second)
	c.vm("m2", "no node has the memory", func(vm *virtv1.VirtualMachine) bool {
		for _, cond := range vm.Status.Conditions {
			if cond.Type == "PodScheduled" && cond.Status == corev1.ConditionFalse && cond.Reason == "Unschedulable" &&
				strings.Contains(cond.Message, "1 Insufficient memory") {
				return vm.Status.PrintableStatus == virtv1.VirtualMachineStatusUnschedulable
			}
		}
		return false
	})
	c.delete(vms, "m")
	c.status("m2", virtv1.VirtualMachineStatusRunning)
}

func TestFaults(t *testing.T) {
	t.Parallel()
	cases := map[string]struct {
		reason string
		rule   faults.Rule
		state  virtv1.VirtualMachinePrintableStatus // that shows the fault; empty for none
		event  [2]string
	}{
		"Start": {
			reason: "the creation of an instance is retried",
			rule:   faults.Rule{Operation: "vm/start", Error: "the server is currently unable to handle the request", Times: 2},
			event:  [2]string{"FailedCreate", "Error creating virtual machine instance: vm/start"},
		},
		"StartLost": {
			reason: "an instance whose creation was not acknowledged is found",
			rule:   faults.Rule{Operation: "vm/start", Error: "timeout", After: true, Times: 1},
		},
		"Schedule": {
			reason: "the scheduler retries until it finds a node",
			rule:   faults.Rule{Operation: "vmi/schedule", Error: "0/3 nodes are available: 3 node(s) had untolerated taint", Times: 4},
			state:  virtv1.VirtualMachineStatusUnschedulable,
		},
		"Run": {
			reason: "a machine whose process crashes at its start backs off",
			rule:   faults.Rule{Operation: "vmi/run", Error: "qemu unexpectedly closed the monitor", Times: 1},
			state:  virtv1.VirtualMachineStatusCrashLoopBackOff,
			event:  [2]string{"Stopped", "The VirtualMachineInstance crashed: qemu unexpectedly closed the monitor"},
		},
		"Crash": {
			reason: "a running machine that crashes is started again at once",
			rule:   faults.Rule{Operation: "vmi/run", Error: "guest panicked", After: true, Times: 1},
			event:  [2]string{"Stopped", "The VirtualMachineInstance crashed: guest panicked"},
		},
		"Bind": {
			reason: "the provisioning of a volume is retried",
			rule:   faults.Rule{Operation: "pvc/bind", Error: "out of space", Times: 5},
			state:  virtv1.VirtualMachineStatusUnschedulable,
			event:  [2]string{"ProvisioningFailed", "out of space"},
		},
		"BindLost": {
			reason: "a volume whose creation was not acknowledged is used",
			rule:   faults.Rule{Operation: "pvc/bind", Error: "timeout", After: true, Times: 1},
		},
		"Slow": {
			reason: "latency delays a step",
			rule:   faults.Rule{Operation: "vmi/schedule", Latency: "300ms", Times: 1},
			state:  virtv1.VirtualMachineStatusStarting,
		},
	}
	for name, tc := range cases {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			if name == "Start" {
				onlySimulated(t, "it creates the instance itself, and has no such fault")
			}
			c := start(t, kubevirt.Options{
				Plan: plan(t, tc.rule), Times: kubevirt.Times{CrashBackoff: time.Second},
			})
			states := c.follow(vms, "m", "status", "printableStatus")
			c.apply(manifest())
			c.vmi("m", "it runs", isRunning)
			c.status("m", virtv1.VirtualMachineStatusRunning)
			if seen := states("Running"); tc.state != "" && !contains(seen, string(tc.state)) {
				t.Errorf("%s: states were %q, want %s among them", tc.reason, seen, tc.state)
			}
			if tc.event[0] != "" {
				c.event(tc.event[0], tc.event[1])
			}
			if left := c.volumesLeft(); len(left) != 1 {
				t.Errorf("%s: volumes are %q, want one", tc.reason, left)
			}
		})
	}
}

func contains(all []string, one string) bool {
	for _, s := range all {
		if s == one {
			return true
		}
	}
	return false
}

func TestPause(t *testing.T) {
	t.Parallel()
	c := start(t, kubevirt.Options{Plan: plan(t, faults.Rule{Operation: "vmi/pause", Error: "PausedByUser", Times: 1})})
	c.apply(manifest())
	c.status("m", virtv1.VirtualMachineStatusPaused)
	c.delete(vmis, "m")
	c.status("m", virtv1.VirtualMachineStatusRunning)
}

func TestGuestThatDoesNotStart(t *testing.T) {
	t.Parallel()
	c := start(t, kubevirt.Options{})
	c.guests.mu.Lock()
	c.guests.refuse = errors.New("no firmware")
	c.guests.mu.Unlock()
	said := c.follow(vmis, "m", "status", "phase")
	c.apply(manifest())
	c.vmi("m", "it runs after all", func(vmi *virtv1.VirtualMachineInstance) bool {
		for _, cond := range vmi.Status.Conditions {
			if cond.Type == virtv1.VirtualMachineInstanceSynchronized {
				return false
			}
		}
		return isRunning(vmi)
	})
	if phases := said("Running"); !contains(phases, "Scheduled") {
		t.Errorf("phases were %q, want a stop at Scheduled", phases)
	}
}

func TestStopIsTriedAgain(t *testing.T) {
	t.Parallel()
	c := start(t, kubevirt.Options{Plan: plan(t, faults.Rule{Operation: "vmi/stop", Error: "guest does not react", Times: 3})})
	states := c.follow(vms, "m", "status", "printableStatus")
	c.apply(manifest())
	c.status("m", virtv1.VirtualMachineStatusRunning)
	c.patch(vms, "m", `{"spec":{"runStrategy":"Halted"}}`)
	c.status("m", virtv1.VirtualMachineStatusStopped)
	if seen := states("Stopping", "Stopped"); !contains(seen, "Stopping") {
		t.Errorf("states were %q, want Stopping among them", seen)
	}
}

func TestAdmissionFails(t *testing.T) {
	t.Parallel()
	c := start(t, kubevirt.Options{Plan: plan(t, faults.Rule{Operation: "admit", Error: "503", Times: 1})})
	c.apply(networkManifest + "---\n" + claimManifest)
	err := c.try(machineManifest)
	if err == nil || !strings.Contains(err.Error(), `failed calling webhook "virtualmachines-mutator.kubevirt.io"`) {
		t.Fatalf("with a failing webhook the answer is %v", err)
	}
	c.apply(machineManifest)
	c.status("m", virtv1.VirtualMachineStatusRunning)
}
