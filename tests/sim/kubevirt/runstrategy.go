package kubevirt

import (
	"math"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	virtv1 "kubevirt.io/api/core/v1"
)

// runDecision is what a machine's run strategy requires.
type runDecision string

const (
	keep    runDecision = "keep"    // keep the instance, or its absence
	start   runDecision = "start"   // create the instance
	stop    runDecision = "stop"    // delete the instance
	rerun   runDecision = "rerun"   // delete the instance, and start another one
	delayed runDecision = "delayed" // start after the backoff has passed
)

// decideRun compares a machine's strategy with its instance, which may be nil.
//
//	strategy        instance            decision
//	Always          none                start, or delayed after a failed start
//	Always          final, stop asked   stop
//	RerunOnFailure  none                start when asked or new to the strategy
//	RerunOnFailure  failed              rerun
//	RerunOnFailure  succeeded           stop
//	Manual          none                start when asked
//	Manual          stop asked          stop
//	Halted          any                 stop
//	Once            none                start
//	all             otherwise           keep
func decideRun(vm *virtv1.VirtualMachine, vmi *virtv1.VirtualMachineInstance, strategy virtv1.VirtualMachineRunStrategy, now time.Time) runDecision {
	if vmi != nil && vmi.DeletionTimestamp != nil {
		return keep
	}
	startOrDelay := start
	if backoffLeft(vm, now) > 0 {
		startOrDelay = delayed
	}
	switch strategy {
	case virtv1.RunStrategyAlways:
		return decideAlways(vm, vmi, startOrDelay)
	case virtv1.RunStrategyRerunOnFailure:
		return decideRerun(vm, vmi, startOrDelay)
	case virtv1.RunStrategyManual:
		return decideManual(vm, vmi)
	case virtv1.RunStrategyHalted:
		if vmi != nil {
			return stop
		}
	case virtv1.RunStrategyOnce:
		if vmi == nil {
			return start
		}
	}
	return keep
}

func decideAlways(vm *virtv1.VirtualMachine, vmi *virtv1.VirtualMachineInstance, startOrDelay runDecision) runDecision {
	switch {
	case vmi == nil:
		return startOrDelay
	case vmi.IsFinal() || stopAsked(vm, vmi):
		return stop
	}
	return keep
}

func decideRerun(vm *virtv1.VirtualMachine, vmi *virtv1.VirtualMachineInstance, startOrDelay runDecision) runDecision {
	switch {
	case vmi == nil && (startAsked(vm) || vm.Status.RunStrategy != virtv1.RunStrategyRerunOnFailure):
		return startOrDelay
	case vmi == nil:
		return keep
	case vmi.Status.Phase == virtv1.Failed:
		return rerun
	case vmi.Status.Phase == virtv1.Succeeded || stopAsked(vm, vmi):
		return stop
	}
	return keep
}

func decideManual(vm *virtv1.VirtualMachine, vmi *virtv1.VirtualMachineInstance) runDecision {
	switch {
	case vmi == nil && startAsked(vm):
		return start
	case vmi != nil && stopAsked(vm, vmi):
		return stop
	}
	return keep
}

// startAsked reports whether there is a pending request to start, as virt-api writes it.
func startAsked(vm *virtv1.VirtualMachine) bool {
	requests := vm.Status.StateChangeRequests
	return len(requests) > 0 && requests[0].Action == virtv1.StartRequest
}

// stopAsked reports whether there is a pending request to stop exactly this instance.
func stopAsked(vm *virtv1.VirtualMachine, vmi *virtv1.VirtualMachineInstance) bool {
	requests := vm.Status.StateChangeRequests
	return len(requests) > 0 && requests[0].Action == virtv1.StopRequest &&
		requests[0].UID != nil && *requests[0].UID == vmi.UID
}

// requestDone reports whether the first request has been carried out.
func requestDone(vm *virtv1.VirtualMachine, vmi *virtv1.VirtualMachineInstance) bool {
	requests := vm.Status.StateChangeRequests
	if len(requests) == 0 {
		return false
	}
	switch requests[0].Action {
	case virtv1.StopRequest:
		return vmi == nil || !stopAsked(vm, vmi)
	case virtv1.StartRequest:
		return vmi != nil && vmi.DeletionTimestamp == nil && !vmi.IsFinal()
	}
	return false
}

// setToStart reports whether an instance should exist.
func setToStart(vm *virtv1.VirtualMachine, vmi *virtv1.VirtualMachineInstance, strategy virtv1.VirtualMachineRunStrategy) bool {
	switch strategy {
	case virtv1.RunStrategyAlways:
		return true
	case virtv1.RunStrategyManual:
		if vmi != nil {
			return !stopAsked(vm, vmi)
		}
		return startAsked(vm)
	case virtv1.RunStrategyRerunOnFailure:
		return vmi == nil || vmi.Status.Phase != virtv1.Succeeded
	case virtv1.RunStrategyOnce:
		return vmi == nil
	}
	return false
}

// startFailure returns the failed starts in a row. It is nil once the instance runs, or if the
// strategy does not start another instance.
func startFailure(vm *virtv1.VirtualMachine, vmi *virtv1.VirtualMachineInstance, strategy virtv1.VirtualMachineRunStrategy, first time.Duration, now time.Time) *virtv1.VirtualMachineStartFailure {
	restarts := strategy == virtv1.RunStrategyAlways || strategy == virtv1.RunStrategyRerunOnFailure || strategy == virtv1.RunStrategyOnce
	if hasRun(vmi) || !restarts {
		return nil
	}
	before := vm.Status.StartFailure
	if vmi == nil || !vmi.IsFinal() || (before != nil && before.LastFailedVMIUID == vmi.UID) {
		return before
	}
	count := 1
	if before != nil {
		count = before.ConsecutiveFailCount + 1
	}
	retry := metav1.NewTime(now.Add(backoff(count, first)))
	return &virtv1.VirtualMachineStartFailure{
		ConsecutiveFailCount: count, LastFailedVMIUID: vmi.UID, RetryAfterTimestamp: &retry,
	}
}

// backoff grows with the square of the failures, up to five minutes.
func backoff(failures int, first time.Duration) time.Duration {
	return min(time.Duration(float64(first)*math.Pow(float64(failures), 2)), 5*time.Minute)
}

// backoffLeft returns how long a machine that failed to start still waits.
func backoffLeft(vm *virtv1.VirtualMachine, now time.Time) time.Duration {
	failure := vm.Status.StartFailure
	if failure == nil || failure.RetryAfterTimestamp == nil {
		return 0
	}
	return max(0, failure.RetryAfterTimestamp.Sub(now))
}

func hasRun(vmi *virtv1.VirtualMachineInstance) bool {
	if vmi == nil {
		return false
	}
	for _, t := range vmi.Status.PhaseTransitionTimestamps {
		if t.Phase == virtv1.Running {
			return true
		}
	}
	return false
}
