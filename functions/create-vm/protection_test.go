package main

import (
	"strings"
	"testing"

	"k8s.io/apimachinery/pkg/api/meta"

	"github.com/vitistack/stack/apis/v1alpha1"
	"github.com/vitistack/stack/functions/create-vm/hypervisor/hypervisortest"
	proxmoxsim "github.com/vitistack/stack/tests/sim/proxmox"
)

// TestProtectionStopsDeletion protects a Machine whose deletion has begun. The API server can no
// longer refuse the deletion.
func TestProtectionStopsDeletion(t *testing.T) {
	t.Parallel()
	r, _ := newPVE(t, proxmoxsim.Options{}, nil)
	r.CreateMachine("m1")
	r.Drive("m1", &hypervisortest.Wire{}, "runs", hypervisortest.IsRunning)
	r.Edit("m1", func(m *v1alpha1.Machine) { m.Spec.Protected = true })
	m := r.Drive("m1", &hypervisortest.Wire{}, "is protected", hypervisortest.IsRunning)
	if err := r.Kube.Delete(t.Context(), m); err != nil {
		t.Fatal(err)
	}
	m = r.Drive("m1", &hypervisortest.Wire{}, "reports that it is protected", hypervisortest.HasReason("Protected"))
	message := meta.FindStatusCondition(m.Status.Conditions, v1alpha1.ConditionReady).Message
	if want := "Machine " + m.Namespace + "/m1 is protected: run " + m.UnprotectCommand(); !strings.HasPrefix(message, want) {
		t.Errorf("got the message %q, want the command in %q", message, want)
	}
	r.RequireOneVM(m, &hypervisortest.Wire{})
	r.Edit("m1", func(m *v1alpha1.Machine) { m.Spec.Protected = false })
	r.Drive("m1", &hypervisortest.Wire{}, "is gone", hypervisortest.IsGone)
	if left := r.Site.Left(m); len(left) > 0 {
		t.Errorf("left behind: %v", left)
	}
}
