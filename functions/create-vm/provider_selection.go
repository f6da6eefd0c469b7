package main

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"

	"github.com/vitistack/stack/apis/v1alpha1"
	"github.com/vitistack/stack/functions/internal/kube"
	"github.com/vitistack/stack/functions/internal/reconcile"
)

// selectProvider returns the MachineProvider of a machine: the recorded one, the one that the spec
// names, or the default. It returns a UserError if there is none.
func (f *function) selectProvider(ctx context.Context, m *v1alpha1.Machine) (*v1alpha1.MachineProvider, error) {
	name := recordedProvider(m)
	if name == "" && m.Spec.ProviderRef != nil {
		name = m.Spec.ProviderRef.Name
	}
	if name == "" {
		list := &v1alpha1.MachineProviderList{}
		if err := f.kube.List(ctx, "", "", list); err != nil {
			return nil, err
		}
		return f.defaultProvider(ctx, m.Namespace, slices.DeleteFunc(list.Items, func(p v1alpha1.MachineProvider) bool { return p.DeletionTimestamp != nil }))
	}
	p := &v1alpha1.MachineProvider{}
	err := f.kube.Get(ctx, "", name, p)
	if err == nil && p.DeletionTimestamp != nil && recordedProvider(m) == "" {
		return nil, reconcile.UserError{Reason: "MachineProviderDeleting", Message: fmt.Sprintf("MachineProvider %s is being deleted: name another in spec.providerRef", name)}
	}
	if kube.NotFound(err) {
		if recordedProvider(m) != "" {
			return nil, reconcile.UserError{Reason: "MachineProviderNotFound", Message: fmt.Sprintf("MachineProvider %s, which has the virtual machine, does not exist: create it again", name)}
		}
		return nil, reconcile.UserError{Reason: "MachineProviderNotFound", Message: fmt.Sprintf("MachineProvider %s does not exist: create it, or name another in spec.providerRef", name)}
	}
	if err == nil && recordedProvider(m) == "" {
		err = f.checkAllowed(ctx, p, m.Namespace)
	}
	return p, err
}

// checkAllowed returns a UserError unless the Machines of a namespace may use a
// MachineProvider.
func (f *function) checkAllowed(ctx context.Context, p *v1alpha1.MachineProvider, namespace string) error {
	allowed, err := kube.Allows(p.Spec.AllowedNamespaces, namespace, f.kube.LabelsOf(ctx, namespace))
	if errors.As(err, new(kube.InvalidSelector)) {
		return reconcile.UserError{Reason: "MachineProviderNotAllowed", Message: fmt.Sprintf("MachineProvider %s: %s", p.Name, err)}
	}
	if allowed || err != nil {
		return err
	}
	return reconcile.UserError{Reason: "MachineProviderNotAllowed", Message: fmt.Sprintf("MachineProvider %s is not for namespace %s: name another in spec.providerRef, or have the namespace added to spec.allowedNamespaces of the MachineProvider", p.Name, namespace)}
}

// defaultProvider returns the default among the MachineProviders that a namespace may use.
func (f *function) defaultProvider(ctx context.Context, namespace string, items []v1alpha1.MachineProvider) (*v1alpha1.MachineProvider, error) {
	var allowed []v1alpha1.MachineProvider
	var refused error
	for i := range items {
		switch err := f.checkAllowed(ctx, &items[i], namespace); {
		case err == nil:
			allowed = append(allowed, items[i])
		case errors.As(err, new(reconcile.UserError)):
			refused = cmp.Or(refused, err)
		default:
			return nil, err
		}
	}
	if len(allowed) == 0 && refused != nil {
		return nil, refused
	}
	return chooseDefault(allowed)
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

// chooseDefault returns the MachineProvider that is marked as default, or the only one.
func chooseDefault(items []v1alpha1.MachineProvider) (*v1alpha1.MachineProvider, error) {
	var marked []int
	var names []string
	for i, p := range items {
		names = append(names, p.Name)
		if p.Spec.Default {
			marked = append(marked, i)
		}
	}
	slices.Sort(names)
	switch {
	case len(items) == 0:
		return nil, reconcile.UserError{Reason: "NoMachineProvider", Message: "there is no MachineProvider: create one"}
	case len(items) == 1:
		return &items[0], nil
	case len(marked) == 1:
		return &items[marked[0]], nil
	case len(marked) > 1:
		return nil, reconcile.UserError{Reason: "MachineProviderAmbiguous", Message: "several MachineProviders are marked default: unmark all but one, or name one in spec.providerRef"}
	default:
		return nil, reconcile.UserError{Reason: "MachineProviderAmbiguous", Message: "no MachineProvider is marked default: name one of " + strings.Join(names, ", ") + " in spec.providerRef"}
	}
}
