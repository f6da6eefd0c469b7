package inventory_test

import (
	"fmt"
	"testing"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/vitistack/stack/apis/v1alpha1"
	"github.com/vitistack/stack/gateway/internal/inventory"
)

// TestCommitAllocations counts the allocations for one change. While all clusters answer, they do not depend on how many machines
// exist.
func TestCommitAllocations(t *testing.T) {
	count := func(clusters int) float64 {
		s := inventory.NewStore("e")
		for i := range clusters {
			c := cluster("1", "Ready", "Ready")
			c.ObjectMeta = about("team-a", fmt.Sprintf("shop-%d", i), "1")
			c.Status.Conditions = ready(metav1.ConditionTrue, "ClusterRunning", "every node is Ready")
			put(t, s, c)
			for n := range 6 {
				m := machine(fmt.Sprintf("%s-%d", c.Name, n), "1", "Running")
				m.Labels[v1alpha1.LabelClusterName] = c.Name
				put(t, s, m)
			}
		}
		s.Commit(time.Unix(0, 0))
		version := 1
		return testing.AllocsPerRun(20, func() {
			version++
			put(t, s, machine("single", fmt.Sprint(version), "Running"))
			s.Commit(time.Unix(int64(version), 0))
		})
	}
	few, many := count(20), count(400)
	if many > 1.5*few {
		t.Errorf("a change makes %.0f allocations with 120 machines, and %.0f with 2,400", few, many)
	}
}
