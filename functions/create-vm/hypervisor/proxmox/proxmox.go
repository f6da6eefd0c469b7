// Package proxmox creates virtual machines on a cluster of Proxmox VE by its REST API.
package proxmox

import (
	"cmp"
	"context"
	"fmt"
	"slices"
	"strings"

	pve "github.com/luthermonson/go-proxmox"

	"github.com/vitistack/stack/apis/v1alpha1"
	"github.com/vitistack/stack/functions/create-vm/hypervisor"
	"github.com/vitistack/stack/functions/internal/kube"
	"github.com/vitistack/stack/functions/internal/reconcile"
)

// Hypervisor creates virtual machines on a cluster of Proxmox VE. It exists for one delivery: the
// task that it has started is in the Machine's status.
type Hypervisor struct {
	api
	settings
	access   access
	finder   finder
	images   images
	cds      cds
	vmids    vmids
	creation creation
	changes  changes
}

// settings are what a MachineProvider says about its virtual machines.
type settings struct {
	provider *v1alpha1.MachineProvider
	options  v1alpha1.ProxmoxOptions
	defaults v1alpha1.ProviderDefaults
}

// newHypervisor returns the hypervisor of a MachineProvider. home is the client for the cluster of the function, and
// namespace the one of the Leases that claim VMIDs.
func newHypervisor(p *v1alpha1.MachineProvider, a api, home *kube.Client, namespace string) *Hypervisor {
	s := settings{provider: p, defaults: hypervisor.DefaultsOf(p)}
	if p.Spec.Proxmox != nil {
		s.options = *p.Spec.Proxmox
	}
	x := &Hypervisor{
		api: a, settings: s, access: access{a, s}, finder: finder{a}, images: images{a}, cds: cds{a, s, home},
		vmids: vmids{settings: s, home: home, namespace: namespace},
	}
	x.creation = creation{api: a, settings: s, vmids: x.vmids, images: x.images, hosts: hosts{a, s}, cds: x.cds}
	x.changes = changes{api: a, settings: s, cds: x.cds}
	return x
}

// Ensure implements hypervisor.Interface.
func (x *Hypervisor) Ensure(ctx context.Context, m *v1alpha1.Machine, want hypervisor.Desired) (hypervisor.State, error) {
	s, err := x.ensure(ctx, m, want)
	return s, x.toUserError(err)
}

// ensure reads the state, decides the step, and takes it.
func (x *Hypervisor) ensure(ctx context.Context, m *v1alpha1.Machine, want hypervisor.Desired) (hypervisor.State, error) {
	recorded := m.Status.Task
	busy, failed := x.awaitTask(ctx, m)
	if busy {
		return taskState(m, m.Status.Task), nil
	}
	failure := classifyFailure(m, recorded, failed)
	if failure == failureOther {
		return x.continueWithoutDisk(ctx, m, want, recorded, failed)
	}
	vm, all, err := x.finder.find(ctx, m)
	if err != nil {
		return hypervisor.State{}, err
	}
	switch decideStep(vm, failure) {
	case stepCreate:
		return x.creation.createMachine(ctx, m, want, all, recorded)
	case stepSkip:
		node, vmid := recordedPlacement(m)
		if vmid == 0 { // the user sees what has the VMID, which ends the claim
			return x.creation.createMachine(ctx, m, want, all, nil)
		}
		return x.creation.skipVMID(ctx, m, want, placement{node: node, vmid: vmid}, all)
	case stepMove:
		return x.moveToOtherHost(ctx, m, want, vm, failed)
	case stepWait:
		if err := x.checkCreation(ctx, vm); err != nil {
			return hypervisor.State{}, err
		}
		lock := vm.config["lock"]
		return taskState(m, &v1alpha1.ProviderTask{ID: fmt.Sprintf("VM %d is locked (%s)", vm.id, lock), Action: lock}), nil
	case stepObserve:
		return x.observeLocked(ctx, m, want, vm)
	case stepUpdate:
		return x.updateMachine(ctx, m, want, vm, recorded, nil)
	default:
		return hypervisor.State{}, failed
	}
}

// continueWithoutDisk returns the error of a task. If the task had to create or to grow a disk of a machine that has run, it makes all other
// changes.
func (x *Hypervisor) continueWithoutDisk(ctx context.Context, m *v1alpha1.Machine, want hypervisor.Desired, recorded *v1alpha1.ProviderTask, failed error) (hypervisor.State, error) {
	if m.Status.Task != nil || (recorded.Action != actionConfigure && recorded.Action != actionResize) {
		return hypervisor.State{}, failed
	}
	vm, _, err := x.finder.find(ctx, m)
	if err != nil || vm == nil {
		return hypervisor.State{}, failed
	}
	m.Status.Disks = readDisks(m, vm, want.Disks) // the status lists the disk that the task has not created
	if vm.config["lock"] != "" || !hasStarted(m) {
		return hypervisor.State{}, failed
	}
	return x.updateMachine(ctx, m, want, vm, nil, failed)
}

// observeLocked observes a virtual machine that Proxmox VE has locked, for a backup for example.
// The virtual machine keeps running, but Proxmox VE refuses every change.
func (x *Hypervisor) observeLocked(ctx context.Context, m *v1alpha1.Machine, want hypervisor.Desired, vm *virtualMachine) (hypervisor.State, error) {
	if err := x.recordFound(ctx, m, vm); err != nil {
		return hypervisor.State{}, err
	}
	p, err := x.readPower(ctx, vm)
	if err != nil {
		return hypervisor.State{}, err
	}
	s, lock := taskState(m, nil), vm.config["lock"]
	m.Status.Disks = readDisks(m, vm, want.Disks)
	s.VMName, s.NodeName, s.Reason = nameOf(m, vm), vm.node, ""
	running := p.Status == pve.StatusVirtualMachineRunning
	if running {
		x.observeRunning(ctx, want, vm, p, &s)
	} else {
		s.Phase = v1alpha1.MachineStopped
	}
	waiting := running != (m.Spec.PowerState != v1alpha1.PowerStopped) || m.Spec.RestartToken != m.Status.RestartToken || len(differingOptions(m, want, vm)) > 0
	switch {
	case lock == "suspended":
		s.Reason, s.Message = "Suspended", fmt.Sprintf("VM %d is suspended: resume it at Proxmox VE", vm.id)
	case waiting:
		s.Reason, s.Message = "Locked", fmt.Sprintf("VM %d is locked (%s): a change of the machine waits until Proxmox VE unlocks it. If nothing works on it any more, run qm unlock %d on node %s",
			vm.id, lock, vm.id, vm.node)
	case !running:
		s.Reason, s.Message = hypervisor.ReasonStopped, hypervisor.MessageStopped
	}
	return s, nil
}

// moveToOtherHost deletes a virtual machine that has never run, because its host has too little
// memory for it, if another host can take it. The phase of the Machine may come from a backup, so the tasks of the host have to show that too. It records
// the other host, so the next call creates the virtual machine there, whatever the first host reports.
func (x *Hypervisor) moveToOtherHost(ctx context.Context, m *v1alpha1.Machine, want hypervisor.Desired, vm *virtualMachine, failed error) (hypervisor.State, error) {
	if ran, err := x.hasRun(ctx, vm); err != nil || ran {
		return hypervisor.State{}, cmp.Or(err, failed)
	}
	where, err := x.claimOtherHost(ctx, m, want, vm, failed)
	if err == nil {
		err = x.unprotect(ctx, m, vm)
	}
	if err != nil {
		return hypervisor.State{}, err
	}
	t, err := x.destroy(ctx, vm)
	m.Status.ProviderID, m.Status.VMName = formatProviderID(where.node, vm.id), ""
	s := taskState(m, taskOf(actionDelete, t))
	s.Retried = true
	return s, err
}

// claimOtherHost chooses another host for a machine whose host has too little memory, and moves its claim there. It tries each host once, and then returns
// the error of a virtual machine that is started again where it is, with back-off.
func (x *Hypervisor) claimOtherHost(ctx context.Context, m *v1alpha1.Machine, want hypervisor.Desired, vm *virtualMachine, failed error) (placement, error) {
	all, err := x.readInventory(ctx)
	if err == nil {
		all, err = x.cds.restrictStorages(ctx, all, decideFirstBoot(m, want))
	}
	if err != nil {
		return placement{}, err
	}
	source, err := x.images.findTemplate(ctx, m, all)
	if err != nil {
		return placement{}, err
	}
	claims, err := x.vmids.listClaims(ctx)
	if err != nil {
		return placement{}, err
	}
	had := claims.of(m)
	full := append(fullHosts(m, had), vm.node)
	where, err := x.creation.hosts.choose(ctx, m, want, all.withoutHosts(full), source, claims)
	if _, isUserError := reconcile.AsUserError(err); isUserError {
		return placement{}, noOtherHost(failed, full)
	}
	if err == nil {
		_, err = x.vmids.moveClaim(ctx, m, had, memoryClaim{node: where.node, vmid: vm.id, bytes: megabytes(want) << 20, fullHosts: strings.Join(full, ",")})
	}
	return where, err
}

// noOtherHost returns the error of a machine that no host could start. It is retried, because a host may get room.
func noOtherHost(failed error, full []string) error {
	problem, _ := reconcile.AsUserError(failed)
	slices.Sort(full)
	hosts := "node " + strings.Join(full, ", ")
	if len(full) > 1 {
		hosts = "nodes " + strings.Join(full, ", ")
	}
	problem.Message += fmt.Sprintf(": %s had too little memory, and no other node can take the machine: free memory there, add nodes, or ask for less. "+
		"The annotation %s on the Machine has the stack try all nodes again", hosts, v1alpha1.AnnotationReconcile)
	return hypervisor.RetriedUserError{UserError: problem}
}
