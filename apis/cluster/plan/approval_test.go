package plan

import (
	"encoding/json"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/vitistack/stack/apis/v1alpha1"
)

func pools(cp, workers int32) []v1alpha1.ApprovedPool {
	return []v1alpha1.ApprovedPool{{Name: "cp", Replicas: cp, Template: "large"}, {Name: "w", Replicas: workers, Template: "medium"}}
}

func TestNextApproval(t *testing.T) {
	t.Parallel()
	requested := func(approved []v1alpha1.ApprovedPool) *v1alpha1.ApprovalStatus {
		return &v1alpha1.ApprovalStatus{State: v1alpha1.ApprovalRequested, Generation: 2, Workorder: "WO-1", Requested: pools(1, 4), Approved: approved}
	}
	approved := &v1alpha1.ApprovalStatus{State: v1alpha1.ApprovalApproved, Generation: 1, Requested: pools(1, 2), Approved: pools(1, 2), By: "kari"}
	rejectedOf := func(workorder string) *v1alpha1.ApprovalStatus {
		return &v1alpha1.ApprovalStatus{State: v1alpha1.ApprovalRejected, Generation: 2, Workorder: workorder, Requested: pools(1, 4), By: "kari"}
	}
	rejected := rejectedOf("WO-1")
	cases := map[string]struct {
		reason     string
		now        *v1alpha1.ApprovalStatus
		policy     v1alpha1.ApprovalPolicy
		wanted     []v1alpha1.ApprovedPool
		state      v1alpha1.ApprovalState
		generation int64
	}{
		"New":           {"no approval was requested", nil, v1alpha1.ApprovalCreation, pools(1, 2), v1alpha1.ApprovalRequested, 9},
		"Waiting":       {"approval of exactly this was requested", requested(nil), v1alpha1.ApprovalCreation, pools(1, 4), v1alpha1.ApprovalRequested, 2},
		"Other":         {"approval of another topology was requested", requested(nil), v1alpha1.ApprovalCreation, pools(1, 5), v1alpha1.ApprovalRequested, 9},
		"Smaller":       {"approval of a smaller topology was not requested either", requested(nil), v1alpha1.ApprovalGrowth, pools(1, 3), v1alpha1.ApprovalRequested, 9},
		"Approved":      {"exactly this was approved", approved, v1alpha1.ApprovalGrowth, pools(1, 2), v1alpha1.ApprovalApproved, 1},
		"Shrinks":       {"less than the approved topology", approved, v1alpha1.ApprovalGrowth, pools(1, 1), v1alpha1.ApprovalApproved, 1},
		"Grows":         {"more than the approved topology", approved, v1alpha1.ApprovalGrowth, pools(1, 3), v1alpha1.ApprovalRequested, 9},
		"ControlPlane":  {"more control planes are growth", approved, v1alpha1.ApprovalGrowth, pools(3, 2), v1alpha1.ApprovalRequested, 9},
		"NewPool":       {"another pool is growth", approved, v1alpha1.ApprovalGrowth, append(pools(1, 2), v1alpha1.ApprovedPool{Name: "x"}), v1alpha1.ApprovalRequested, 9},
		"Template":      {"machines of another size are growth", approved, v1alpha1.ApprovalGrowth, []v1alpha1.ApprovedPool{{Name: "cp", Replicas: 1, Template: "xlarge"}}, v1alpha1.ApprovalRequested, 9},
		"OnlyCreation":  {"only the creation needs approval", approved, v1alpha1.ApprovalCreation, pools(3, 9), v1alpha1.ApprovalApproved, 1},
		"Withdrawn":     {"the requested topology is no longer in the spec", requested(pools(1, 2)), v1alpha1.ApprovalGrowth, pools(1, 2), v1alpha1.ApprovalApproved, 9},
		"Rejected":      {"the same topology is still rejected", rejected, v1alpha1.ApprovalCreation, pools(1, 4), v1alpha1.ApprovalRejected, 2},
		"Corrected":     {"the work order of a rejected request was corrected", rejectedOf("WO-0"), v1alpha1.ApprovalCreation, pools(1, 4), v1alpha1.ApprovalRequested, 9},
		"AfterRejected": {"another topology may be requested", rejected, v1alpha1.ApprovalCreation, pools(1, 3), v1alpha1.ApprovalRequested, 9},
	}
	for name, tc := range cases {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			got := NextApproval(tc.now, tc.policy, 9, "WO-1", tc.wanted)
			if got.State != tc.state || got.Generation != tc.generation {
				t.Errorf("%s: got %+v, want %s for generation %d", tc.reason, got, tc.state, tc.generation)
			}
			if tc.now != nil && len(tc.now.Approved) > 0 && len(got.Approved) == 0 {
				t.Errorf("%s: the approved topology is lost", tc.reason)
			}
			if grown := tc.policy == v1alpha1.ApprovalCreation && tc.now != nil && len(tc.now.Approved) > 0; grown && !slices.Equal(got.Approved, tc.wanted) {
				t.Errorf("%s: got approved %v, want %v: a later limit would remove the other machines", tc.reason, got.Approved, tc.wanted)
			}
		})
	}
}

func TestApprovalPolicyOf(t *testing.T) {
	t.Parallel()
	const creation, growth = v1alpha1.ApprovalCreation, v1alpha1.ApprovalGrowth
	for name, tc := range map[string]struct {
		reason           string
		own, ofNamespace v1alpha1.ApprovalPolicy
		want             v1alpha1.ApprovalPolicy
		problem          string
	}{
		"None":          {"without a policy, no cluster needs an approval", "", "", "", ""},
		"Own":           {"a cluster may ask for approvals itself", creation, "", creation, ""},
		"Namespace":     {"a namespace binds all of its clusters", "", creation, creation, ""},
		"Stricter":      {"the namespace is stricter", creation, growth, growth, ""},
		"OwnIsStricter": {"the cluster is stricter", growth, creation, growth, ""},
		"Unknown":       {"a typing error must not switch approvals off", growth, "all", "", "write creation or growth"},
	} {
		ns := &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: "shop", Annotations: map[string]string{v1alpha1.AnnotationApproval: string(tc.ofNamespace)}}}
		spec := v1alpha1.KubernetesClusterSpec{}
		if tc.own != "" {
			spec.Approval = &v1alpha1.ApprovalOptions{Policy: tc.own}
		}
		got, err := ApprovalPolicyOf(spec, ns)
		if got != tc.want || (err == nil) != (tc.problem == "") || err != nil && !strings.Contains(err.Error(), tc.problem) {
			t.Errorf("%s: %s: got %q and %v, want %q and %q", name, tc.reason, got, err, tc.want, tc.problem)
		}
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
		"Rejected":     {"the earlier approval remains valid", &asked, Decision{Generation: 2, By: "kari", Reason: "no budget"}, true, v1alpha1.ApprovalRejected, pools(1, 2)},
		"Stale":        {"the decision is about an earlier topology", &asked, Decision{Generation: 1, By: "kari", Approved: true}, false, v1alpha1.ApprovalRequested, pools(1, 2)},
		"Early":        {"no approval was requested", nil, Decision{Generation: 2, By: "kari", Approved: true}, false, "", nil},
		"SecondAnswer": {"the first decision is final", &v1alpha1.ApprovalStatus{State: v1alpha1.ApprovalRejected, Generation: 2}, Decision{Generation: 2, By: "ola", Approved: true}, false, v1alpha1.ApprovalRejected, nil},
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
				t.Errorf("%s: want the user and the time of the decision: %+v", tc.reason, a)
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
		t.Errorf("want at most the approved topology: got %+v", got)
	}
	if kc.Spec.Topology.ControlPlane.Replicas != 3 || len(kc.Spec.Topology.Workers) != 2 {
		t.Error("the spec itself must not change")
	}
}

// TestWithTemplates requests approval of another template for the machines that a cluster had before the policy.
func TestWithTemplates(t *testing.T) {
	t.Parallel()
	status := v1alpha1.KubernetesClusterStatus{
		Accepted: &v1alpha1.AcceptedSpec{Topology: v1alpha1.ClusterTopology{
			ControlPlane: v1alpha1.ControlPlaneTopology{Replicas: 1}, Workers: []v1alpha1.WorkerPool{{Name: "w", Replicas: 2}},
		}},
		Nodes: []v1alpha1.NodeStatus{{Role: v1alpha1.RoleControlPlane}}, Pools: []v1alpha1.PoolStatus{{Name: "w", Replicas: 2}},
	}
	status.Accepted.Topology.ControlPlane.Template, status.Accepted.Topology.Workers[0].Template = "large", "medium"
	a := WithTemplates(ApprovalOfPresent(status), status.Accepted)
	if diff := cmp.Diff(pools(1, 2), a.Approved); diff != "" {
		t.Errorf("approved (-want +got):\n%s", diff)
	}
	larger := pools(1, 2)
	larger[1].Template = "xlarge"
	for name, tc := range map[string]struct {
		wanted []v1alpha1.ApprovedPool
		want   v1alpha1.ApprovalState
	}{"Same": {pools(1, 2), v1alpha1.ApprovalApproved}, "Larger": {larger, v1alpha1.ApprovalRequested}} {
		if got := NextApproval(a, v1alpha1.ApprovalGrowth, 9, "", tc.wanted).State; got != tc.want {
			t.Errorf("%s: got %s, want %s", name, got, tc.want)
		}
	}
}

func TestKeptPools(t *testing.T) {
	t.Parallel()
	topology := func(names ...string) (t v1alpha1.ClusterTopology) {
		for _, name := range names {
			t.Workers = append(t.Workers, v1alpha1.WorkerPool{Name: name, Replicas: 2})
		}
		return t
	}
	for name, tc := range map[string]struct {
		reason string
		last   v1alpha1.ClusterTopology
		now    v1alpha1.ClusterTopology
		want   string
	}{
		"Renamed":    {"the new name is not approved", topology("w"), topology("web"), "w"},
		"Again":      {"the next delivery finds it in the last valid spec", topology("web", "w"), topology("web"), "w"},
		"Removed":    {"without a new pool, a pool is scaled down", topology("w"), topology(), ""},
		"Added":      {"nothing is missing", topology("w"), topology("w", "web"), ""},
		"Unapproved": {"a pool that was never approved has no workers", topology("x"), topology("web"), ""},
	} {
		var got []string
		for _, p := range KeptPools(&v1alpha1.AcceptedSpec{Topology: tc.last}, tc.now, pools(1, 2)) {
			got = append(got, p.Name)
		}
		if strings.Join(got, " ") != tc.want {
			t.Errorf("%s: %s: got %v, want %q", name, tc.reason, got, tc.want)
		}
	}
}

func TestDecisionData(t *testing.T) {
	t.Parallel()
	d := Decision{}
	if err := json.Unmarshal([]byte(`{"uid": "0f5b", "generation": 2, "by": "kari", "approved": true, "Approved": true}`), &d); err != nil {
		t.Fatal(err)
	}
	if d.Approved {
		t.Error("the data of a rejection cannot approve: the type of the event decides")
	}
}
