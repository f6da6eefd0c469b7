package main

import (
	"cmp"
	"context"
	"fmt"
	"slices"
	"time"

	"k8s.io/apimachinery/pkg/util/wait"

	"github.com/vitistack/stack/apis/v1alpha1"
	"github.com/vitistack/stack/events"
	"github.com/vitistack/stack/functions/internal/kube"
	"github.com/vitistack/stack/functions/internal/reconcile"
)

// removeMachine removes the virtual machine, its disks and its network interfaces, in this
// order, and then the finalizer. Once it has removed the finalizer the Machine is gone.
func (f *function) removeMachine(ctx context.Context, m *v1alpha1.Machine) error {
	if slices.Contains(m.Finalizers, v1alpha1.FinalizerEtcd) {
		return f.waitForEtcd(ctx, m)
	}
	if waiting, err := f.waitForBackOff(ctx, m); waiting || err != nil {
		return err
	}
	before := m.DeepCopy()
	waitsFor, err := f.removeResources(ctx, m)
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
		wrote, err := f.patchStatus(ctx, before, m, setDeleting(m, "Deleting", "waiting for "+waitsFor+" to be deleted"))
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
	return f.providers.releaseAfter(ctx, m)
}

// waitForEtcd keeps the virtual machine of a control plane until its cluster has removed it
// from etcd. The phase stays, because the machine still works.
func (f *function) waitForEtcd(ctx context.Context, m *v1alpha1.Machine) error {
	before := m.DeepCopy()
	message := fmt.Sprintf("waiting for KubernetesCluster %q to remove it from etcd: see the condition Ready of the cluster; the annotation %s=true on this Machine deletes it without waiting",
		m.Labels[v1alpha1.LabelClusterName], v1alpha1.AnnotationForce)
	_, err := f.patchStatus(ctx, before, m, setReady(m, false, "WaitingForEtcd", message))
	return err
}

// writeRemovalError writes why a machine could not be removed. It returns the error that has
// the Broker redeliver the event if another attempt may succeed.
func (f *function) writeRemovalError(ctx context.Context, before, m *v1alpha1.Machine, why error) error {
	if reconcile.Retried(why) {
		recordFailure(m, f.now())
	}
	reason, message := reasonOf(why)
	if _, err := f.patchStatus(ctx, before, m, setDeleting(m, reason, message)); err != nil {
		return err
	}
	if reconcile.Retried(why) {
		return fmt.Errorf("remove machine %s/%s: %w", m.Namespace, m.Name, why)
	}
	return nil
}

// removeIfDeleted removes what was created for a Machine that was deleted during this
// delivery, if the delivery of its deletion has ended before. Otherwise it returns
// why. A Machine that still has the finalizer is left to the deliveries of its deletion, which wait until its cluster has removed it from
// etcd, and stop while it is protected or paused.
func (f *function) removeIfDeleted(ctx context.Context, m *v1alpha1.Machine, why error) error {
	gone, err := f.kube.Gone(ctx, m, v1alpha1.FinalizerMachine)
	if err != nil {
		return err
	}
	if !gone {
		return why
	}
	const pause = 200 * time.Millisecond
	var last error
	err = wait.PollUntilContextCancel(ctx, pause, true, func(ctx context.Context) (bool, error) {
		var waitsFor string
		if waitsFor, last = f.removeResources(ctx, m); last == nil {
			return waitsFor == "", nil
		}
		if _, isUserError := asUserError(last); isUserError {
			return false, last
		}
		return false, nil
	})
	if err != nil {
		return fmt.Errorf("remove what was created for machine %s/%s, which is deleted: %w", m.Namespace, m.Name, cmp.Or(last, err))
	}
	return why
}

// removeResources removes the virtual machine of a Machine, and then its network interfaces. It
// returns what it waits for, and nothing once everything is gone. It returns a UserError for a
// Machine that is protected.
func (f *function) removeResources(ctx context.Context, m *v1alpha1.Machine) (waitsFor string, err error) {
	if err := checkProtection(m); err != nil {
		return "", err
	}
	if recordedProvider(m) != "" {
		provider, err := f.providers.choose(ctx, m)
		if err != nil {
			return "", err
		}
		backend, err := f.providers.connectFor(ctx, provider)
		if err != nil {
			return "", err
		}
		began := time.Now()
		waitsFor, err := backend.Remove(ctx, m)
		f.providers.recordHealth(ctx, provider, began, err)
		if err != nil || waitsFor != "" {
			return waitsFor, err
		}
	}
	return f.networks.releaseAll(ctx, m)
}

// setDeleting writes why a Machine that is being deleted still exists.
func setDeleting(m *v1alpha1.Machine, reason, message string) reconcile.Outcome {
	m.Status.Phase = v1alpha1.MachineDeleting
	m.Status.ObservedGeneration = m.Generation
	return setReady(m, false, reason, message)
}
