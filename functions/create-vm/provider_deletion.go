package main

import (
	"context"
	"fmt"
	"slices"
	"strings"

	"github.com/vitistack/stack/apis/v1alpha1"
	"github.com/vitistack/stack/events"
	"github.com/vitistack/stack/functions/internal/kube"
	"github.com/vitistack/stack/functions/internal/reconcile"
)

// addFinalizer adds the finalizer to a MachineProvider that lacks it.
func (r providerReconciler) addFinalizer(ctx context.Context, p *v1alpha1.MachineProvider) error {
	before := p.DeepCopy()
	if p.DeletionTimestamp != nil || !kube.AddFinalizer(p, v1alpha1.FinalizerMachineProvider) {
		return nil
	}
	_, err := r.kube.Patch(ctx, before, p)
	return err
}

// confirm reads p, a MachineProvider, again after it was recorded in a Machine. If the
// provider is being deleted, it may have been released without this Machine, so
// confirm removes the record, and the next delivery chooses again. Both orders are
// covered: either the release sees the record, or this read sees the deletion.
func (r providerReconciler) confirm(ctx context.Context, m *v1alpha1.Machine, p *v1alpha1.MachineProvider) error {
	name := p.Name
	err := r.kube.Get(ctx, "", name, p)
	if err == nil && p.DeletionTimestamp == nil {
		return nil
	}
	if err != nil && !kube.NotFound(err) {
		return err
	}
	before := m.DeepCopy()
	delete(m.Annotations, v1alpha1.AnnotationProvider)
	kube.RemoveFinalizer(m, v1alpha1.FinalizerMachine)
	if _, err := r.kube.Patch(ctx, before, m); err != nil {
		return err
	}
	return fmt.Errorf("create machine %s/%s: MachineProvider %s is being deleted", m.Namespace, m.Name, name)
}

// release removes the finalizer of a MachineProvider that is being deleted once no
// Machine uses it. Until then its condition Ready names the Machines.
func (r providerReconciler) release(ctx context.Context, p *v1alpha1.MachineProvider) error {
	if !slices.Contains(p.Finalizers, v1alpha1.FinalizerMachineProvider) {
		return nil
	}
	machines := &v1alpha1.MachineList{}
	if err := r.kube.List(ctx, "", "", machines); err != nil {
		return err
	}
	before, users := p.DeepCopy(), usersOf(machines.Items, p.Name)
	if len(users) == 0 {
		if err := r.reporter.Forget(ctx, string(p.Spec.Type), p.Name); err != nil {
			return err
		}
		kube.RemoveFinalizer(p, v1alpha1.FinalizerMachineProvider)
		if _, err := r.kube.Patch(ctx, before, p); err != nil && !kube.NotFound(err) {
			return err
		}
		events.Report(ctx, "Deleting", "Removed MachineProvider")
		return nil
	}
	p.Status.ObservedGeneration, p.Status.MachineCount = p.Generation, countMachines(machines.Items, p.Name)
	message := "waiting for " + enumerate(users) + " to be deleted"
	outcome := reconcile.SetReady(&p.Status.Conditions, p.Generation, false, "InUse", message)
	outcome.Warning = true
	_, err := reconcile.PatchStatus(ctx, r.kube, before, p, string(p.Status.Phase), outcome)
	return err
}

// usersOf returns the names of the Machines that use a MachineProvider, sorted.
func usersOf(machines []v1alpha1.Machine, provider string) (users []string) {
	for i := range machines {
		if recordedProvider(&machines[i]) == provider {
			users = append(users, machines[i].Namespace+"/"+machines[i].Name)
		}
	}
	slices.Sort(users)
	return users
}

// enumerate names the first Machines of a list and counts the others.
func enumerate(users []string) string {
	const named = 5
	if len(users) > named {
		return fmt.Sprintf("Machines %s and %d more", strings.Join(users[:named], ", "), len(users)-named)
	}
	if len(users) == 1 {
		return "Machine " + users[0]
	}
	return "Machines " + strings.Join(users[:len(users)-1], ", ") + " and " + users[len(users)-1]
}

// releaseAfter releases the MachineProvider of a deleted Machine if it is being deleted.
// Resync does the same later.
func (r providerReconciler) releaseAfter(ctx context.Context, m *v1alpha1.Machine) error {
	name := m.Annotations[v1alpha1.AnnotationProvider]
	if name == "" {
		return nil
	}
	return kube.OnConflict(func() error {
		p := &v1alpha1.MachineProvider{}
		err := r.kube.Get(ctx, "", name, p)
		if kube.NotFound(err) || (err == nil && p.DeletionTimestamp == nil) {
			return nil
		}
		if err != nil {
			return err
		}
		return r.release(ctx, p)
	})
}

// countMachines returns the number of Machines on a MachineProvider.
func countMachines(machines []v1alpha1.Machine, provider string) (n int32) {
	for _, m := range machines {
		if m.Status.Provider == provider {
			n++
		}
	}
	return n
}
