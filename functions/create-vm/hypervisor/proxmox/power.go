package proxmox

import (
	"context"
	"fmt"
	"slices"
	"strings"

	pve "github.com/luthermonson/go-proxmox"
	"k8s.io/apimachinery/pkg/api/resource"

	"github.com/vitistack/stack/apis/v1alpha1"
	"github.com/vitistack/stack/functions/create-vm/hypervisor"
)

// powerState is the current state of a virtual machine.
type powerState struct {
	Status    string `json:"status"`
	QMPStatus string `json:"qmpstatus"`
	MaxMem    int64  `json:"maxmem"`
	CPUs      int32  `json:"cpus"`
}

// readPower reads the current state of a virtual machine.
func (x api) readPower(ctx context.Context, vm *virtualMachine) (p powerState, err error) {
	return p, x.client.Get(ctx, vm.path()+"/status/current", &p)
}

// updateMachine takes one step towards the desired state of a virtual machine that exists: it
// changes its configuration, then its power.
func (x *Hypervisor) updateMachine(ctx context.Context, m *v1alpha1.Machine, want hypervisor.Desired, vm *virtualMachine) (hypervisor.State, error) {
	if t, err := x.changes.apply(ctx, m, want, vm); err != nil || t != nil {
		return startedState(m, vm, t), err
	}
	p, err := x.readPower(ctx, vm)
	if err != nil {
		return hypervisor.State{}, err
	}
	s := startedState(m, vm, nil)
	running := p.Status == pve.StatusVirtualMachineRunning
	if action := decidePower(m, running); action != "" {
		t, err := x.changePower(ctx, vm, action)
		s = startedState(m, vm, t)
		s.RestartToken, s.Handover = m.Spec.RestartToken, want.Handover
		return s, err
	}
	s.Reason, s.RestartToken, s.Handover = "", m.Spec.RestartToken, want.Handover
	if running {
		x.observeRunning(ctx, want, vm, p, &s)
	} else {
		s.Phase, s.Reason, s.Message = v1alpha1.MachineStopped, hypervisor.ReasonStopped, hypervisor.MessageStopped
	}
	return s, nil
}

// changePower starts or stops a virtual machine, and returns the task.
func (x api) changePower(ctx context.Context, vm *virtualMachine, action string) (*v1alpha1.ProviderTask, error) {
	if action != actionStart {
		t, err := x.shutdown(ctx, vm)
		return taskOf(action, t), err
	}
	if err := x.filterMACs(ctx, vm); err != nil {
		return nil, err
	}
	t, err := x.vmClient(vm).Start(ctx)
	return taskOf(action, t), err
}

// observeRunning adds the state of a virtual machine that runs.
func (x *Hypervisor) observeRunning(ctx context.Context, want hypervisor.Desired, vm *virtualMachine, p powerState, s *hypervisor.State) {
	s.Phase = v1alpha1.MachineRunning
	if p.QMPStatus == pve.StatusVirtualMachinePaused {
		s.Reason, s.Message = "Paused", "the virtual machine is paused: resume it at Proxmox VE"
		return
	}
	if p.MaxMem != megabytes(want)<<20 || p.CPUs != want.Cores*want.Threads*want.Sockets {
		s.RestartRequired = fmt.Sprintf("the machine runs with %d CPUs and %s; it gets %d and %s at its next restart: set spec.restartToken",
			p.CPUs, resource.NewQuantity(p.MaxMem, resource.BinarySI), want.Cores*want.Threads*want.Sockets, want.Memory.String())
	}
	s.GuestAddresses = x.addresses(ctx, vm)
}

// addresses returns the addresses that the guest agent reports, and none without an agent.
func (x api) addresses(ctx context.Context, vm *virtualMachine) []string {
	interfaces, err := x.vmClient(vm).AgentGetNetworkIFaces(ctx)
	if err != nil {
		return nil
	}
	var found []string
	for _, i := range interfaces {
		for _, a := range i.IPAddresses {
			if !strings.HasPrefix(strings.ToLower(a.IPAddress), "fe80:") {
				found = append(found, a.IPAddress)
			}
		}
	}
	slices.Sort(found)
	return found
}

// shutdown asks the guest to shut down. Proxmox VE cuts the power if the guest has not done so
// after two minutes.
func (x api) shutdown(ctx context.Context, vm *virtualMachine) (*pve.Task, error) {
	const timeout = 120
	var upid pve.UPID
	err := x.client.Post(ctx, vm.path()+"/status/shutdown", map[string]any{"forceStop": 1, "timeout": timeout}, &upid)
	return pve.NewTask(upid, x.client), err
}
