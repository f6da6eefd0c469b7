package main

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/cloudevents/sdk-go/v2/event"
	"k8s.io/apimachinery/pkg/api/equality"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/vitistack/stack/apis/machine/plan"
	"github.com/vitistack/stack/apis/v1alpha1"
	"github.com/vitistack/stack/events"
	"github.com/vitistack/stack/events/outbound"
	"github.com/vitistack/stack/functions/create-vm/hypervisor"
	"github.com/vitistack/stack/functions/create-vm/hypervisor/kubevirt"
	"github.com/vitistack/stack/functions/internal/kube"
	"github.com/vitistack/stack/functions/internal/reconcile"
)

// function reconciles Machines and MachineProviders.
type function struct {
	kube      *kube.Client
	networks  networkReconciler
	providers providerReconciler
	// local is the KubeVirt of this cluster, whose changes arrive as events.
	local hypervisor.Observer
	// images are the hosts that hypervisors may fetch images from.
	images outbound.Rules
	// now returns the time.
	now func() time.Time
}

// newFunction returns a function with the strictest settings: it allows no host of images, requires NetworkPools,
// and publishes nothing about hypervisors.
func newFunction(client *kube.Client, connect hypervisor.Connector, now func() time.Time) *function {
	return &function{
		kube: client, now: now, local: kubevirt.Local(client),
		networks:  networkReconciler{kube: client},
		providers: providerReconciler{kube: client, connect: connect, now: now},
	}
}

// handle reconciles the objects that an event affects. A second call changes nothing.
func (f *function) handle(ctx context.Context, in event.Event) (*event.Event, error) {
	ref, err := events.RefOf(in)
	if err != nil {
		return nil, err
	}
	cause := ref.Kind
	if in.Type() == events.TypeResync {
		cause = causeResync
	}
	if ref.Kind == "MachineProvider" {
		var err error
		if events.IsAdd(in.Type()) {
			err = f.requeueWaiting(ctx, providerReasons...)
		}
		return nil, errors.Join(err, kube.OnConflict(func() error { return f.providers.reconcile(ctx, ref.Name, cause) }))
	}
	if ref.Kind == "NetworkPool" {
		return nil, f.requeueWaiting(ctx, reasonBridgeNotAllowed)
	}
	if ref.Kind == "MachineClass" {
		return nil, f.requeueWaiting(ctx, plan.ReasonTemplateNotFound)
	}
	names, err := machineFinder{f.kube}.affectedMachines(ctx, in, ref)
	if err != nil {
		return nil, err
	}
	for _, name := range names {
		if err := kube.OnConflict(func() error { return f.reconcileMachine(ctx, ref.Namespace, name, cause, objectIn(in)) }); err != nil {
			return nil, err
		}
	}
	if ref.Kind == causeNetwork {
		return nil, kube.OnConflict(func() error { return f.networks.explainDeletion(ctx, in, ref) })
	}
	return nil, nil
}

// requeueWaiting reconciles the Machines of all namespaces that are not Ready for one of the reasons, which another
// object may have resolved.
func (f *function) requeueWaiting(ctx context.Context, reasons ...string) error {
	list := &v1alpha1.MachineList{}
	if err := f.kube.List(ctx, "", "", list); err != nil {
		return err
	}
	var problems []error
	for _, m := range list.Items {
		if c := meta.FindStatusCondition(m.Status.Conditions, v1alpha1.ConditionReady); c == nil || c.Status == metav1.ConditionTrue || !slices.Contains(reasons, c.Reason) {
			continue
		}
		problems = append(problems, kube.OnConflict(func() error { return f.reconcileMachine(ctx, m.Namespace, m.Name, causeResync, nothing) }))
	}
	return errors.Join(problems...)
}

// nothing decodes the object of an event without one.
func nothing(any) bool { return false }

// reconcileMachine reconciles one Machine as far as cause requires. decode decodes the object in the event of cause, if there
// is one. A second call changes nothing.
func (f *function) reconcileMachine(ctx context.Context, namespace, name, cause string, decode func(into any) bool) error {
	m := &v1alpha1.Machine{}
	if err := f.kube.Get(ctx, namespace, name, m); err != nil {
		if kube.NotFound(err) {
			return nil
		}
		return err
	}
	if v1alpha1.IsPaused(m) {
		return nil
	}
	if m.DeletionTimestamp != nil {
		return f.removeMachine(ctx, m)
	}
	next := decideAction(m, cause)
	if next == actionNone || (next == actionObserve && f.isRecorded(m, cause, decode)) {
		return nil
	}
	if isDone, err := f.beginAction(ctx, m, next); isDone || err != nil {
		return err
	}
	began, before := f.now(), m.DeepCopy()
	a := attempt{err: hypervisor.ErrGone}
	if next == actionObserve {
		a = f.observeMachine(ctx, m)
	}
	if errors.Is(a.err, hypervisor.ErrGone) { // there is nothing to observe
		var waits bool
		var err error
		if a, before, waits, err = f.resolveAndEnsure(ctx, m, before, cause); waits || err != nil {
			return err
		}
	}
	if kube.Conflict(a.err) {
		return f.removeIfDeleted(ctx, m, a.err)
	}
	a.previousTask, a.ended = before.Status.Task, f.now()
	countReconcile(metricsPrefix(m, a.kind), a.err, a.ended.Sub(began))
	wrote, err := f.patchStatus(ctx, before, m, setStatus(m, a))
	if err != nil {
		return f.removeIfDeleted(ctx, m, err)
	}
	if reconcile.Retried(a.err) {
		return fmt.Errorf("reconcile machine %s/%s: %w", namespace, name, a.err)
	}
	return requeueError(m, wrote)
}

// beginAction removes the machine configuration of m if that is the action, and otherwise waits for the back-off. It
// reports whether the delivery is done.
func (f *function) beginAction(ctx context.Context, m *v1alpha1.Machine, action string) (isDone bool, err error) {
	if action == actionRemoveConfig {
		if isDone, err = f.removeMachineConfig(ctx, m); isDone || err != nil {
			return isDone, err
		}
	}
	return f.waitForBackOff(ctx, m)
}

// resolveAndEnsure creates or changes what a Machine needs, and returns the attempt and the Machine as
// written last. waits is whether its new NetworkConfiguration causes the next event. The MachineProvider is chosen before an
// address is allocated, so that an error in its name is reported at once, and again when something is created at its
// hypervisor. A new node has none yet, because its cluster has checked that it exists.
func (f *function) resolveAndEnsure(ctx context.Context, m, before *v1alpha1.Machine, cause string) (a attempt, written *v1alpha1.Machine, waits bool, err error) {
	clearOperatorProvider(m)
	resolved, err := f.resolveSize(ctx, m)
	if err != nil {
		return attempt{err: err}, before, false, nil
	}
	isNewNode := needsOnlyAddresses(m)
	var provider *v1alpha1.MachineProvider
	if !isNewNode {
		if provider, err = f.providers.choose(ctx, m); err != nil {
			return attempt{err: err}, before, false, nil
		}
	}
	if cause == causeMachine && f.networks.createNew(ctx, m) {
		return attempt{}, before, true, nil
	}
	if isNewNode {
		if a.nics, a.err = f.networks.ensure(ctx, m); a.err == nil {
			a.err = f.readUserData(ctx, m, &hypervisor.Desired{NICs: a.nics})
		}
		return a, before, false, nil
	}
	if before, err = f.addFinalizersAndProvider(ctx, before, m, provider); err != nil {
		return attempt{}, nil, false, err
	}
	a = f.ensureMachine(ctx, m, resolved.Size, provider)
	a.kind, a.resolved = provider.Spec.Type, &resolved
	return a, before, false, nil
}

// resolveSize returns the size of a Machine. It changes nothing. The MachineClasses are read only if the size depends on them.
func (f *function) resolveSize(ctx context.Context, m *v1alpha1.Machine) (plan.Resolution, error) {
	s, err := plan.Resolve(m, func() ([]v1alpha1.MachineClass, error) {
		list, err := kube.ListShared[v1alpha1.MachineClassList](ctx, f.kube, "", metav1.ListOptions{})
		if err != nil {
			return nil, err
		}
		return list.Items, nil
	})
	if err == nil && m.Status.VMName == "" { // afterwards nothing is fetched, and os cannot be changed
		err = plan.CheckImageHosts(m.Spec.OS, f.images)
	}
	return s, err
}

// addFinalizersAndProvider writes the finalizer and the MachineProvider before anything is created for a
// Machine, and returns the Machine as written. So the deletion finds the virtual machine even if
// this delivery ends here.
func (f *function) addFinalizersAndProvider(ctx context.Context, before, m *v1alpha1.Machine, provider *v1alpha1.MachineProvider) (*v1alpha1.Machine, error) {
	if err := f.providers.addFinalizer(ctx, provider); err != nil {
		return nil, err
	}
	missing := kube.AddFinalizer(m, v1alpha1.FinalizerMachine)
	if m.Annotations[v1alpha1.AnnotationProvider] != provider.Name {
		metav1.SetMetaDataAnnotation(&m.ObjectMeta, v1alpha1.AnnotationProvider, provider.Name)
		missing = true
	}
	if !missing {
		return before, nil
	}
	if _, err := f.kube.Patch(ctx, before, m); err != nil {
		return nil, err
	}
	if err := f.providers.confirm(ctx, m, provider); err != nil {
		return nil, err
	}
	return m.DeepCopy(), nil
}

// ensureMachine creates or changes the networks and the virtual machine as far as possible
// now.
func (f *function) ensureMachine(ctx context.Context, m *v1alpha1.Machine, size hypervisor.Size, provider *v1alpha1.MachineProvider) (a attempt) {
	want := hypervisor.Desired{Size: size}
	m.Status.Provider = provider.Name
	if a.nics, a.err = f.networks.ensure(ctx, m); a.err != nil {
		return a
	}
	want.NICs = assignDefaultRoutes(a.nics)
	if a.err = f.readUserData(ctx, m, &want); a.err != nil {
		return a
	}
	var h hypervisor.Interface
	if h, a.err = f.providers.connectFor(ctx, provider); a.err != nil {
		return a
	}
	began := time.Now()
	vm, err := h.Ensure(ctx, m, want)
	f.providers.recordHealth(ctx, provider, began, err)
	if a.err = err; err == nil && vm.Handover == hypervisor.HandoverRemove {
		a.err = f.deleteMachineConfigSecret(ctx, m)
	}
	if a.err == nil {
		a.vm, a.err = &vm, vm.Refused
	}
	return a
}

// isRecorded reports whether the status of a Machine says all that the object in an event shows, so that an observation would write
// nothing. It is a comparison and no source of what is written: for any difference, the live objects decide. If they have changed since,
// that causes an event of its own.
func (f *function) isRecorded(m *v1alpha1.Machine, cause string, decode func(into any) bool) bool {
	vm, ok := f.local.StateShown(m, cause, decode)
	if !ok {
		return false
	}
	after := m.DeepCopy()
	setStatus(after, attempt{vm: &vm, ended: f.now()})
	return equality.Semantic.DeepEqual(m.Status, after.Status)
}

// observeMachine reads only the virtual machine, which has changed.
func (f *function) observeMachine(ctx context.Context, m *v1alpha1.Machine) (a attempt) {
	vm, err := f.local.Observe(ctx, m)
	if a.err = err; err == nil {
		a.vm = &vm
	}
	return a
}
