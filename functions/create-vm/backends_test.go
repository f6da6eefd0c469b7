package main

import (
	"context"
	"errors"
	"maps"
	"slices"
	"testing"

	"github.com/vitistack/stack/apis/backend"
	"github.com/vitistack/stack/apis/v1alpha1"
	"github.com/vitistack/stack/functions/create-vm/hypervisor"
	"github.com/vitistack/stack/functions/internal/reconcile"
)

// madeUp is a hypervisor of a kind that does not exist.
type madeUp struct{ hypervisor.Interface }

// Ensure implements hypervisor.Interface.
func (madeUp) Ensure(context.Context, *v1alpha1.Machine, hypervisor.Desired) (hypervisor.State, error) {
	return hypervisor.State{Phase: v1alpha1.MachineRunning, VMName: "m", ProviderID: "madeup://m", Polled: true}, nil
}

// Inspect implements hypervisor.Interface.
func (madeUp) Inspect(context.Context) (hypervisor.Health, error) {
	return hypervisor.Health{Version: "1"}, nil
}

// TestMadeUpBackend registers another kind of hypervisor with one package and one line.
func TestMadeUpBackend(t *testing.T) {
	t.Parallel()
	known := maps.Clone(backends)
	known["madeup"] = hypervisor.Backend{Open: func(hypervisor.Environment) hypervisor.Connector {
		return func(context.Context, *v1alpha1.MachineProvider) (hypervisor.Interface, error) { return madeUp{}, nil }
	}}
	f := providerReconciler{connect: connectBackends(known, hypervisor.Environment{})}
	p := &v1alpha1.MachineProvider{Spec: v1alpha1.MachineProviderSpec{Type: "madeup"}}
	i, err := f.inspect(t.Context(), p)
	if outcome := setProviderStatus(p, i.Health, 0, err); outcome.Reason != "Healthy" || p.Status.Version != "1" {
		t.Errorf("the provider is %s of version %s", outcome.Reason, p.Status.Version)
	}
	h, err := f.connect(t.Context(), p)
	if err != nil {
		t.Fatal(err)
	}
	m := &v1alpha1.Machine{}
	state, err := h.Ensure(t.Context(), m, hypervisor.Desired{})
	if outcome := setStatus(m, attempt{vm: &state, err: err}); outcome.Reason != "MachineRunning" || m.Status.NextCheckTime == nil {
		t.Errorf("the machine is %s, next check %v", outcome.Reason, m.Status.NextCheckTime)
	}
	if action := decideAction(m, causeVM); action != actionNone {
		t.Errorf("an event about a virtual machine in this cluster has action %s for a machine in a remote cluster", action)
	}
}

// TestBackends checks each place that lists the kinds of hypervisors.
func TestBackends(t *testing.T) {
	t.Parallel()
	var registered []v1alpha1.ProviderType
	for _, k := range backend.In(backend.LayerMachine) {
		registered = append(registered, v1alpha1.ProviderType(k.Name))
		if got := metricsPrefix(&v1alpha1.Machine{}, v1alpha1.ProviderType(k.Name)); got != k.MetricsPrefix {
			t.Errorf("%s: the names of its metrics begin with %s, want %s", k.Name, got, k.MetricsPrefix)
		}
		if sites[k.Title] == nil {
			t.Errorf("%s has no site in the contract test", k.Title)
		}
	}
	slices.Sort(registered)
	if got := slices.Sorted(maps.Keys(backends)); !slices.Equal(got, registered) {
		t.Errorf("create-vm knows %v, apis/backend %v", got, registered)
	}
	_, err := connectBackends(backends, hypervisor.Environment{})(t.Context(), &v1alpha1.MachineProvider{Spec: v1alpha1.MachineProviderSpec{Type: "none"}})
	if problem := (reconcile.UserError{}); !errors.As(err, &problem) || problem.Reason != "MachineProviderNotSupported" {
		t.Errorf("a type without a backend: %v", err)
	}
}
