package plan

import (
	"strings"
	"testing"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/vitistack/stack/apis/v1alpha1"
)

func TestReportMachines(t *testing.T) {
	t.Parallel()
	paused := func(kc *v1alpha1.KubernetesCluster) { kc.Spec.Upgrade = &v1alpha1.UpgradeOptions{Paused: true} }
	resizing := func(r v1alpha1.MachineResize) func(*v1alpha1.KubernetesCluster) {
		return func(kc *v1alpha1.KubernetesCluster) { kc.Status.Resizes = append(kc.Status.Resizes, r) }
	}
	drains := resizing(v1alpha1.MachineResize{Name: "w-0", Step: v1alpha1.ResizeDraining})
	machines := map[string]*v1alpha1.Machine{
		"w-0": {}, "w-1": {ObjectMeta: metav1.ObjectMeta{Name: "w-1"}, Spec: v1alpha1.MachineSpec{Protected: true}},
	}
	replaced := func(names ...string) Outdated {
		o := Outdated{Replaced: map[string]string{}}
		for _, name := range names {
			o.Replaced[name] = "template small instead of large"
		}
		return o
	}
	cases := map[string]struct {
		why      string
		outdated Outdated
		changes  []func(*v1alpha1.KubernetesCluster)
		reason   string
		message  string
	}{
		"Current":         {"every machine is as its pool says", Outdated{}, nil, "MachinesCurrent", "every machine"},
		"Replacing":       {"a machine that is not protected is replaced", replaced("w-0", "w-1"), nil, "ReplacingMachines", "w-0"},
		"Protected":       {"no machine may be replaced", replaced("w-1"), nil, "MachineProtected", "set spec.protected of Machine w-1 to false"},
		"Paused":          {"a pause also stops machines that are protected", replaced("w-1"), []func(*v1alpha1.KubernetesCluster){paused}, "ReplacementPaused", "spec.upgrade.paused is true"},
		"Waits":           {"a machine that waits for its resize is not current", Outdated{InPlace: map[string]string{"w-0": "template"}}, nil, ReasonResizing, "w-0"},
		"Resizing":        {"a resize has begun", Outdated{}, []func(*v1alpha1.KubernetesCluster){drains}, ReasonResizing, "w-0"},
		"FailedDrain":     {"no restart has begun, so that the pods can still be moved", Outdated{}, []func(*v1alpha1.KubernetesCluster){resizing(v1alpha1.MachineResize{Name: "w-0", Step: v1alpha1.ResizeFailed})}, ReasonResizeFailed, "drainTimeout"},
		"FailedRestart":   {"the node has restarted, and can only be repaired or replaced", Outdated{}, []func(*v1alpha1.KubernetesCluster){resizing(v1alpha1.MachineResize{Name: "w-0", Step: v1alpha1.ResizeFailed, BootID: "b"})}, ReasonResizeFailed, v1alpha1.AnnotationRemove},
		"FailedAndPaused": {"a failure comes first, because a user has to act", Outdated{}, []func(*v1alpha1.KubernetesCluster){paused, resizing(v1alpha1.MachineResize{Name: "w-0", Step: v1alpha1.ResizeFailed})}, ReasonResizeFailed, "w-0"},
	}
	for name, tc := range cases {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			kc := &v1alpha1.KubernetesCluster{}
			for _, change := range tc.changes {
				change(kc)
			}
			got := ReportMachines(kc, tc.outdated, machines)
			if got.Reason != tc.reason || !strings.Contains(got.Message, tc.message) || got.IsCurrent != (tc.reason == "MachinesCurrent") {
				t.Errorf("%s: got %+v, want %s with %q", tc.why, got, tc.reason, tc.message)
			}
		})
	}
}
