package proxmox

import (
	"context"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"time"

	pve "github.com/luthermonson/go-proxmox"
	"k8s.io/apimachinery/pkg/api/resource"

	"github.com/vitistack/stack/apis/v1alpha1"
	"github.com/vitistack/stack/functions/create-vm/hypervisor"
	"github.com/vitistack/stack/functions/internal/reconcile"
)

// powerState is the current state of a virtual machine.
type powerState struct {
	Status    string `json:"status"`
	QMPStatus string `json:"qmpstatus"`
	MaxMem    int64  `json:"maxmem"`
	CPUs      int32  `json:"cpus"`
	// HA is what high availability says, if it manages the virtual machine.
	HA struct {
		Managed int    `json:"managed"`
		State   string `json:"state"`
	} `json:"ha"`
}

// haPatience is how long high availability may take from a request to its effect: it looks for requests every ten seconds, and gives a guest two minutes to
// shut down.
const haPatience = 5 * time.Minute

// isRequested reports whether high availability still has to do what a task has requested of it. Such a task ends with the request (qemu-server,
// API2/Qemu.pm, vm_start, vm_stop, vm_shutdown).
func (p powerState) isRequested(t *v1alpha1.ProviderTask) bool {
	if t == nil || p.HA.Managed == 0 || p.HA.State == "error" {
		return false
	}
	running := p.Status == pve.StatusVirtualMachineRunning
	switch t.Action {
	case actionStart:
		return !running && time.Since(startOf(t)) < haPatience
	case actionStop, actionRestart:
		return running && time.Since(startOf(t)) < haPatience
	default:
		return false
	}
}

// startOf returns the time when a task has started, from its UPID, or the zero time.
func startOf(t *v1alpha1.ProviderTask) time.Time {
	const place = 4
	parts := strings.Split(t.ID, ":")
	if len(parts) <= place {
		return time.Time{}
	}
	seconds, err := strconv.ParseInt(parts[place], 16, 64)
	if err != nil {
		return time.Time{}
	}
	return time.Unix(seconds, 0)
}

// readPower reads the current state of a virtual machine.
func (x api) readPower(ctx context.Context, vm *virtualMachine) (p powerState, err error) {
	return p, x.client.Get(ctx, vm.path()+"/status/current", &p)
}

// updateMachine takes one step towards the desired state of a virtual machine that exists: it
// changes its configuration, then its power. before is the task that has ended, or nil. refused is the error of the last task if that had to
// create or to grow a disk, which is not tried again at once.
func (x *Hypervisor) updateMachine(ctx context.Context, m *v1alpha1.Machine, want hypervisor.Desired, vm *virtualMachine, before *v1alpha1.ProviderTask, refused error) (hypervisor.State, error) {
	if err := x.recordFound(ctx, m, vm); err != nil {
		return hypervisor.State{}, err
	}
	m.Status.Disks = readDisks(m, vm, want.Disks)
	p, waits, err := x.awaitHA(ctx, m, vm, before)
	if err != nil || waits {
		return startedState(m, vm, before), err
	}
	t, refused, err := x.changes.apply(ctx, m, want, vm, refused)
	if err != nil || t != nil {
		return startedState(m, vm, t), err
	}
	if p == (powerState{}) {
		if p, err = x.readPower(ctx, vm); err != nil {
			return hypervisor.State{}, err
		}
	}
	running := p.Status == pve.StatusVirtualMachineRunning
	if action := decidePower(m, running); action != "" {
		s, err := x.takeAction(ctx, m, want, vm, action)
		s.Refused, s.Retried = refused, reconcile.Retried(refused)
		return s, err
	}
	s := startedState(m, vm, nil)
	s.Reason, s.RestartToken, s.Handover = "", m.Spec.RestartToken, want.Handover
	s.Refused, s.Retried = refused, reconcile.Retried(refused)
	if running {
		x.observeRunning(ctx, want, vm, p, &s)
	} else {
		s.Phase, s.Reason, s.Message = v1alpha1.MachineStopped, hypervisor.ReasonStopped, hypervisor.MessageStopped
	}
	return s, nil
}

// takeAction changes the power of a virtual machine. Before a start its host gets what is in its CD drives.
func (x *Hypervisor) takeAction(ctx context.Context, m *v1alpha1.Machine, want hypervisor.Desired, vm *virtualMachine, action string) (hypervisor.State, error) {
	if action == actionStart {
		if t, err := x.changes.ensureMedia(ctx, m, want, vm); err != nil || t != nil {
			return startedState(m, vm, t), err
		}
	}
	if err := x.vmids.home.CheckUnchanged(ctx, m); err != nil { // another delivery may have served the token, or another power state
		return hypervisor.State{}, err
	}
	t, err := x.changePower(ctx, vm, action)
	s := startedState(m, vm, t)
	s.RestartToken, s.Handover = m.Spec.RestartToken, want.Handover
	return s, err
}

// awaitHA reads the power state after a task that had to change it, and reports whether high availability still has to do that. A restart that it has not
// begun in time is requested again.
func (x *Hypervisor) awaitHA(ctx context.Context, m *v1alpha1.Machine, vm *virtualMachine, before *v1alpha1.ProviderTask) (p powerState, waits bool, err error) {
	if before == nil || !slices.Contains([]string{actionStart, actionStop, actionRestart}, before.Action) {
		return p, false, nil
	}
	p, err = x.readPower(ctx, vm)
	if err != nil || p.isRequested(before) {
		return p, err == nil, err
	}
	if before.Action == actionRestart && p.HA.Managed == 1 && p.Status == pve.StatusVirtualMachineRunning {
		m.Status.RestartToken = ""
	}
	return p, false, nil
}

// recordFound completes the status of a machine that does not name its virtual machine yet. A new one needs no restart. One that was found by its UID, because the
// Machine was created again or has lost its status, may have served the token of the spec, and has run: its phase must not be that of a new
// machine, which moves to another host without its disks. A new machine is in phase Creating before its virtual machine exists.
func (x *Hypervisor) recordFound(ctx context.Context, m *v1alpha1.Machine, vm *virtualMachine) error {
	if m.Status.VMName != "" {
		return nil
	}
	m.Status.RestartToken = m.Spec.RestartToken
	switch m.Status.Phase {
	case v1alpha1.MachineCreating, v1alpha1.MachineRunning, v1alpha1.MachineStopped:
		return nil
	default:
	}
	p, err := x.readPower(ctx, vm)
	if err != nil {
		return err
	}
	m.Status.Phase = v1alpha1.MachineStopped
	if p.Status == pve.StatusVirtualMachineRunning {
		m.Status.Phase = v1alpha1.MachineRunning
	}
	return nil
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
	s.RestartRequired, s.StoragePending = pendingChanges(want, vm, p)
	if s.Message, s.Failed = haltMessage(vm, p.QMPStatus); s.Message != "" {
		s.Reason = "Paused"
		return
	}
	s.GuestAddresses = x.addresses(ctx, vm)
}

// pendingChanges says which changes of a running virtual machine take effect at its next start, and which of its disks wait for that. Both are
// empty if there are none.
func pendingChanges(want hypervisor.Desired, vm *virtualMachine, p powerState) (restart, storage string) {
	var waits []string
	cpus := want.Cores * want.Threads * want.Sockets
	switch {
	case p.MaxMem != megabytes(want)<<20 || p.CPUs != cpus:
		waits = append(waits, fmt.Sprintf("the machine runs with %d CPUs and %s; it gets %d and %s at its next restart: set spec.restartToken",
			p.CPUs, resource.NewQuantity(p.MaxMem, resource.BinarySI), cpus, want.Memory.String()))
	case vm.isPending("sockets") || vm.isPending("cores"):
		waits = append(waits, fmt.Sprintf("the machine runs with %s sockets of %s cores; it gets %d of %d at its next restart: set spec.restartToken",
			vm.current["sockets"], vm.current["cores"], want.Sockets, want.Cores*want.Threads))
	}
	if disks := detachedDisks(want, vm); len(disks) > 0 {
		storage = fmt.Sprintf("disk %s is attached at the next restart of the machine: set spec.restartToken. Proxmox VE attaches a disk to a running machine if its option hotplug has disk", strings.Join(disks, ", "))
		waits = append(waits, storage)
	}
	return strings.Join(waits, "; "), storage
}

// detachedDisks returns the names of the disks that a virtual machine gets at its next start.
func detachedDisks(want hypervisor.Desired, vm *virtualMachine) (names []string) {
	for i, d := range want.Disks {
		if slot := diskSlot(vm, i, d); vm.isPending(slot) && vm.current[slot] == "" {
			names = append(names, d.Name)
		}
	}
	return names
}

// haltMessage says why QEMU does not execute the guest of a virtual machine whose process runs, and what to do, from its run state (QEMU,
// qapi/run-state.json). It is empty if QEMU executes the guest, or continues by itself, as at the end of a migration. failed is whether an error has
// stopped the guest.
func haltMessage(vm *virtualMachine, state string) (message string, failed bool) {
	switch state {
	case pve.StatusVirtualMachinePaused, "prelaunch", "suspended":
		return fmt.Sprintf("the virtual machine is paused (%s): resume it at Proxmox VE, for example with qm resume %d on node %s", state, vm.id, vm.node), false
	case "io-error":
		return fmt.Sprintf("QEMU has stopped the guest, because it cannot write to a disk (%s), most often because a storage is full: free space on storage %s, then run qm resume %d on node %s",
			state, strings.Join(vm.diskStorages(), ", "), vm.id, vm.node), true
	case "internal-error", "guest-panicked", "watchdog":
		return fmt.Sprintf("QEMU has stopped the guest, which cannot continue (%s): write a new value into spec.restartToken. If it stops again, look at the log of node %s", state, vm.node), true
	default:
		return "", false
	}
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
