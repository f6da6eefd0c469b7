package proxmox

import (
	"errors"
	"testing"

	"github.com/vitistack/stack/apis/v1alpha1"
	"github.com/vitistack/stack/functions/internal/reconcile"
)

func TestDecideStep(t *testing.T) {
	t.Parallel()
	locked := func(lock string) *virtualMachine { return &virtualMachine{config: map[string]string{"lock": lock}} }
	cases := map[string]struct {
		reason  string
		vm      *virtualMachine
		failure string
		want    string
	}{
		"New":        {"there is no virtual machine", nil, failureNone, stepCreate},
		"Existing":   {"its spec may have changed", locked(""), failureNone, stepUpdate},
		"Creating":   {"another delivery is creating it", locked("create"), failureNone, stepWait},
		"Cloning":    {"another delivery is cloning it", locked("clone"), failureNone, stepWait},
		"Backup":     {"Proxmox VE rejects changes during a backup", locked("backup"), failureNone, stepObserve},
		"LostAnswer": {"an earlier request created it, and its answer was lost", locked(""), failureExists, stepUpdate},
		"Foreign":    {"another virtual machine has its VMID", nil, failureExists, stepFail},
		"Taken":      {"another virtual machine has its VMID, and each task would fail", nil, failureTaken, stepSkip},
		"TakenOwn":   {"an earlier task has cloned it to another host", locked(""), failureTaken, stepUpdate},
		"FullHost":   {"another host may have room", locked(""), failureMemory, stepMove},
		"FullGone":   {"the virtual machine is gone and is created again", nil, failureMemory, stepCreate},
		"Failed":     {"the failure is final until a user acts", locked(""), failureOther, stepFail},
	}
	for name, tc := range cases {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			if got := decideStep(tc.vm, tc.failure); got != tc.want {
				t.Errorf("%s: got %s, want %s", tc.reason, got, tc.want)
			}
		})
	}
}

func TestClassifyFailure(t *testing.T) {
	t.Parallel()
	task := func(action string) *v1alpha1.ProviderTask { return &v1alpha1.ProviderTask{Action: action} }
	exists := reconcile.UserError{Reason: "ProxmoxApiError", Message: "unable to create VM 100 - VM 100 already exists"}
	taken := reconcile.UserError{Reason: "ProxmoxApiError", Message: "close (rename) atomic file '/etc/pve/nodes/pve1/qemu-server/100.conf' failed: File exists"}
	full := reconcile.UserError{Reason: reasonInsufficient, Message: "Cannot allocate memory"}
	cases := map[string]struct {
		reason string
		phase  v1alpha1.MachinePhase
		task   *v1alpha1.ProviderTask
		err    error
		want   string
	}{
		"Success":     {"nothing failed", v1alpha1.MachineCreating, task(actionCreate), nil, failureNone},
		"Exists":      {"the answer to an earlier request may be lost", v1alpha1.MachineCreating, task(actionClone), exists, failureExists},
		"Taken":       {"a virtual machine of another host has the VMID", v1alpha1.MachineCreating, task(actionClone), taken, failureTaken},
		"OtherExists": {"only a creation may be repeated", v1alpha1.MachineCreating, task(actionConfigure), exists, failureOther},
		"Memory":      {"it has never run, so it can move", v1alpha1.MachineCreating, task(actionStart), full, failureMemory},
		"MemoryLater": {"its disks are in use, so it stays", v1alpha1.MachineStopped, task(actionStart), full, failureOther},
		"Unreachable": {"a later request may succeed", v1alpha1.MachineCreating, task(actionStart), errors.New("no answer"), failureOther},
	}
	for name, tc := range cases {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			m := &v1alpha1.Machine{Status: v1alpha1.MachineStatus{Phase: tc.phase}}
			if got := classifyFailure(m, tc.task, tc.err); got != tc.want {
				t.Errorf("%s: got %q, want %q", tc.reason, got, tc.want)
			}
		})
	}
}

func TestDecidePower(t *testing.T) {
	t.Parallel()
	cases := map[string]struct {
		reason  string
		running bool
		state   v1alpha1.PowerState
		token   string
		want    string
	}{
		"Running":  {"spec.powerState is Running already", true, v1alpha1.PowerRunning, "", ""},
		"Default":  {"a machine runs unless its spec says otherwise", false, "", "", actionStart},
		"Stop":     {"spec.powerState is Stopped", true, v1alpha1.PowerStopped, "", actionStop},
		"StopNew":  {"a machine that is to be off is not started again", true, v1alpha1.PowerStopped, "new", actionStop},
		"Stopped":  {"spec.powerState is Stopped already", false, v1alpha1.PowerStopped, "new", ""},
		"Restart":  {"the token is new", true, v1alpha1.PowerRunning, "new", actionRestart},
		"StartNew": {"a start serves the token as well", false, v1alpha1.PowerRunning, "new", actionStart},
	}
	for name, tc := range cases {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			m := &v1alpha1.Machine{Spec: v1alpha1.MachineSpec{PowerState: tc.state, RestartToken: tc.token}}
			if got := decidePower(m, tc.running); got != tc.want {
				t.Errorf("%s: got %q, want %q", tc.reason, got, tc.want)
			}
		})
	}
}
