package main

import (
	"context"
	"fmt"
	"slices"

	"github.com/vitistack/stack/apis/machine/plan"
	"github.com/vitistack/stack/apis/v1alpha1"
	"github.com/vitistack/stack/functions/internal/kube"
	"github.com/vitistack/stack/functions/internal/reconcile"
)

// providerReasons are the reasons of Machines that no MachineProvider can be chosen for. A new one may be it.
var providerReasons = []string{"MachineProviderNotFound", "MachineProviderNotAllowed", "MachineProviderAmbiguous", "NoMachineProvider"}

// choose returns the MachineProvider of a machine: the recorded one, the one that the spec
// names, or the default. It returns a UserError if there is none.
func (r providerReconciler) choose(ctx context.Context, m *v1alpha1.Machine) (*v1alpha1.MachineProvider, error) {
	if name := recordedProvider(m); name != "" {
		p := &v1alpha1.MachineProvider{}
		err := r.kube.Get(ctx, "", name, p)
		if kube.NotFound(err) {
			return nil, reconcile.UserError{Reason: "MachineProviderNotFound", Message: fmt.Sprintf("MachineProvider %s, which has the virtual machine, does not exist: create it again", name)}
		}
		return p, err
	}
	candidates, err := r.candidates(ctx, m.Spec.ProviderRef)
	if err != nil {
		return nil, err
	}
	return plan.ChooseProvider(m.Spec.ProviderRef, m.Namespace, candidates, r.kube.LabelsOf(ctx, m.Namespace))
}

// candidates returns the MachineProvider that a Machine names, if it exists, or all of them for a
// Machine that names none.
func (r providerReconciler) candidates(ctx context.Context, ref *v1alpha1.ProviderReference) ([]v1alpha1.MachineProvider, error) {
	if ref == nil || ref.Name == "" {
		list := &v1alpha1.MachineProviderList{}
		err := r.kube.List(ctx, "", "", list)
		return list.Items, err
	}
	p := v1alpha1.MachineProvider{}
	err := r.kube.Get(ctx, "", ref.Name, &p)
	if kube.NotFound(err) {
		return nil, nil
	}
	return []v1alpha1.MachineProvider{p}, err
}

// recordedProvider returns the MachineProvider that is recorded in a Machine, or nothing if
// nothing has been created for it.
func recordedProvider(m *v1alpha1.Machine) string {
	if !slices.Contains(m.Finalizers, v1alpha1.FinalizerMachine) {
		return ""
	}
	if name := m.Annotations[v1alpha1.AnnotationProvider]; name != "" {
		return name
	}
	return m.Status.Provider
}
