package proxmox

import (
	"github.com/vitistack/stack/apis/v1alpha1"
)

// What Ensure does once no task works on a Machine.
const (
	stepCreate  = "create"
	stepMove    = "move"
	stepWait    = "wait"
	stepObserve = "observe"
	stepUpdate  = "update"
	stepSkip    = "skip"
	stepFail    = "fail"
)

// decideStep decides what Ensure does, from the virtual machine, which is nil if there is none,
// and from what the failure of the last task means:
//
//	failure   virtual machine                 step
//	final     any                             fail
//	exists    none                            fail
//	taken     none                            skip
//	memory    exists                          move
//	other     none                            create
//	other     locked by its creation          wait
//	other     locked otherwise                observe
//	other     exists                          update
func decideStep(vm *virtualMachine, failure string) string {
	switch {
	case failure == failureOther, failure == failureExists && vm == nil:
		return stepFail
	case failure == failureTaken && vm == nil:
		return stepSkip
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
//	yes   Running          new                restart: stop it, and the next call starts it
//	yes   Running          the same           none
//	no    Stopped          any                none
//	no    Running          any                start
func decidePower(m *v1alpha1.Machine, running bool) string {
	off := m.Spec.PowerState == v1alpha1.PowerStopped
	switch {
	case running && off:
		return actionStop
	case running && m.Spec.RestartToken != m.Status.RestartToken:
		return actionRestart
	case !running && !off:
		return actionStart
	default:
		return ""
	}
}
