package plan

import (
	"encoding/json"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/vitistack/stack/apis/v1alpha1"
)

func pools(cp, workers int32) []v1alpha1.ApprovedPool {
	return []v1alpha1.ApprovedPool{{Name: "cp", Replicas: cp, Template: "large"}, {Name: "w", Replicas: workers, Template: "medium"}}
}

func TestNextApproval(t *testing.T) {
	t.Parallel()
	requested := func(approved []v1alpha1.ApprovedPool) *v1alpha1.ApprovalStatus {
		return &v1alpha1.ApprovalStatus{State: v1alpha1.ApprovalRequested, Generation: 2, Requested: pools(1, 4), Approved: approved}
	}
	approved := &v1alpha1.ApprovalStatus{State: v1alpha1.ApprovalApproved, Generation: 1, Requested: pools(1, 2), Approved: pools(1, 2), By: "kari"}
	rejected := &v1alpha1.ApprovalStatus{State: v1alpha1.ApprovalRejected, Generation: 2, Requested: pools(1, 4), By: "kari"}
	cases := map[string]struct {
		reason     string
		now        *v1alpha1.ApprovalStatus
		policy     v1alpha1.ApprovalPolicy
		wanted     []v1alpha1.ApprovedPool
		state      v1alpha1.ApprovalState
		generation int64
	}{
		"New":           {"nobody was asked", nil, v1alpha1.ApprovalCreation, pools(1, 2), v1alpha1.ApprovalRequested, 9},
		"Waiting":       {"somebody was asked for just that", requested(nil), v1alpha1.ApprovalCreation, pools(1, 4), v1alpha1.ApprovalRequested, 2},
		"Other":         {"somebody was asked for something else", requested(nil), v1alpha1.ApprovalCreation, pools(1, 5), v1alpha1.ApprovalRequested, 9},
		"Smaller":       {"less was not asked for either", requested(nil), v1alpha1.ApprovalGrowth, pools(1, 3), v1alpha1.ApprovalRequested, 9},
		"Approved":      {"just that was approved", approved, v1alpha1.ApprovalGrowth, pools(1, 2), v1alpha1.ApprovalApproved, 1},
		"Shrinks":       {"less than was approved", approved, v1alpha1.ApprovalGrowth, pools(1, 1), v1alpha1.ApprovalApproved, 1},
		"Grows":         {"more than was approved", approved, v1alpha1.ApprovalGrowth, pools(1, 3), v1alpha1.ApprovalRequested, 9},
		"ControlPlane":  {"more control planes are growth", approved, v1alpha1.ApprovalGrowth, pools(3, 2), v1alpha1.ApprovalRequested, 9},
		"NewPool":       {"another pool is growth", approved, v1alpha1.ApprovalGrowth, append(pools(1, 2), v1alpha1.ApprovedPool{Name: "x"}), v1alpha1.ApprovalRequested, 9},
		"Template":      {"machines of another size are growth", approved, v1alpha1.ApprovalGrowth, []v1alpha1.ApprovedPool{{Name: "cp", Replicas: 1, Template: "xlarge"}}, v1alpha1.ApprovalRequested, 9},
		"OnlyCreation":  {"growth needs nobody", approved, v1alpha1.ApprovalCreation, pools(3, 9), v1alpha1.ApprovalApproved, 1},
		"Withdrawn":     {"what was asked for is not wanted any more", requested(pools(1, 2)), v1alpha1.ApprovalGrowth, pools(1, 2), v1alpha1.ApprovalApproved, 9},
		"Rejected":      {"the same is still rejected", rejected, v1alpha1.ApprovalCreation, pools(1, 4), v1alpha1.ApprovalRejected, 2},
		"AfterRejected": {"something else may be asked for", rejected, v1alpha1.ApprovalCreation, pools(1, 3), v1alpha1.ApprovalRequested, 9},
	}
	for name, tc := range cases {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			got := NextApproval(tc.now, tc.policy, 9, "WO-1", tc.wanted)
			if got.State != tc.state || got.Generation != tc.generation {
				t.Errorf("%s: got %+v, want %s for generation %d", tc.reason, got, tc.state, tc.generation)
			}
			if tc.now != nil && len(tc.now.Approved) > 0 && len(got.Approved) == 0 {
				t.Errorf("%s: what was approved is forgotten", tc.reason)
			}
		})
	}
}

func TestApplyDecision(t *testing.T) {
	t.Parallel()
	at := metav1.NewTime(time.Date(2026, 1, 2, 3, 4, 5, 0, time.UTC))
	asked := v1alpha1.ApprovalStatus{State: v1alpha1.ApprovalRequested, Generation: 2, Requested: pools(1, 4), Approved: pools(1, 2)}
	cases := map[string]struct {
		reason string
		now    *v1alpha1.ApprovalStatus
		d      Decision
		taken  bool
		state  v1alpha1.ApprovalState
		may    []v1alpha1.ApprovedPool
	}{
		"Approved":     {"go ahead", &asked, Decision{Generation: 2, By: "kari", Approved: true}, true, v1alpha1.ApprovalApproved, pools(1, 4)},
		"Rejected":     {"what was approved before stands", &asked, Decision{Generation: 2, By: "kari", Reason: "no budget"}, true, v1alpha1.ApprovalRejected, pools(1, 2)},
		"Stale":        {"another topology was asked about", &asked, Decision{Generation: 1, By: "kari", Approved: true}, false, v1alpha1.ApprovalRequested, pools(1, 2)},
		"Early":        {"nobody has asked", nil, Decision{Generation: 2, By: "kari", Approved: true}, false, "", nil},
		"SecondAnswer": {"the first decision stands", &v1alpha1.ApprovalStatus{State: v1alpha1.ApprovalRejected, Generation: 2}, Decision{Generation: 2, By: "ola", Approved: true}, false, v1alpha1.ApprovalRejected, nil},
	}
	for name, tc := range cases {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			a := tc.now.DeepCopy()
			if got := ApplyDecision(a, tc.d, at); got != tc.taken {
				t.Fatalf("%s: taken %t, want %t", tc.reason, got, tc.taken)
			}
			if a == nil {
				return
			}
			if diff := cmp.Diff(tc.may, a.Approved); a.State != tc.state || diff != "" {
				t.Errorf("%s: got %s, want %s; approved (-want +got):\n%s", tc.reason, a.State, tc.state, diff)
			}
			if tc.taken && (a.By != tc.d.By || a.Time == nil) {
				t.Errorf("%s: nobody knows who decided when: %+v", tc.reason, a)
			}
		})
	}
}

func TestLimitToApproved(t *testing.T) {
	t.Parallel()
	kc := example(t)
	kc.Spec.Topology.ControlPlane.Replicas = 3
	kc.Spec.Topology.Workers = []v1alpha1.WorkerPool{{Name: "w", Replicas: 9}, {Name: "new", Replicas: 1}}
	kc.Spec.Topology.Workers[0].Template = "xlarge"
	got := LimitToApproved(kc, pools(1, 2)).Spec.Topology
	if got.ControlPlane.Replicas != 1 || len(got.Workers) != 1 || got.Workers[0].Replicas != 2 || got.Workers[0].Template != "medium" {
		t.Errorf("no more than was approved: got %+v", got)
	}
	if kc.Spec.Topology.ControlPlane.Replicas != 3 || len(kc.Spec.Topology.Workers) != 2 {
		t.Error("the spec itself must stay")
	}
}

func TestDecisionData(t *testing.T) {
	t.Parallel()
	d := Decision{}
	if err := json.Unmarshal([]byte(`{"uid": "0f5b", "generation": 2, "by": "kari", "approved": true, "Approved": true}`), &d); err != nil {
		t.Fatal(err)
	}
	if d.Approved {
		t.Error("the data of a rejection cannot approve: only the type of the event does")
	}
}
