package main

import (
	"testing"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/vitistack/stack/apis/v1alpha1"
	"github.com/vitistack/stack/events"
	"github.com/vitistack/stack/functions/create-vm/hypervisor/hypervisortest"
	"github.com/vitistack/stack/functions/internal/kube"
)

// TestProviderErrorIsReportedFirst creates Machines that can have no MachineProvider. Their first delivery says so, and allocates no
// address. A MachineProvider that is created afterwards resolves the error at once.
func TestProviderErrorIsReportedFirst(t *testing.T) {
	t.Parallel()
	s := newEnv(t, kubevirtSite)
	provider := func(name string, allowed *v1alpha1.AllowedNamespaces) {
		p := &v1alpha1.MachineProvider{ObjectMeta: metav1.ObjectMeta{Name: name}, Spec: v1alpha1.MachineProviderSpec{Type: v1alpha1.ProviderKubeVirt, AllowedNamespaces: allowed}}
		if err := s.Kube.Create(t.Context(), p); err != nil {
			t.Fatal(err)
		}
		s.dropProvider(name)
	}
	reserved, later := "reserved-"+s.Namespace, "later-"+s.Namespace
	provider(reserved, &v1alpha1.AllowedNamespaces{List: []string{"another"}})
	w := &hypervisortest.Wire{}
	handle := s.NewHandler(w)
	now := func(name string) *v1alpha1.Machine {
		m := &v1alpha1.Machine{}
		if err := s.Kube.Get(t.Context(), s.Namespace, name, m); err != nil {
			t.Fatal(err)
		}
		return m
	}
	for name, tc := range map[string]struct{ provider, reason string }{
		"unknown":  {later, "MachineProviderNotFound"},
		"reserved": {reserved, "MachineProviderNotAllowed"},
	} {
		s.Create(machineWith(name, func(m *v1alpha1.MachineSpec) { m.ProviderRef = &v1alpha1.ProviderReference{Name: tc.provider} }))
		if _, err := handle(t.Context(), change(t, events.TypeRefAdd, causeMachine, s.Namespace, name, nil)); err != nil {
			t.Fatal(err)
		}
		if m := now(name); !hypervisortest.HasReason(tc.reason)(m) {
			t.Errorf("%s: after the first delivery the status is %+v, want %s", name, m.Status, tc.reason)
		}
		if err := s.Kube.Get(t.Context(), s.Namespace, name, &v1alpha1.NetworkConfiguration{}); !kube.NotFound(err) {
			t.Errorf("%s: it has a NetworkConfiguration: %v", name, err)
		}
	}
	provider(later, nil)
	if _, err := handle(t.Context(), lookAtProvider(later, events.TypeRefAdd)); err != nil {
		t.Fatal(err)
	}
	if m := now("unknown"); hypervisortest.HasReason("MachineProviderNotFound")(m) {
		t.Errorf("the new MachineProvider does not resolve the error: %+v", m.Status)
	}
}
