package proxmox

import (
	"strings"

	"github.com/vitistack/stack/apis/v1alpha1"
	"github.com/vitistack/stack/functions/internal/reconcile"
)

// What Ensure does once no task works on a Machine.
const (
	stepCreate  = "create"
	stepMove    = "move"
	stepWait    = "wait"
	stepObserve = "observe"
	stepUpdate  = "update"
	stepFail    = "fail"
)

// What the failure of the recorded task means.
const (
	// failureNone is the task's success, or no task.
	failureNone = ""
	// failureExists says that what the task had to create exists. Whether it is the Machine's
	// own, after an answer was lost, shows in its UID.
	failureExists = "exists"
	// failureMemory says that the host has too little memory for the first start.
	failureMemory = "memory"
	// failureFinal is any other failure.
	failureFinal = "final"
)

// classifyFailure returns what the error of the task recorded in a Machine means.
func classifyFailure(m *v1alpha1.Machine, recorded *v1alpha1.ProviderTask, failed error) string {
	if failed == nil {
		return failureNone
	}
	problem, isUserError := reconcile.AsUserError(failed)
	switch {
	case !isUserError || recorded == nil:
		return failureFinal
	case (recorded.Action == actionCreate || recorded.Action == actionClone) && strings.Contains(problem.Message, "already exists"):
		return failureExists
	case recorded.Action == actionStart && problem.Reason == reasonInsufficient && m.Status.Phase == v1alpha1.MachineCreating:
		return failureMemory
	default:
		return failureFinal
	}
}

// decideStep decides what Ensure does, from the virtual machine, which is nil if there is none,
// and from what the failure of the last task means:
//
//	failure   virtual machine                 step
//	final     any                             fail
//	exists    none                            fail
//	memory    exists                          move
//	other     none                            create
//	other     locked by its creation          wait
//	other     locked otherwise                observe
//	other     exists                          update
func decideStep(vm *virtualMachine, failure string) string {
	switch {
	case failure == failureFinal, failure == failureExists && vm == nil:
		return stepFail
	case failure == failureMemory && vm != nil:
		return stepMove
	case vm == nil:
		return stepCreate
	case vm.config["lock"] == actionCreate, vm.config["lock"] == actionClone:
		return stepWait
	case vm.config["lock"] != "":
		return stepObserve
	default:
		return stepUpdate
	}
}

// decidePower decides which task changes the power of a virtual machine. It returns its action,
// or nothing:
//
//	runs  spec.powerState  spec.restartToken  action
//	yes   Stopped          any                stop
//	yes   Running          new                stop, and the next call starts it
//	yes   Running          the same           none
//	no    Stopped          any                none
//	no    Running          any                start
func decidePower(m *v1alpha1.Machine, running bool) string {
	off := m.Spec.PowerState == v1alpha1.PowerStopped
	switch {
	case running && (off || m.Spec.RestartToken != m.Status.RestartToken):
		return actionStop
	case !running && !off:
		return actionStart
	default:
		return ""
	}
}
