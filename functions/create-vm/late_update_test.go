package main

import (
	"net/http"
	"slices"
	"testing"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/vitistack/stack/apis/v1alpha1"
	"github.com/vitistack/stack/functions/create-vm/hypervisor/hypervisortest"
	"github.com/vitistack/stack/functions/internal/kube"
)

// TestLateUpdate changes the spec of a running Machine and back, while a delivery that has read the spec in between is about to
// change the virtual machine. Another delivery has applied the last spec first.
func TestLateUpdate(t *testing.T) {
	t.Parallel()
	sites := map[string]struct {
		site func(*env) *hypervisortest.Site
		read string
	}{"KubeVirt": {kubevirtSite, "/virtualmachines/m1"}, "Proxmox": {proxmoxSite, "/pending"}}
	for name, tc := range map[string]struct {
		reason         string
		between, after func(*v1alpha1.MachineSpec)
	}{
		"Power":   {"a guest that runs is not stopped", func(s *v1alpha1.MachineSpec) { s.PowerState = v1alpha1.PowerStopped }, func(s *v1alpha1.MachineSpec) { s.PowerState = v1alpha1.PowerRunning }},
		"Disk":    {"a disk that has become larger stays so", func(s *v1alpha1.MachineSpec) { s.Template = "large" }, func(s *v1alpha1.MachineSpec) { s.Template = "small" }},
		"Restart": {"a token that was served restarts nothing", func(s *v1alpha1.MachineSpec) { s.RestartToken = "one" }, func(s *v1alpha1.MachineSpec) { s.RestartToken = "two" }},
	} {
		for at, site := range sites {
			t.Run(name+at, func(t *testing.T) {
				t.Parallel()
				s := newEnv(t, site.site)
				s.CreateMachine("m1")
				s.Drive("m1", &hypervisortest.Wire{}, "runs", hypervisortest.IsRunning)
				s.Edit("m1", func(m *v1alpha1.Machine) { tc.between(&m.Spec) })
				starts := 1
				late := &lateDelivery{isNext: isRequest(http.MethodGet, site.read), meanwhile: func() {
					isCurrent := func(m *v1alpha1.Machine) bool {
						return hypervisortest.IsRunning(m) && m.Status.RestartToken == m.Spec.RestartToken && s.Site.Starts(m) == starts
					}
					if name == "Restart" {
						starts = 2
						s.Drive("m1", &hypervisortest.Wire{}, "serves the first token", isCurrent)
						starts = 3
					}
					s.Edit("m1", func(m *v1alpha1.Machine) { tc.after(&m.Spec) })
					s.Drive("m1", &hypervisortest.Wire{}, "is as the last spec says", isCurrent)
				}}
				if err := s.deliverLate("m1", late); (err != nil && !kube.Conflict(err)) || !late.waited || len(late.changes) > 0 {
					t.Errorf("%s: the late delivery has changed %v, waiting for its request: %t: %v", tc.reason, late.changes, !late.waited, err)
				}
			})
		}
	}
}

// TestLateMachineConfig gives a node, whose disk was created again, its machine configuration, while a delivery that has read the Machine
// before is about to do the same. The node has the configuration, and another delivery has removed it from the hypervisor first: a node that
// loses its disk later must find none.
func TestLateMachineConfig(t *testing.T) {
	t.Parallel()
	for name, tc := range map[string]struct {
		site func(*env) *hypervisortest.Site
		read string
	}{"KubeVirt": {kubevirtSite, "/secrets/m1-cloudinit"}, "Proxmox": {proxmoxSite, "/content"}} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			s := newEnv(t, tc.site)
			m := hypervisortest.NewNode("m1")
			m.Spec.ProviderRef = &v1alpha1.ProviderReference{Name: s.Site.Provider}
			s.Create(m)
			isProvided := func(m *v1alpha1.Machine) bool { return hypervisortest.IsRunning(m) && m.HoldsMachineConfig() }
			isRemoved := func(m *v1alpha1.Machine) bool {
				return hypervisortest.IsRunning(m) && slices.ContainsFunc(m.Status.Conditions, func(c metav1.Condition) bool {
					return c.Type == v1alpha1.ConditionMachineConfigRemoved && c.Status == metav1.ConditionTrue
				})
			}
			install := func(config string) {
				s.Drive("m1", &hypervisortest.Wire{}, "has configuration "+config, isProvided)
				s.MarkInstalled(m)
				s.Drive("m1", &hypervisortest.Wire{}, "is installed with configuration "+config, isRemoved)
			}
			s.ProvideMachineConfig(m, "version: v1alpha1 # one\n")
			install("one")
			s.ProvideMachineConfig(m, "version: v1alpha1 # two\n")
			late := &lateDelivery{isNext: isRequest(http.MethodGet, tc.read), meanwhile: func() { install("two") }}
			if err := s.deliverLate("m1", late); (err != nil && !kube.Conflict(err)) || !late.waited {
				t.Errorf("the late delivery ended with %v, waiting for its request: %t", err, !late.waited)
			}
			if m = s.Drive("m1", &hypervisortest.Wire{}, "stays installed", isRemoved); s.Site.HoldsUserData(m) {
				t.Error("the hypervisor has the keys of a running node")
			}
		})
	}
}
