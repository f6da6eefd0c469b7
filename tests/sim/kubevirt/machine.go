package kubevirt

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	virtv1 "kubevirt.io/api/core/v1"
	cdiv1 "kubevirt.io/containerized-data-importer-api/pkg/apis/core/v1beta1"

	"github.com/vitistack/stack/tests/sim/faults"
	"github.com/vitistack/stack/tests/sim/kubevirt/admission"
)

// Operations on machines, for the fault plan.
const (
	opStart    = "vm/start"
	opSchedule = "vmi/schedule"
	opRun      = "vmi/run"
	opBoot     = "vmi/boot"
	opPause    = "vmi/pause"
	opStop     = "vmi/stop"
)

// visit is one reconciliation of a machine and its instance. Either may be nil.
type visit struct {
	*Simulator
	vm       *virtv1.VirtualMachine
	vmi      *virtv1.VirtualMachineInstance
	strategy virtv1.VirtualMachineRunStrategy
	now      time.Time

	again   time.Duration // when to reconcile again, or zero
	failure *syncFailure
	restart string
	secrets map[string]*corev1.Secret // read in this visit
}

// machine reconciles a machine and its instance.
func (s *Simulator) machine(ctx context.Context, namespace, name string) (time.Duration, error) {
	v := &visit{
		Simulator: s, now: time.Now(),
		vm: s.api.vms.get(namespace, name), vmi: s.api.vmis.get(namespace, name),
	}
	if s.options.RealController {
		// No controller manager runs, and a pod needs the account.
		err := ensure(ctx, s.api.accounts, &corev1.ServiceAccount{ObjectMeta: metav1.ObjectMeta{Name: "default", Namespace: namespace}})
		if err == nil {
			err = v.runPods(ctx, namespace, name)
		}
		return v.again, err
	}
	if v.vm == nil {
		err := v.instance(ctx)
		return v.again, err
	}
	if v.vm.Spec.Template == nil {
		return 0, nil // admission rejects it, so there is nothing to run
	}
	strategy, err := v.vm.RunStrategy()
	if err != nil {
		return 0, fmt.Errorf("read the run strategy of %s/%s: %w", namespace, name, err)
	}
	v.strategy = strategy
	err = v.steps(ctx)
	if apierrors.IsConflict(err) {
		return 0, err // the decision was based on an outdated object
	}
	err = errors.Join(err, v.report(ctx))
	return v.again, err
}

// lookAgain keeps the earliest time of the next reconciliation.
func (v *visit) lookAgain(after time.Duration) {
	if after > 0 && (v.again == 0 || after < v.again) {
		v.again = after
	}
}

// takeStep reports whether the time of a step is over, and returns the fault with which the caller performs it. Otherwise the
// machine is reconciled again then.
func (v *visit) takeStep(s step, duration time.Duration) (fault faults.Fault, isDue bool) {
	left, fault := v.pace.wait(s, duration)
	if left > 0 {
		v.lookAgain(left)
		return fault, false
	}
	v.pace.done(s)
	return fault, true
}

func (v *visit) steps(ctx context.Context) error {
	if v.vm.DeletionTimestamp != nil {
		return v.retire(ctx)
	}
	if err := v.adopt(ctx); err != nil {
		return err
	}
	ready, err := v.templates(ctx)
	if err != nil {
		v.failure = &syncFailure{reasonFailedCreate, "Error encountered while creating DataVolumes: " + err.Error()}
		return err
	}
	mayRun := ready || v.strategy == virtv1.RunStrategyHalted
	// An instance that ends in the first round may be replaced at once.
	for round := 0; round < 2; round++ {
		if mayRun {
			if err := v.follow(ctx); err != nil {
				return err
			}
		}
		had := v.vmi != nil
		if err := v.instance(ctx); err != nil {
			return err
		}
		if !had || v.vmi != nil {
			break
		}
	}
	v.restart = v.liveUpdate(ctx)
	return nil
}

// adopt marks a machine as KubeVirt's, if admission has not done so.
func (v *visit) adopt(ctx context.Context) error {
	if slices.Contains(v.vm.Finalizers, virtv1.VirtualMachineControllerFinalizer) && machineID(v.vm) != "" {
		return nil
	}
	marked := v.vm.DeepCopy()
	admission.DefaultMachine(marked, v.vm.Spec.Template.Spec.Domain.Firmware == nil)
	markMachine(marked)
	var err error
	v.vm, err = v.api.vms.patch(ctx, v.vm, marked)
	return err
}

// markMachine adds what virt-controller writes to each machine.
func markMachine(vm *virtv1.VirtualMachine) {
	if !slices.Contains(vm.Finalizers, virtv1.VirtualMachineControllerFinalizer) {
		vm.Finalizers = append(vm.Finalizers, virtv1.VirtualMachineControllerFinalizer)
	}
	if vm.Annotations == nil {
		vm.Annotations = map[string]string{}
	}
	vm.Annotations[virtv1.ControllerAPILatestVersionObservedAnnotation] = observedVersion
	vm.Annotations[virtv1.ControllerAPIStorageVersionObservedAnnotation] = observedVersion
}

// templates creates the DataVolumes of a machine, and reports whether all of them permit its start.
func (v *visit) templates(ctx context.Context) (bool, error) {
	ready := true
	for _, template := range v.vm.Spec.DataVolumeTemplates {
		dv := v.api.imports.get(v.vm.Namespace, template.Name)
		if dv == nil {
			made, err := v.api.imports.create(ctx, dataVolumeOf(v.vm, template))
			if err != nil && !apierrors.IsAlreadyExists(err) {
				return false, err
			}
			dv = made
		}
		switch dv.Status.Phase {
		case cdiv1.Succeeded, cdiv1.WaitForFirstConsumer, cdiv1.PendingPopulation:
		default:
			claim := v.api.claims.get(v.vm.Namespace, template.Name)
			ready = ready && claim != nil && populatesForConsumer(claim)
		}
	}
	return ready, nil
}

func dataVolumeOf(vm *virtv1.VirtualMachine, template virtv1.DataVolumeTemplateSpec) *cdiv1.DataVolume {
	dv := &cdiv1.DataVolume{ObjectMeta: *template.ObjectMeta.DeepCopy(), Spec: *template.Spec.DeepCopy()}
	dv.Namespace = vm.Namespace
	if dv.Annotations == nil {
		dv.Annotations = map[string]string{}
	}
	dv.Annotations["cdi.kubevirt.io/allowClaimAdoption"] = "true"
	if dv.Labels == nil {
		dv.Labels = map[string]string{}
	}
	dv.Labels[virtv1.CreatedByLabel] = string(vm.UID)
	dv.OwnerReferences = append(dv.OwnerReferences, *metav1.NewControllerRef(vm, virtv1.VirtualMachineGroupVersionKind))
	return dv
}

// follow applies the run strategy.
func (v *visit) follow(ctx context.Context) error {
	switch decision := decideRun(v.vm, v.vmi, v.strategy, v.now); decision {
	case start:
		return v.start(ctx)
	case delayed:
		v.lookAgain(backoffLeft(v.vm, v.now))
	case stop, rerun:
		if v.vmi.IsFinal() && startFailure(v.vm, v.vmi, v.strategy, 0, v.now) != v.vm.Status.StartFailure {
			return nil // the failure is counted first
		}
		if decision == rerun {
			if err := v.askStart(ctx); err != nil {
				return err
			}
		}
		return v.stop(ctx)
	}
	return nil
}

// start creates the instance.
func (v *visit) start(ctx context.Context) error {
	fault, isDue := v.takeStep(step{v.vm.UID, opStart}, 0)
	if !isDue {
		return nil
	}
	if text, failed := fault.Before(); failed {
		return v.startFailed(ctx, injected(opStart, text))
	}
	// The real virt-controller reports a machine as it was before this visit: Stopped, if it has no instance yet.
	if err := v.report(ctx); err != nil {
		return err
	}
	wanted := newInstance(v.vm, v.now)
	if causes := admission.ValidateInstance(wanted, admission.Request{Created: true, Internal: true}); len(causes) > 0 {
		return v.startFailed(ctx, fmt.Errorf(
			"admission webhook %q denied the request: %s", instanceValidator, causes.Message()))
	}
	vmi, err := v.api.vmis.create(ctx, wanted)
	if err != nil {
		if apierrors.IsAlreadyExists(err) {
			return err
		}
		return v.startFailed(ctx, err)
	}
	v.vmi = vmi
	if text, failed := fault.Lost(); failed {
		return v.startFailed(ctx, injected(opStart, text))
	}
	return nil
}

func (v *visit) startFailed(ctx context.Context, err error) error {
	v.failure = &syncFailure{reasonFailedCreate, "Failure while starting VMI: " + err.Error()}
	v.events.warn(ctx, "virtualmachine-controller", referenceTo(v.vm, "VirtualMachine"),
		reasonFailedCreate, "Error creating virtual machine instance: "+err.Error())
	return err
}

// stop deletes the instance.
func (v *visit) stop(ctx context.Context) error {
	if v.vmi.DeletionTimestamp != nil {
		return nil
	}
	left, err := v.api.vmis.delete(ctx, v.vmi)
	if err != nil {
		v.failure = &syncFailure{reasonFailedDelete, "Failure attempting to delete VMI: " + err.Error()}
		return err
	}
	v.vmi = left
	return nil
}

// askStart records a request to start again in the status, so that it survives.
func (v *visit) askStart(ctx context.Context) error {
	if startAsked(v.vm) {
		return nil
	}
	asked := v.vm.DeepCopy()
	asked.Status.StateChangeRequests = append(asked.Status.StateChangeRequests,
		virtv1.VirtualMachineStateChangeRequest{Action: virtv1.StartRequest})
	var err error
	v.vm, err = v.api.vms.patch(ctx, v.vm, asked, "status")
	return err
}

// retire stops the instance of a machine that is being deleted, and then removes the machine's
// finalizer.
func (v *visit) retire(ctx context.Context) error {
	if v.vmi != nil {
		if err := v.stop(ctx); err != nil {
			return err
		}
		if err := v.instance(ctx); err != nil || v.vmi != nil {
			return err
		}
	}
	if !slices.Contains(v.vm.Finalizers, virtv1.VirtualMachineControllerFinalizer) {
		return nil
	}
	if id := machineID(v.vm); id != "" {
		if err := v.options.Guests.Destroy(id); err != nil {
			return fmt.Errorf("destroy the guest of %s/%s: %w", v.vm.Namespace, v.vm.Name, err)
		}
	}
	freed := v.vm.DeepCopy()
	freed.Finalizers = slices.DeleteFunc(freed.Finalizers, func(f string) bool {
		return f == virtv1.VirtualMachineControllerFinalizer
	})
	if _, err := v.api.vms.patch(ctx, v.vm, freed); err != nil && !apierrors.IsNotFound(err) {
		return err
	}
	v.pace.forget(v.vm.UID)
	v.events.forget(v.vm.UID)
	v.vm = nil
	return nil
}

// report writes the machine's status if it differs.
func (v *visit) report(ctx context.Context) error {
	if v.vm == nil {
		return nil
	}
	after := v.vm.DeepCopy()
	after.Status = machineStatus(machineView{
		vm: v.vm, vmi: v.vmi, strategy: v.strategy, failure: v.failure, restart: v.restart,
		storage: v.storage(v.vm.Namespace, v.vm.Spec.Template.Spec.Volumes), backoff: v.options.Times.CrashBackoff,
	}, v.now)
	if !statusDiffers(v.vm.Status, after.Status) {
		return nil
	}
	written, err := v.api.vms.patch(ctx, v.vm, after, "status")
	if apierrors.IsNotFound(err) {
		return nil
	}
	v.vm = written
	return err
}

func referenceTo(o metav1.Object, kind string) corev1.ObjectReference {
	return corev1.ObjectReference{
		APIVersion: virtv1.GroupVersion.String(), Kind: kind,
		Namespace: o.GetNamespace(), Name: o.GetName(), UID: o.GetUID(),
	}
}
