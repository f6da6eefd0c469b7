package inventory_test

import (
	"fmt"
	"testing"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/vitistack/stack/apis/v1alpha1"
	"github.com/vitistack/stack/gateway/internal/inventory"
)

// TestProviderDue has a MachineProvider count Machines of several ages. It is due only if that count stays wrong once the
// Machines which are being created have been.
func TestProviderDue(t *testing.T) {
	t.Parallel()
	const grace = 20 * time.Second
	now := then.Add(time.Hour)
	for name, tc := range map[string]struct {
		reason   string
		counted  int
		old, new int
		want     bool
	}{
		"Counted":       {reason: "the count is right", counted: 2, old: 2},
		"New":           {reason: "a Machine is being created, which an inspection would delay", counted: 2, old: 2, new: 1},
		"First":         {reason: "the first Machine is being created", new: 1},
		"CountedNew":    {reason: "an inspection has counted a new Machine", counted: 3, old: 2, new: 1},
		"Old":           {reason: "the count lacks a Machine that is not new", counted: 1, old: 2, want: true},
		"OldBesideNew":  {reason: "new Machines one after another do not delay the count for ever", counted: 1, old: 2, new: 5, want: true},
		"Deleted":       {reason: "a Machine was deleted", counted: 3, old: 2, want: true},
		"DeletedAndNew": {reason: "a Machine was deleted and another one is new: the count is right once that is old", counted: 2, old: 1, new: 1},
	} {
		s := inventory.NewStore("test")
		p := provider(v1alpha1.ProviderKubeVirt, v1alpha1.ProviderReady)
		p.Status.MachineCount = int32(tc.counted)
		p.Status.Conditions = ready(metav1.ConditionTrue, "Healthy", "the hypervisor answers")
		put(t, s, p)
		for i := range tc.old + tc.new {
			m := machine(fmt.Sprint("m", i), "1", "Running")
			m.Status.Conditions = ready(metav1.ConditionTrue, "MachineRunning", "the machine is running")
			m.CreationTimestamp = metav1.NewTime(now.Add(-grace))
			if i >= tc.old {
				m.CreationTimestamp = metav1.NewTime(now.Add(time.Second - grace))
			}
			put(t, s, m)
		}
		due := s.Due(now, grace)
		if got := len(due) > 0; got != tc.want {
			t.Errorf("%s: %s: due is %v, want %v", name, tc.reason, got, tc.want)
		}
		for _, o := range due {
			if o.Kind != inventory.KindProvider {
				t.Errorf("%s: %s %s is due", name, o.Kind, o.Name)
			}
		}
	}
}
