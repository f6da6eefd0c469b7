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

// powerState is the state of a virtual machine's power.
type powerState struct {
	Status    string `json:"status"`
	QMPStatus string `json:"qmpstatus"`
	MaxMem    int64  `json:"maxmem"`
	CPUs      int32  `json:"cpus"`
}

func (x *Hypervisor) readPower(ctx context.Context, vm *virtualMachine) (p powerState, err error) {
	return p, x.client.Get(ctx, vm.path()+"/status/current", &p)
}

// reconcilePower brings a virtual machine that exists a step towards what is wanted, and
// tells what it is.
func (x *Hypervisor) reconcilePower(ctx context.Context, m *v1alpha1.Machine, want hypervisor.Desired, vm *virtualMachine) (hypervisor.State, error) {
	if t, err := x.applyChanges(ctx, m, want, vm); err != nil || t != nil {
		return x.startedState(m, vm, t), err
	}
	p, err := x.readPower(ctx, vm)
	if err != nil {
		return hypervisor.State{}, err
	}
	s := taskState(m, nil)
	s.VMName, s.NodeName, s.Reason, s.Handover = nameOf(m, vm), vm.node, "", want.Handover
	running := p.Status == pve.StatusVirtualMachineRunning
	stop := running && m.Spec.PowerState == v1alpha1.PowerStopped
	restart := m.Spec.RestartToken != m.Status.RestartToken
	s.RestartToken = m.Spec.RestartToken
	switch {
	case stop, running && restart:
		t, err := x.shutdown(ctx, vm)
		begun := x.startedState(m, vm, taskOf(actionStop, t))
		begun.RestartToken, begun.Handover = m.Spec.RestartToken, want.Handover
		return begun, err
	case running:
		x.observeRunning(ctx, want, vm, p, &s)
	case m.Spec.PowerState == v1alpha1.PowerStopped:
		s.Phase, s.Reason, s.Message = v1alpha1.MachineStopped, "Stopped", "the machine is off, as spec.powerState asks"
	default:
		if err := x.filterMACs(ctx, vm); err != nil {
			return hypervisor.State{}, err
		}
		t, err := x.vmClient(vm).Start(ctx)
		begun := x.startedState(m, vm, taskOf(actionStart, t))
		begun.RestartToken, begun.Handover = m.Spec.RestartToken, want.Handover
		return begun, err
	}
	return s, nil
}

// observeRunning tells what is to be told of a machine that is on.
func (x *Hypervisor) observeRunning(ctx context.Context, want hypervisor.Desired, vm *virtualMachine, p powerState, s *hypervisor.State) {
	s.Phase = v1alpha1.MachineRunning
	if p.QMPStatus == pve.StatusVirtualMachinePaused {
		s.Reason, s.Message = "Paused", "the virtual machine is paused: resume it at Proxmox VE"
		return
	}
	if p.MaxMem != megabytes(want)<<20 || p.CPUs != want.Cores*want.Threads*want.Sockets {
		s.RestartPending = fmt.Sprintf("the machine runs with %d CPUs and %s; it gets %d and %s at its next restart: set spec.restartToken",
			p.CPUs, resource.NewQuantity(p.MaxMem, resource.BinarySI), want.Cores*want.Threads*want.Sockets, want.Memory.String())
	}
	s.GuestAddresses = x.addresses(ctx, vm)
}

// addresses are those that the guest's agent reports. A guest without one reports
// nothing.
func (x *Hypervisor) addresses(ctx context.Context, vm *virtualMachine) []string {
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

// shutdown asks the guest to shut down, and cuts its power where it does not.
func (x *Hypervisor) shutdown(ctx context.Context, vm *virtualMachine) (*pve.Task, error) {
	const patience = 120
	var upid pve.UPID
	err := x.client.Post(ctx, vm.path()+"/status/shutdown", map[string]any{"forceStop": 1, "timeout": patience}, &upid)
	return pve.NewTask(upid, x.client), err
}
