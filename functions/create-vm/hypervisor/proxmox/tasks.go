package proxmox

import (
	"context"
	"fmt"
	"regexp"
	"strconv"
	"strings"

	pve "github.com/luthermonson/go-proxmox"

	"github.com/vitistack/stack/apis/v1alpha1"
	"github.com/vitistack/stack/functions/create-vm/hypervisor"
	"github.com/vitistack/stack/functions/internal/reconcile"
)

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
	actionRestart   = "restart"
	actionDelete    = "delete"
	actionDeleteCD  = "delete-cd"
)

// awaitTask reads the task that is recorded in a Machine, and reports whether it still runs. It
// removes a task that has ended from the status, and returns the error of one that has failed. The restart token of a
// failed restart is not served any more, so that the next call restarts the machine.
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
	err = failedTaskError(recorded.Action, t.failure)
	if err != nil && recorded.Action == actionRestart {
		m.Status.RestartToken = ""
	}
	return false, err
}

// failedTaskError returns the error of a failed task, which is retried unless no host has room for the machine. It
// returns nil for a failure that leaves the desired state.
func failedTaskError(action, failure string) error {
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
	problem := reconcile.UserError{Reason: reason, Message: fmt.Sprintf("Proxmox VE could not %s the virtual machine: %s", action, failure)}
	if service := haErrorState.FindStringSubmatch(failure); service != nil {
		problem.Message += fmt.Sprintf(": high availability has given it up: run ha-manager set %s --state disabled on a node. The stack starts it then", service[1])
	}
	if reason == reasonInsufficient {
		return problem
	}
	return hypervisor.RetriedUserError{UserError: problem}
}

// haErrorState matches the service of a virtual machine that high availability does not start any more, in the failure of a start.
var haErrorState = regexp.MustCompile(`'(vm:[0-9]+)' in error state`)

// reasonInsufficient is the reason of a Machine that no host has room for.
const reasonInsufficient = "InsufficientResources"

// taskState returns the state of a machine that a task works on, as far as it is recorded.
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
		s.Message = "a node and a VMID are reserved for the virtual machine"
	case actionStart:
		s.Reason, s.Message = "Starting", "waiting for the virtual machine to start"
	case actionStop, actionRestart:
		s.Reason, s.Message = "Stopping", "waiting for the virtual machine to stop"
	default:
		s.Message = "waiting for Proxmox VE to " + t.Action + " the virtual machine"
	}
	return s
}

// taskOf returns a task for a Machine's status. Some calls start a task without an ID.
func taskOf(action string, t *pve.Task) *v1alpha1.ProviderTask {
	if t == nil {
		return &v1alpha1.ProviderTask{ID: hypervisor.UnnamedTask, Action: action}
	}
	return &v1alpha1.ProviderTask{ID: string(t.UPID), Action: action}
}

// startedState returns the state of a machine after a task was started for its virtual machine.
func startedState(m *v1alpha1.Machine, vm *virtualMachine, t *v1alpha1.ProviderTask) hypervisor.State {
	s := taskState(m, t)
	s.VMName, s.NodeName = nameOf(m, vm), vm.node
	return s
}

// nameOf returns the name of a virtual machine, or that of its Machine.
func nameOf(m *v1alpha1.Machine, vm *virtualMachine) string {
	if vm.config["name"] != "" {
		return vm.config["name"]
	}
	return m.Name
}

// taskResult is the state of a task of Proxmox VE.
type taskResult struct {
	running bool
	// failure is the exit status of a failed task with the last line of its log. It is empty if the task
	// has succeeded.
	failure string
}

// readTask returns the state of a task. A task that Proxmox VE has forgotten has ended, and so has a task on a host that does not
// answer to its cluster: what it has done shows in the virtual machine.
func (x api) readTask(ctx context.Context, upid string) (taskResult, error) {
	if !strings.HasPrefix(upid, "UPID:") || strings.Count(upid, ":") < 8 {
		return taskResult{}, nil
	}
	t := pve.NewTask(pve.UPID(upid), x.client)
	if err := t.Ping(ctx); err != nil {
		if hasMessage(err, "no such task") || x.isHostDown(ctx, strings.Split(upid, ":")[1], err) {
			return taskResult{}, nil
		}
		return taskResult{}, err
	}
	if t.IsRunning || t.IsSuccessful || strings.HasPrefix(t.ExitStatus, "WARNINGS") {
		return taskResult{running: t.IsRunning}, nil
	}
	return taskResult{failure: strings.TrimSpace(t.ExitStatus + x.lastLogLine(ctx, t))}, nil
}

// isHostDown reports whether an error of a request to a host means that the host is no member of the cluster, or does not answer
// to it.
func (x api) isHostDown(ctx context.Context, node string, err error) bool {
	if !isHostFailure(err) {
		return false
	}
	all, err := x.readInventory(ctx)
	return err == nil && !all.isAnswering(node)
}

// lastLogLine returns the last line of a task's log that adds something to its exit status.
func (x api) lastLogLine(ctx context.Context, t *pve.Task) string {
	const lines = 200
	log, err := t.Log(ctx, 0, lines)
	if err != nil {
		return ""
	}
	for n := len(log) - 1; n >= 0; n-- {
		line := strings.TrimSpace(log[n])
		if line != "" && !strings.HasPrefix(line, "TASK ") && line != t.ExitStatus {
			return " (" + line + ")"
		}
	}
	return ""
}

// checkCreation returns a UserError for a virtual machine that is locked by its creation although no task creates it: the lock of
// a task stays if its host loses power. It reads the configuration again, because the task may have ended before its host listed
// the tasks.
func (x api) checkCreation(ctx context.Context, vm *virtualMachine) error {
	lock, filter := vm.config["lock"], "vmid="+strconv.Itoa(vm.id)
	if lock == actionClone {
		filter = "typefilter=qmclone" // the task has the VMID of the template
	}
	if active, err := x.activeTasks(ctx, vm.node, filter); err != nil || len(active) > 0 {
		return err
	}
	now, err := x.read(ctx, vm.node, vm.id)
	switch {
	case isMissing(err), err == nil && now.config["lock"] != lock:
		return nil
	case err != nil:
		return err
	}
	return hypervisor.RetriedUserError{UserError: reconcile.UserError{Reason: "Locked", Message: fmt.Sprintf("VM %[1]d is locked (%[2]s), because its creation was interrupted: "+
		"run qm unlock %[1]d and qm destroy %[1]d --purge on node %[3]s. The stack continues by itself", vm.id, lock, vm.node)}}
}

// activeTasks returns the UPIDs of the tasks at work on a node that a filter of the API selects. A user without Sys.Audit sees the own ones.
func (x api) activeTasks(ctx context.Context, node, filter string) (upids []string, err error) {
	var active []struct {
		UPID string `json:"upid"`
	}
	err = x.client.Get(ctx, "/nodes/"+node+"/tasks?source=active&"+filter, &active)
	for _, a := range active {
		upids = append(upids, a.UPID)
	}
	return upids, err
}

// hasRun reports whether a virtual machine has been started since it was created, or was restored from a backup, by the tasks that its host has recorded. It
// reports true if they are too many to know. A user without Sys.Audit sees the own tasks.
func (x api) hasRun(ctx context.Context, vm *virtualMachine) (bool, error) {
	const most = 50
	var listed []struct {
		Type   string `json:"type"`
		Status string `json:"status"`
	}
	if err := x.client.Get(ctx, fmt.Sprintf("/nodes/%s/tasks?source=all&limit=%d&vmid=%d", vm.node, most, vm.id), &listed); err != nil {
		return false, err
	}
	for _, t := range listed { // the newest first
		if t.Status != "OK" && !strings.HasPrefix(t.Status, "WARNINGS") {
			continue
		}
		switch t.Type {
		case "qmstart", "qmrestore":
			return true, nil
		case "qmcreate", "qmdestroy":
			return false, nil
		}
	}
	return len(listed) == most, nil
}

// What the failure of the recorded task means.
const (
	// failureNone is the task's success, or no task.
	failureNone = ""
	// failureExists says that what the task had to create exists. Whether it is the Machine's
	// own, after an answer was lost, shows in its UID.
	failureExists = "exists"
	// failureTaken says that what the task had to clone has the VMID of what another host has: unlike a creation, a clone is refused only by its task
	// then (qemu-server, API2/Qemu.pm, clone_vm; pve-cluster, pmxcfs/memdb.c, memdb_rename).
	failureTaken = "taken"
	// failureMemory says that the host has too little memory for the first start.
	failureMemory = "memory"
	// failureOther is any other failure, with which this call ends. Another call may succeed.
	failureOther = "other"
)

// classifyFailure returns what the error of the task recorded in a Machine means.
func classifyFailure(m *v1alpha1.Machine, recorded *v1alpha1.ProviderTask, failed error) string {
	if failed == nil {
		return failureNone
	}
	problem, isUserError := reconcile.AsUserError(failed)
	switch {
	case !isUserError || recorded == nil:
		return failureOther
	case (recorded.Action == actionCreate || recorded.Action == actionClone) && strings.Contains(problem.Message, "already exists"):
		return failureExists
	case recorded.Action == actionClone && strings.Contains(problem.Message, ".conf' failed: File exists"):
		return failureTaken
	case recorded.Action == actionStart && problem.Reason == reasonInsufficient && m.Status.Phase == v1alpha1.MachineCreating:
		return failureMemory
	default:
		return failureOther
	}
}
