package main

import (
	"net/http"
	"strings"
	"testing"

	"k8s.io/apimachinery/pkg/api/meta"

	"github.com/vitistack/stack/apis/v1alpha1"
	"github.com/vitistack/stack/events"
	"github.com/vitistack/stack/functions/create-vm/hypervisor"
	"github.com/vitistack/stack/functions/create-vm/hypervisor/hypervisortest"
)

func TestDecideHandover(t *testing.T) {
	t.Parallel()
	const digest = "d1"
	type change = func(*v1alpha1.Machine)
	provided := func(m *v1alpha1.Machine) { m.Annotations[v1alpha1.AnnotationMachineConfig] = digest }
	installed := func(m *v1alpha1.Machine) { m.Annotations[v1alpha1.AnnotationInstalled] = "true" }
	holds := func(digest string) change {
		return func(m *v1alpha1.Machine) {
			setCondition(m, v1alpha1.ConditionMachineConfigRemoved, false, "Held", v1alpha1.MachineConfigHeldMessage(digest))
		}
	}
	removed := func(m *v1alpha1.Machine) { setMachineConfigRemoved(m, hypervisor.HandoverRemove) }
	for name, tc := range map[string]struct {
		reason  string
		changes []change
		want    hypervisor.Handover
	}{
		"New":       {"its configuration does not exist yet", nil, hypervisor.HandoverNone},
		"Provided":  {"the node needs it", []change{provided}, hypervisor.HandoverProvide},
		"Held":      {"the node starts with it", []change{provided, holds(digest)}, hypervisor.HandoverNone},
		"Changed":   {"another one has been provided since", []change{provided, holds("d0")}, hypervisor.HandoverProvide},
		"Installed": {"the hypervisor must not keep the keys", []change{installed, holds(digest)}, hypervisor.HandoverRemove},
		"Forgotten": {"an earlier delivery may have recorded nothing", []change{installed}, hypervisor.HandoverRemove},
		"Removed":   {"it was removed already", []change{installed, removed}, hypervisor.HandoverNone},
		"Reset":     {"its disk was replaced", []change{provided, removed}, hypervisor.HandoverProvide},
		"Waiting":   {"its disk was replaced, and no configuration is provided yet", []change{removed}, hypervisor.HandoverNone},
		"Stranger": {"it belongs to no cluster", []change{provided, func(m *v1alpha1.Machine) {
			m.Spec.CloudInit.SecretRef.Name = "my-data"
		}}, hypervisor.HandoverNone},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			m := hypervisortest.NewNode("m1")
			for _, change := range tc.changes {
				change(m)
			}
			if got := decideHandover(m); got != tc.want {
				t.Errorf("%s: got %q, want %q", tc.reason, got, tc.want)
			}
		})
	}
}

// TestConfigRemovalFails has the first write of the removal fail. The delivery reconciles the whole Machine then, which
// removes the configuration too.
func TestConfigRemovalFails(t *testing.T) {
	t.Parallel()
	s := newEnv(t, kubevirtSite)
	m := hypervisortest.NewNode("m1")
	m.Spec.ProviderRef = &v1alpha1.ProviderReference{Name: s.Site.Provider}
	s.Create(m)
	s.Drive("m1", &hypervisortest.Wire{}, "waiting for its configuration", hypervisortest.HasReason(reasonWaitingForMachineConfig))
	s.ProvideMachineConfig(m, "version: v1alpha1\n")
	s.Drive("m1", &hypervisortest.Wire{}, "runs with its configuration", func(m *v1alpha1.Machine) bool { return hypervisortest.IsRunning(m) && m.HoldsMachineConfig() })
	s.MarkInstalled(m)
	failed := false
	w := &hypervisortest.Wire{Answer: func(req *http.Request) *http.Response {
		if failed || req.Method != http.MethodPatch || !strings.Contains(req.URL.Path, "/secrets/") {
			return nil
		}
		failed = true
		return &http.Response{StatusCode: http.StatusServiceUnavailable, Body: http.NoBody, Request: req}
	}}
	if err := deliver(t.Context(), s.process(w), change(t, events.TypeRefUpdate, causeMachine, s.Namespace, "m1", nil)); err != nil {
		t.Fatal(err)
	}
	if err := s.Kube.Get(t.Context(), s.Namespace, "m1", m); err != nil {
		t.Fatal(err)
	}
	if !failed || s.Site.HoldsUserData(m) || !meta.IsStatusConditionTrue(m.Status.Conditions, v1alpha1.ConditionMachineConfigRemoved) {
		t.Errorf("the configuration is left, or no request has failed (%t): %+v", failed, m.Status.Conditions)
	}
}
