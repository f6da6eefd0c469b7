package main

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/cloudevents/sdk-go/v2/event"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/vitistack/stack/apis/v1alpha1"
	"github.com/vitistack/stack/events"
	"github.com/vitistack/stack/events/outbound"
	"github.com/vitistack/stack/functions/create-vm/hypervisor"
	"github.com/vitistack/stack/functions/internal/kube"
	"github.com/vitistack/stack/functions/internal/reconcile"
)

type function struct {
	kube *kube.Client
	// connect makes the hypervisor of a MachineProvider.
	connect func(ctx context.Context, p *v1alpha1.MachineProvider) (hypervisor.Interface, error)
	// local is the KubeVirt of this cluster, whose changes come as events.
	local hypervisor.Observer
	// images are the hosts that hypervisors may fetch images from.
	images outbound.Rules
	// optionalPools is whether namespaces that may use no NetworkPool may name any bridge.
	optionalPools bool
	now           func() time.Time
	// patience is how long a hypervisor may take that is only just being installed.
	patience time.Duration
}

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
		return nil, kube.OnConflict(func() error { return f.reconcileProvider(ctx, ref.Name, cause) })
	}
	if ref.Kind == "NetworkPool" {
		return nil, f.requeueForPools(ctx)
	}
	names, err := f.affectedMachines(ctx, in, ref)
	if err != nil {
		return nil, err
	}
	for _, name := range names {
		if err := kube.OnConflict(func() error { return f.reconcileMachine(ctx, ref.Namespace, name, cause) }); err != nil {
			return nil, err
		}
	}
	if ref.Kind == causeNetwork {
		return nil, kube.OnConflict(func() error { return f.explainDeletion(ctx, in, ref) })
	}
	return nil, nil
}

// Causes of a look at a Machine: the kind of object that has changed, or resync.
const (
	causeMachine   = "Machine"
	causeVM        = "VirtualMachine"
	causeInstance  = "VirtualMachineInstance"
	causeNetwork   = "NetworkConfiguration"
	causeNamespace = "NetworkNamespace"
	causeClaim     = "PersistentVolumeClaim"
	causeResync    = "resync"
)

// reconcileMachine reconciles one Machine as far as cause requires. A second call changes
// nothing.
func (f *function) reconcileMachine(ctx context.Context, namespace, name, cause string) error {
	m := &v1alpha1.Machine{}
	if err := f.kube.Get(ctx, namespace, name, m); err != nil {
		if kube.NotFound(err) {
			return nil
		}
		return err
	}
	if m.DeletionTimestamp != nil {
		return f.removeMachine(ctx, m)
	}
	next := decideAction(m, cause)
	if next == actionNone {
		return nil
	}
	if waiting, err := f.waitForBackOff(ctx, m); waiting || err != nil {
		return err
	}
	began, before := f.now(), m.DeepCopy()
	p := progress{err: hypervisor.ErrGone}
	if next == actionObserve {
		p = f.observeMachine(ctx, m)
	}
	if errors.Is(p.err, hypervisor.ErrGone) {
		size, provider, err := f.resolveMachine(ctx, m)
		if err == nil && cause == causeMachine && f.createConfiguration(ctx, m) {
			return nil
		}
		if p.err = err; err == nil {
			if before, err = f.recordProvider(ctx, before, m, provider); err != nil {
				return err
			}
			p = f.ensureMachine(ctx, m, size, provider)
			p.kind = provider.Spec.Type
		}
	}
	if kube.Conflict(p.err) {
		return p.err
	}
	p.last, p.now = before.Status.Task, f.now()
	countReconcile(metricsPrefix(m, p.kind), p.err, p.now.Sub(began))
	wrote, err := f.patchStatus(ctx, before, m, setStatus(m, p))
	if err != nil {
		return f.removeIfDeleted(ctx, m, err)
	}
	if isRetried(p.err) {
		return fmt.Errorf("build machine %s/%s: %w", namespace, name, p.err)
	}
	return requeueError(m, wrote)
}

// requeueError returns an error that has the Broker redeliver the event while the hypervisor
// works on a task, whose end causes no event. A status that was just written causes an event
// itself.
func requeueError(m *v1alpha1.Machine, wrote bool) error {
	if wrote || m.Status.Task == nil {
		return nil
	}
	return fmt.Errorf("settle machine %s/%s: its hypervisor still works on task %s", m.Namespace, m.Name, m.Status.Task.Action)
}

// resolveMachine returns the size and the MachineProvider of a Machine. It changes nothing.
func (f *function) resolveMachine(ctx context.Context, m *v1alpha1.Machine) (hypervisor.Size, *v1alpha1.MachineProvider, error) {
	s, err := resolve(m.Spec)
	if err == nil && m.Status.VMName == "" { // afterwards nothing is fetched, and os cannot be changed
		err = checkImageHost(m.Spec.OS, f.images)
	}
	if err != nil {
		return hypervisor.Size{}, nil, err
	}
	provider, err := f.providerOf(ctx, m)
	return s, provider, err
}

// recordProvider writes the finalizer and the MachineProvider before anything is created for a
// Machine, and returns the Machine as written. Whatever happens to this delivery, the deletion
// knows where to look.
func (f *function) recordProvider(ctx context.Context, before, m *v1alpha1.Machine, provider *v1alpha1.MachineProvider) (*v1alpha1.Machine, error) {
	if err := f.addProviderFinalizer(ctx, provider); err != nil {
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
	if err := f.confirmProvider(ctx, m, provider.Name); err != nil {
		return nil, err
	}
	return m.DeepCopy(), nil
}

// ensureMachine creates or changes the networks and the virtual machine as far as possible
// now.
func (f *function) ensureMachine(ctx context.Context, m *v1alpha1.Machine, size hypervisor.Size, provider *v1alpha1.MachineProvider) (p progress) {
	want := hypervisor.Desired{Size: size}
	m.Status.Provider = provider.Name
	if p.nics, p.err = f.ensureNetworks(ctx, m); p.err != nil {
		return p
	}
	want.NICs = assignDefaultRoutes(p.nics)
	if p.err = f.fillUserData(ctx, m, &want); p.err != nil {
		return p
	}
	var backend hypervisor.Interface
	if backend, p.err = f.connect(ctx, provider); p.err != nil {
		return p
	}
	var vm hypervisor.State
	if vm, p.err = backend.Ensure(ctx, m, want); p.err == nil && vm.Handover == hypervisor.HandoverTake {
		p.err = f.deleteMachineConfigSecret(ctx, m)
	}
	if p.err == nil {
		p.vm = &vm
	}
	return p
}

// observeMachine reads only the virtual machine, which has changed.
func (f *function) observeMachine(ctx context.Context, m *v1alpha1.Machine) (p progress) {
	vm, err := f.local.Observe(ctx, m)
	if p.err = err; err == nil {
		p.vm = &vm
	}
	return p
}

// fillUserData reads the Secrets with the first configuration of the guest.
func (f *function) fillUserData(ctx context.Context, m *v1alpha1.Machine, want *hypervisor.Desired) (err error) {
	if c := m.Spec.CloudInit; c != nil {
		want.UserData, want.NetworkData = c.UserData, c.NetworkData
	}
	if want.NetworkData == "" {
		if want.NetworkData, err = networkConfig(want.NICs); err != nil {
			return err
		}
	}
	if m.MachineConfigSecret() != "" {
		return reconcile.SecretsError(f.addMachineConfig(ctx, m, want), hypervisor.FunctionName)
	}
	if m.Spec.CloudInit == nil || m.Spec.CloudInit.SecretRef == nil {
		return nil
	}
	ref, secret := m.Spec.CloudInit.SecretRef, &corev1.Secret{}
	err = f.kube.Get(ctx, m.Namespace, ref.Name, secret)
	if kube.NotFound(err) {
		return reconcile.UserError{Reason: "CloudInitSecretNotFound", Message: fmt.Sprintf("Secret %s does not exist: create it, or change spec.cloudInit.secretRef", ref.Name)}
	}
	if err != nil {
		return reconcile.SecretsError(err, hypervisor.FunctionName)
	}
	if m.Status.VMName == "" { // afterwards the guest has it
		if err := checkGuestSecret(secret); err != nil {
			return err
		}
	}
	data, ok := secret.Data[ref.Key]
	if !ok {
		return reconcile.UserError{Reason: "CloudInitSecretNotFound", Message: fmt.Sprintf("Secret %s has no key %s: add it, or change spec.cloudInit.secretRef.key", ref.Name, ref.Key)}
	}
	want.UserData, want.SecretUserData = string(data), true
	return nil
}

// checkGuestSecret returns a UserError for a Secret that does not opt in, because a user who
// may create a Machine could read any Secret of the namespace in the guest.
func checkGuestSecret(secret *corev1.Secret) error {
	owned := slices.ContainsFunc(secret.OwnerReferences, func(r metav1.OwnerReference) bool {
		return strings.HasPrefix(r.APIVersion, v1alpha1.GroupVersion.Group+"/")
	})
	switch {
	case owned || secret.Labels[v1alpha1.LabelManagedBy] != "":
		return reconcile.UserError{Reason: "CloudInitSecretNotAllowed", Message: fmt.Sprintf("Secret %s is the stack's own: name another in spec.cloudInit.secretRef", secret.Name)}
	case secret.Labels[v1alpha1.LabelCloudInit] != "true":
		return reconcile.UserError{Reason: "CloudInitSecretNotAllowed", Message: fmt.Sprintf("Secret %s is not marked as cloud-init: kubectl label secret %s --namespace %s %s=true, or name another in spec.cloudInit.secretRef",
			secret.Name, secret.Name, secret.Namespace, v1alpha1.LabelCloudInit)}
	default:
		return nil
	}
}

// removeMachine removes the virtual machine, its disks and its network interfaces, in this
// order, and then the finalizer.
func (f *function) removeMachine(ctx context.Context, m *v1alpha1.Machine) error {
	if slices.Contains(m.Finalizers, v1alpha1.FinalizerEtcd) {
		return f.waitForEtcd(ctx, m)
	}
	if waiting, err := f.waitForBackOff(ctx, m); waiting || err != nil {
		return err
	}
	before := m.DeepCopy()
	waitsFor, err := f.removeBackend(ctx, m)
	if kube.Conflict(err) {
		return err
	}
	if err != nil {
		return f.writeRemovalError(ctx, before, m, err)
	}
	if waitsFor != "" {
		if isRepeated(before.Status.Task, m.Status.Task) {
			recordFailure(m, f.now())
		}
		wrote, err := f.patchStatus(ctx, before, m, setDeleting(m, "Deleting", "waits for "+waitsFor+" to be deleted"))
		if err != nil {
			return err
		}
		return requeueError(m, wrote)
	}
	if !kube.RemoveFinalizer(m, v1alpha1.FinalizerMachine) {
		return nil
	}
	if _, err := f.kube.Patch(ctx, before, m); err != nil && !kube.NotFound(err) {
		return err
	}
	events.Report(ctx, string(v1alpha1.MachineDeleting), "Removed machine")
	return f.releaseProviderOf(ctx, m)
}

// waitForEtcd keeps the virtual machine of a control plane until its cluster has removed it
// from etcd. The phase stays, because the machine still works.
func (f *function) waitForEtcd(ctx context.Context, m *v1alpha1.Machine) error {
	before := m.DeepCopy()
	message := fmt.Sprintf("waits until KubernetesCluster %q has taken it out of etcd, whose condition Ready says what that waits for; the annotation %s=true on this Machine deletes it without that",
		m.Labels[v1alpha1.LabelClusterName], v1alpha1.AnnotationForce)
	_, err := f.patchStatus(ctx, before, m, setReady(m, false, "WaitingForEtcd", message))
	return err
}

// writeRemovalError writes why a machine could not be removed. It returns the error that has
// the Broker redeliver the event if another attempt may succeed.
func (f *function) writeRemovalError(ctx context.Context, before, m *v1alpha1.Machine, why error) error {
	if isRetried(why) {
		recordFailure(m, f.now())
	}
	reason, message := reasonOf(why)
	if _, err := f.patchStatus(ctx, before, m, setDeleting(m, reason, message)); err != nil {
		return err
	}
	if isRetried(why) {
		return fmt.Errorf("remove machine %s/%s: %w", m.Namespace, m.Name, why)
	}
	return nil
}

// removeIfDeleted removes what was created for a Machine that was deleted during this
// delivery, because the delivery of its deletion may have ended before. Otherwise it returns
// why.
func (f *function) removeIfDeleted(ctx context.Context, m *v1alpha1.Machine, why error) error {
	gone, err := f.kube.Gone(ctx, m)
	if err != nil {
		return err
	}
	if !gone {
		return why
	}
	const pause = 200 * time.Millisecond
	for {
		waitsFor, err := f.removeBackend(ctx, m)
		if err == nil && waitsFor == "" {
			return why
		}
		if _, refused := asUserError(err); refused {
			return fmt.Errorf("remove what was made for machine %s/%s, which is gone: %w", m.Namespace, m.Name, err)
		}
		select {
		case <-ctx.Done():
			return fmt.Errorf("remove what was made for machine %s/%s, which is gone: %w", m.Namespace, m.Name, cmp.Or(err, ctx.Err()))
		case <-time.After(pause):
		}
	}
}

func (f *function) removeBackend(ctx context.Context, m *v1alpha1.Machine) (waitsFor string, err error) {
	if m.Spec.Protected {
		return "", reconcile.UserError{Reason: "Protected", Message: "the machine is protected: set spec.protected to false to let it be deleted"}
	}
	if recordedProvider(m) != "" {
		provider, err := f.providerOf(ctx, m)
		if err != nil {
			return "", err
		}
		backend, err := f.connect(ctx, provider)
		if err != nil {
			return "", err
		}
		if waitsFor, err := backend.Remove(ctx, m); err != nil || waitsFor != "" {
			return waitsFor, err
		}
	}
	return f.leaveNetworks(ctx, m)
}

func setDeleting(m *v1alpha1.Machine, reason, message string) reconcile.Outcome {
	m.Status.Phase = v1alpha1.MachineDeleting
	m.Status.ObservedGeneration = m.Generation
	return setReady(m, false, reason, message)
}

// patchStatus writes the status if it differs, and records an Event if the phase has changed
// or a user has to act. It reports whether it wrote the status.
func (f *function) patchStatus(ctx context.Context, before, m *v1alpha1.Machine, o reconcile.Outcome) (bool, error) {
	setLastUpdated(before, m, f.now())
	o.Changed = o.Changed && (o.Warning || m.Status.Phase != before.Status.Phase)
	return reconcile.PatchStatus(ctx, f.kube, before, m, string(m.Status.Phase), o)
}
