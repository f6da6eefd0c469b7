package proxmox

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"

	pve "github.com/luthermonson/go-proxmox"
	"k8s.io/apimachinery/pkg/api/resource"

	"github.com/vitistack/stack/apis/v1alpha1"
	"github.com/vitistack/stack/functions/create-vm/hypervisor"
	"github.com/vitistack/stack/functions/internal/kube"
	"github.com/vitistack/stack/functions/internal/reconcile"
)

// Hypervisor makes virtual machines on a cluster of Proxmox VE. It lives for one
// delivery: what it has begun is in the machine's status.
type Hypervisor struct {
	home     *kube.Client
	client   *pve.Client
	provider *v1alpha1.MachineProvider
	options  v1alpha1.ProxmoxOptions
	defaults v1alpha1.ProviderDefaults
	// namespace is where claims of VMIDs are.
	namespace string
}

// What a task does, for a machine's status.
const (
	actionClaim     = "claim"
	actionDownload  = "download"
	actionUpload    = "upload"
	actionCreate    = "create"
	actionClone     = "clone"
	actionConfigure = "configure"
	actionResize    = "resize"
	actionStart     = "start"
	actionStop      = "stop"
	actionDelete    = "delete"
	actionDeleteCD  = "delete-cd"
)

// Ensure implements hypervisor.
func (x *Hypervisor) Ensure(ctx context.Context, m *v1alpha1.Machine, want hypervisor.Desired) (hypervisor.State, error) {
	s, err := x.ensure(ctx, m, want)
	return s, x.asUserError(err)
}

func (x *Hypervisor) ensure(ctx context.Context, m *v1alpha1.Machine, want hypervisor.Desired) (hypervisor.State, error) {
	recorded := m.Status.Task
	busy, failed := x.awaitTask(ctx, m)
	if busy {
		return taskState(m, m.Status.Task), nil
	}
	exists, full := isAlreadyExists(recorded, failed), isOutOfMemory(m, recorded, failed)
	if failed != nil && !full && !exists {
		return hypervisor.State{}, failed
	}
	vm, all, err := x.find(ctx, m)
	if err != nil {
		return hypervisor.State{}, err
	}
	if exists && vm == nil {
		return hypervisor.State{}, failed
	}
	if full && vm != nil {
		return x.moveToOtherHost(ctx, m, want, vm, failed)
	}
	if vm == nil {
		return x.createMachine(ctx, m, want, all)
	}
	switch lock := vm.config["lock"]; lock {
	case "":
		return x.reconcilePower(ctx, m, want, vm)
	case actionCreate, actionClone:
		return taskState(m, &v1alpha1.ProviderTask{ID: fmt.Sprintf("VM %d is locked (%s)", vm.id, lock), Action: lock}), nil
	default:
		return x.observeLocked(ctx, m, want, vm, lock)
	}
}

// isAlreadyExists reports whether a task has failed because what it had to make exists. That is no
// failure where it is the machine's own, after an answer that was lost.
func isAlreadyExists(recorded *v1alpha1.ProviderTask, failed error) bool {
	f, isFault := reconcile.AsUserError(failed)
	return isFault && recorded != nil && (recorded.Action == actionCreate || recorded.Action == actionClone) && strings.Contains(f.Message, "already exists")
}

// isOutOfMemory reports whether the first start of a machine has failed for want of memory.
func isOutOfMemory(m *v1alpha1.Machine, recorded *v1alpha1.ProviderTask, failed error) bool {
	f, isFault := reconcile.AsUserError(failed)
	return isFault && f.Reason == reasonInsufficient && recorded != nil && recorded.Action == actionStart && m.Status.Phase == v1alpha1.MachineCreating
}

// observeLocked observes a virtual machine that Proxmox VE has locked, for a backup for example.
// It runs on meanwhile, but Proxmox VE refuses every change until the lock is gone.
func (x *Hypervisor) observeLocked(ctx context.Context, m *v1alpha1.Machine, want hypervisor.Desired, vm *virtualMachine, lock string) (hypervisor.State, error) {
	p, err := x.readPower(ctx, vm)
	if err != nil {
		return hypervisor.State{}, err
	}
	s := taskState(m, nil)
	s.VMName, s.NodeName, s.Reason = nameOf(m, vm), vm.node, ""
	running := p.Status == pve.StatusVirtualMachineRunning
	if running {
		x.observeRunning(ctx, want, vm, p, &s)
	} else {
		s.Phase = v1alpha1.MachineStopped
	}
	waiting := running != (m.Spec.PowerState != v1alpha1.PowerStopped) || m.Spec.RestartToken != m.Status.RestartToken || len(x.pendingChanges(m, want, vm)) > 0
	switch {
	case lock == "suspended":
		s.Reason, s.Message = "Suspended", fmt.Sprintf("VM %d is suspended: resume it at Proxmox VE", vm.id)
	case waiting:
		s.Reason, s.Message = "Locked", fmt.Sprintf("VM %d is locked (%s): a change of the machine waits until Proxmox VE unlocks it. If nothing works on it any more, run qm unlock %d on node %s",
			vm.id, lock, vm.id, vm.node)
	case !running:
		s.Reason, s.Message = "Stopped", "the machine is off, as spec.powerState asks"
	}
	return s, nil
}

// awaitTask looks a recorded task up, and reports whether it still runs. It forgets
// one that has ended, and returns a fault for one that has failed.
func (x *Hypervisor) awaitTask(ctx context.Context, m *v1alpha1.Machine) (busy bool, err error) {
	recorded := m.Status.Task
	if recorded == nil {
		return false, nil
	}
	t, err := x.readTask(ctx, recorded.ID)
	if err != nil || t.running {
		return t.running, err
	}
	m.Status.Task = nil
	return false, taskError(recorded.Action, t.failure)
}

// taskError says what a failed task means. Failures that leave things as they were
// wanted mean nothing.
func taskError(action, failure string) error {
	harmless := map[string]string{
		actionDownload: "refusing to override existing file", actionStart: "already running",
		actionDelete: "does not exist", actionDeleteCD: "no such file",
	}
	if failure == "" || (harmless[action] != "" && strings.Contains(failure, harmless[action])) {
		return nil
	}
	reason := "ProxmoxApiError"
	for _, full := range []string{"Cannot allocate memory", "free space", "No space left", "vcpus allowed"} {
		if strings.Contains(failure, full) {
			reason = reasonInsufficient
		}
	}
	f := reconcile.UserError{Reason: reason, Message: fmt.Sprintf("Proxmox VE could not %s the virtual machine: %s", action, failure)}
	if reason == reasonInsufficient {
		return f
	}
	return hypervisor.RetriedUserError{UserError: f}
}

const reasonInsufficient = "InsufficientResources"

// taskState is what is seen of a machine that a task works on.
func taskState(m *v1alpha1.Machine, t *v1alpha1.ProviderTask) hypervisor.State {
	s := hypervisor.State{
		Phase: v1alpha1.MachineCreating, Reason: "Provisioning", Polled: true, ProviderID: m.Status.ProviderID, VMName: m.Status.VMName, NodeName: m.Status.NodeName,
		RestartToken: m.Status.RestartToken, Task: t,
	}
	if m.Status.Phase == v1alpha1.MachineRunning || m.Status.Phase == v1alpha1.MachineStopped {
		s.Phase = m.Status.Phase
	}
	if t == nil {
		return s
	}
	switch t.Action {
	case actionClaim:
		s.Message = "the virtual machine has its place"
	case actionStart:
		s.Reason, s.Message = "Starting", "waits for the virtual machine to start"
	case actionStop:
		s.Reason, s.Message = "Stopping", "waits for the virtual machine to stop"
	default:
		s.Message = "waits for Proxmox VE to " + t.Action + " the virtual machine"
	}
	return s
}

// taskOf is a task for a machine's status. Some calls that start one name none.
func taskOf(action string, t *pve.Task) *v1alpha1.ProviderTask {
	if t == nil {
		return &v1alpha1.ProviderTask{ID: hypervisor.UnnamedTask, Action: action}
	}
	return &v1alpha1.ProviderTask{ID: string(t.UPID), Action: action}
}

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

// Inspect implements hypervisor.
func (x *Hypervisor) Inspect(ctx context.Context) (hypervisor.Health, error) {
	var version pve.Version
	if err := x.client.Get(ctx, "/version", &version); err != nil {
		return hypervisor.Health{}, x.asUserError(err)
	}
	all, err := x.readInventory(ctx)
	if err != nil {
		return hypervisor.Health{}, x.asUserError(err)
	}
	if major := majorOf(version.Version); major != 0 && major < oldestRelease {
		return hypervisor.Health{}, reconcile.UserError{Reason: "VersionNotSupported", Message: fmt.Sprintf("Proxmox VE %s is not supported: upgrade it to %d or later", version.Version, oldestRelease)}
	}
	h := hypervisor.Health{Version: version.Version}
	for _, r := range all {
		if r.Type != "node" {
			continue
		}
		n := v1alpha1.ProviderNode{
			Name: r.Node, Ready: r.online(), CPU: *resource.NewQuantity(int64(r.MaxCPU), resource.DecimalSI), Memory: *resource.NewQuantity(r.MaxMem, resource.BinarySI),
		}
		if r.online() {
			n.CPUUsed = resource.NewMilliQuantity(int64(r.CPU*r.MaxCPU*1000), resource.DecimalSI)
			n.MemoryUsed = resource.NewQuantity(r.Mem, resource.BinarySI)
		}
		h.Nodes = append(h.Nodes, n)
	}
	if len(h.Nodes) == 0 {
		return hypervisor.Health{}, reconcile.UserError{Reason: "PermissionDenied", Message: "Proxmox VE shows no node: grant Sys.Audit on /nodes"}
	}
	missing, err := x.missingPrivileges(ctx, h.Version, all)
	if err != nil {
		return hypervisor.Health{}, x.asUserError(err)
	}
	h.MissingPrivileges = append([]string{}, missing...)
	if h.SpoofProtection, err = x.inspectSpoofing(ctx); err != nil {
		return hypervisor.Health{}, x.asUserError(err)
	}
	slices.SortFunc(h.Nodes, func(a, b v1alpha1.ProviderNode) int { return strings.Compare(a.Name, b.Name) })
	return h, nil
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

func (x *Hypervisor) startedState(m *v1alpha1.Machine, vm *virtualMachine, t *v1alpha1.ProviderTask) hypervisor.State {
	s := taskState(m, t)
	s.VMName, s.NodeName = nameOf(m, vm), vm.node
	return s
}

func nameOf(m *v1alpha1.Machine, vm *virtualMachine) string {
	if vm.config["name"] != "" {
		return vm.config["name"]
	}
	return m.Name
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

// moveToOtherHost takes away a virtual machine that has never been on, since its host has
// too little memory for it, if another host has enough.
func (x *Hypervisor) moveToOtherHost(ctx context.Context, m *v1alpha1.Machine, want hypervisor.Desired, vm *virtualMachine, failed error) (hypervisor.State, error) {
	all, err := x.readInventory(ctx)
	if err != nil {
		return hypervisor.State{}, err
	}
	source, err := x.findTemplate(ctx, m, all)
	if err != nil {
		return hypervisor.State{}, err
	}
	fit, _ := all.rankHosts(x.demandOf(m, want, source))
	if !slices.ContainsFunc(fit, func(p placement) bool { return p.node != vm.node }) {
		return hypervisor.State{}, failed
	}
	t, err := x.destroy(ctx, vm)
	m.Status.ProviderID, m.Status.VMName = formatProviderID("", vm.id), ""
	s := taskState(m, taskOf(actionDelete, t))
	s.Retried = true
	return s, err
}

// shutdown asks the guest to shut down, and cuts its power where it does not.
func (x *Hypervisor) shutdown(ctx context.Context, vm *virtualMachine) (*pve.Task, error) {
	const patience = 120
	var upid pve.UPID
	err := x.client.Post(ctx, vm.path()+"/status/shutdown", map[string]any{"forceStop": 1, "timeout": patience}, &upid)
	return pve.NewTask(upid, x.client), err
}

var errConflict = errors.New("the machine has changed meanwhile")
