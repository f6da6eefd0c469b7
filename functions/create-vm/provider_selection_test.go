package main

import (
	"strings"
	"testing"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/vitistack/stack/apis/v1alpha1"
	"github.com/vitistack/stack/events"
	"github.com/vitistack/stack/functions/create-vm/hypervisor/hypervisortest"
	"github.com/vitistack/stack/functions/internal/kube"
	"github.com/vitistack/stack/functions/internal/reconcile"
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

// TestProviderOfOperatorIsNoChoice reconciles a Machine as the kubevirt-operator leaves it, with the kind of the hypervisor as status.provider, that
// names a MachineProvider that does not exist. The condition has the requester name another one, and the API server accepts that.
func TestProviderOfOperatorIsNoChoice(t *testing.T) {
	t.Parallel()
	s := newEnv(t, kubevirtSite)
	m := machineWith("web", func(m *v1alpha1.MachineSpec) {
		m.ProviderRef = &v1alpha1.ProviderReference{Name: "missing-" + s.Namespace}
	})
	s.Create(m)
	before := m.DeepCopy()
	m.Status.Phase, m.Status.Provider = v1alpha1.MachineRunning, "kubevirt"
	if _, err := s.Kube.PatchStatus(t.Context(), before, m); err != nil {
		t.Fatal(err)
	}
	s.Drive("web", &hypervisortest.Wire{}, "names the missing MachineProvider", hypervisortest.HasReason("MachineProviderNotFound"))
	s.Edit("web", func(m *v1alpha1.Machine) { m.Spec.ProviderRef.Name = s.Site.Provider })
	s.DeleteMachine(s.Drive("web", &hypervisortest.Wire{}, "runs", hypervisortest.IsRunning), &hypervisortest.Wire{})
}

// TestAdoptingProviders compares the MachineProviders that Machines may get with where their virtual machines are.
func TestAdoptingProviders(t *testing.T) {
	t.Parallel()
	provider := func(kind v1alpha1.ProviderType) v1alpha1.MachineProvider {
		return v1alpha1.MachineProvider{ObjectMeta: metav1.ObjectMeta{Name: string(kind)}, Spec: v1alpha1.MachineProviderSpec{Type: kind}}
	}
	kubevirt, proxmox := provider(v1alpha1.ProviderKubeVirt), provider(v1alpha1.ProviderProxmox)
	for name, tc := range map[string]struct {
		reason, id string
		all        []v1alpha1.MachineProvider
		want       string
	}{
		"New":       {"it has no virtual machine yet", "", []v1alpha1.MachineProvider{kubevirt, proxmox}, "kubevirt proxmox"},
		"KubeVirt":  {"the kubevirt-operator made its virtual machine", "kubevirt://a/web", []v1alpha1.MachineProvider{kubevirt, proxmox}, "kubevirt proxmox"},
		"Proxmox":   {"the proxmox-operator made its virtual machine", "proxmox://pve1/2042", []v1alpha1.MachineProvider{kubevirt, proxmox}, "proxmox"},
		"Elsewhere": {"no MachineProvider leads to its virtual machine", "proxmox://pve1/2042", []v1alpha1.MachineProvider{kubevirt}, "NoMachineProvider"},
		"None":      {"there is no MachineProvider", "proxmox://pve1/2042", nil, ""},
	} {
		m := &v1alpha1.Machine{}
		m.Status.ProviderID = tc.id
		found, err := adoptingProviders(m, tc.all)
		var got []string
		for _, p := range found {
			got = append(got, p.Name)
		}
		if problem, isUserError := reconcile.AsUserError(err); isUserError {
			got = []string{problem.Reason}
		}
		if strings.Join(got, " ") != tc.want {
			t.Errorf("%s: %s: got %v, want %s", name, tc.reason, got, tc.want)
		}
	}
}
