package main

import (
	"net/http"
	"testing"

	"github.com/vitistack/stack/apis/v1alpha1"
	"github.com/vitistack/stack/functions/create-vm/hypervisor/hypervisortest"
)

// TestLateRemoval protects a Machine that is being deleted, while a delivery that has read it before is about to remove its
// virtual machine. Another delivery reports the protection first.
func TestLateRemoval(t *testing.T) {
	t.Parallel()
	for name, tc := range map[string]struct {
		site func(*env) *hypervisortest.Site
		read string
	}{"KubeVirt": {kubevirtSite, "/virtualmachines/m1"}, "Proxmox": {proxmoxSite, "/status/current"}} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			s := newEnv(t, tc.site)
			m := s.CreateMachine("m1")
			s.Drive("m1", &hypervisortest.Wire{}, "runs", hypervisortest.IsRunning)
			if err := s.Kube.Delete(t.Context(), m); err != nil {
				t.Fatal(err)
			}
			late := &lateDelivery{isNext: isRequest(http.MethodGet, tc.read), meanwhile: func() {
				s.Edit("m1", func(m *v1alpha1.Machine) { m.Spec.Protected = true })
				s.Drive("m1", &hypervisortest.Wire{}, "reports its protection", hypervisortest.HasReason("Protected"))
			}}
			if err := s.deliverLate("m1", late); err != nil || !late.waited || len(late.changes) > 0 {
				t.Errorf("the late delivery has changed %v, waiting for its request: %t: %v", late.changes, !late.waited, err)
			}
		})
	}
}
