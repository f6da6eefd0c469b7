package main

import (
	"context"
	"fmt"
	"slices"
	"strings"

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
	if m.Spec.ProviderRef == nil || m.Spec.ProviderRef.Name == "" {
		return r.chooseDefault(ctx, m)
	}
	var candidates []v1alpha1.MachineProvider
	p := v1alpha1.MachineProvider{}
	err := r.kube.Get(ctx, "", m.Spec.ProviderRef.Name, &p)
	if err == nil {
		candidates = append(candidates, p)
	} else if !kube.NotFound(err) {
		return nil, err
	}
	return r.chooseFrom(ctx, m, candidates)
}

// chooseDefault returns the default MachineProvider of a machine. It returns a UserError if there is none.
func (r providerReconciler) chooseDefault(ctx context.Context, m *v1alpha1.Machine) (p *v1alpha1.MachineProvider, err error) {
	list := &v1alpha1.MachineProviderList{}
	err = r.kube.ListToChoose(ctx, "", list, func() (err error) {
		p, err = r.chooseFrom(ctx, m, list.Items)
		return err
	})
	return p, err
}

// chooseFrom returns the MachineProvider of a machine among candidates. It returns a UserError if there is none.
func (r providerReconciler) chooseFrom(ctx context.Context, m *v1alpha1.Machine, candidates []v1alpha1.MachineProvider) (*v1alpha1.MachineProvider, error) {
	candidates, err := adoptingProviders(m, candidates)
	if err != nil {
		return nil, err
	}
	return plan.ChooseProvider(m.Spec.ProviderRef, m.Namespace, candidates, r.kube.LabelsOf(ctx, m.Namespace))
}

// adoptingProviders returns the MachineProviders that may adopt the virtual machine of a Machine of the proxmox-operator, whose status.providerID
// names the hypervisor: a default MachineProvider of another type would create a second virtual machine with the same addresses. It returns a UserError if
// there is none, and all MachineProviders for any other Machine.
func adoptingProviders(m *v1alpha1.Machine, all []v1alpha1.MachineProvider) ([]v1alpha1.MachineProvider, error) {
	if !strings.HasPrefix(m.Status.ProviderID, v1alpha1.ProxmoxIDScheme) {
		return all, nil
	}
	adopting := slices.DeleteFunc(slices.Clone(all), func(p v1alpha1.MachineProvider) bool { return p.Spec.Type != v1alpha1.ProviderProxmox })
	if len(adopting) == 0 && len(all) > 0 {
		return nil, reconcile.UserError{Reason: "NoMachineProvider", Message: fmt.Sprintf("the virtual machine is at Proxmox VE (%s): create a MachineProvider of type %s, or name one in spec.providerRef", m.Status.ProviderID, v1alpha1.ProviderProxmox)}
	}
	return adopting, nil
}

// recordedProvider returns the MachineProvider that is recorded in a Machine, or nothing if
// nothing has been created for it.
func recordedProvider(m *v1alpha1.Machine) string {
	if !hasProviderRecord(m) {
		return ""
	}
	if name := m.Annotations[v1alpha1.AnnotationProvider]; name != "" {
		return name
	}
	return m.Status.Provider
}

// hasProviderRecord reports whether create-vm has recorded the MachineProvider of a Machine, which it does before it creates anything.
func hasProviderRecord(m *v1alpha1.Machine) bool {
	return slices.Contains(m.Finalizers, v1alpha1.FinalizerMachine)
}

// clearOperatorProvider removes the provider from the status of a Machine unless create-vm has recorded it. The kubevirt-operator and the
// proxmox-operator write the kind of the hypervisor there. While there is one, the API server refuses the MachineProvider and the networks that a
// requester chooses.
func clearOperatorProvider(m *v1alpha1.Machine) {
	if !hasProviderRecord(m) {
		m.Status.Provider = ""
	}
}
