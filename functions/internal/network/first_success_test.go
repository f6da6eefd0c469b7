package network_test

import (
	"testing"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/vitistack/stack/apis/v1alpha1"
	"github.com/vitistack/stack/functions/internal/kube"
	"github.com/vitistack/stack/functions/internal/network"
)

func TestIsReportedByMachine(t *testing.T) {
	t.Parallel()
	machine := &v1alpha1.Machine{ObjectMeta: metav1.ObjectMeta{Name: "web", UID: "1"}}
	for name, tc := range map[string]struct {
		reason        string
		kind          string
		before, after metav1.ConditionStatus
		want          bool
	}{
		"First":      {"the Machine goes on, and says so", "Machine", "", metav1.ConditionTrue, true},
		"Problem":    {"a user has to see what the Machine waits for", "Machine", "", metav1.ConditionFalse, false},
		"Recovered":  {"an Event has named the problem, so another ends it", "Machine", metav1.ConditionFalse, metav1.ConditionTrue, false},
		"Unchanged":  {"it was Ready before", "Machine", metav1.ConditionTrue, metav1.ConditionTrue, false},
		"OtherOwner": {"the owner records no Event for it", "Router", "", metav1.ConditionTrue, false},
		"NoOwner":    {"nothing else says so", "", "", metav1.ConditionTrue, false},
	} {
		nc := func(ready metav1.ConditionStatus) *v1alpha1.NetworkConfiguration {
			out := &v1alpha1.NetworkConfiguration{ObjectMeta: metav1.ObjectMeta{Name: "web"}}
			if tc.kind != "" {
				out.OwnerReferences = kube.Owned(machine, v1alpha1.GroupVersion.String(), tc.kind)
			}
			if ready != "" {
				out.Status.Conditions = []metav1.Condition{{Type: v1alpha1.ConditionReady, Status: ready}}
			}
			return out
		}
		if got := network.IsReportedByMachine(nc(tc.before), nc(tc.after)); got != tc.want {
			t.Errorf("%s: %s: got %t", name, tc.reason, got)
		}
	}
}
