package main

import (
	"testing"

	"github.com/vitistack/stack/apis/v1alpha1"
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
