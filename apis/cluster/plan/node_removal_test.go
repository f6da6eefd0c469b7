package plan

import (
	"testing"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/vitistack/stack/apis/v1alpha1"
)

func TestNodeRemoval(t *testing.T) {
	t.Parallel()
	worker := NodeRemoval{APIAnswers: true, HasNode: true, Ready: true, MembersAgree: true}
	plane := worker
	plane.Cordoned, plane.Drained, plane.IsMember, plane.MemberAnswers = true, true, true, true
	with := func(d NodeRemoval, change func(*NodeRemoval)) NodeRemoval {
		change(&d)
		return d
	}
	cases := map[string]struct {
		reason string
		d      NodeRemoval
		want   RemovalStep
	}{
		"Cordon":            {"a node is cordoned before its drain", worker, RemovalCordon},
		"Drain":             {"a cordoned node is drained", with(worker, func(d *NodeRemoval) { d.Cordoned = true }), RemovalDrain},
		"Delete":            {"the Machine of a drained worker is deleted", with(worker, func(d *NodeRemoval) { d.Cordoned, d.Drained = true, true }), RemovalDeleteMachine},
		"Deleting":          {"the deletion is waited for", with(worker, func(d *NodeRemoval) { d.Cordoned, d.Drained, d.Deleted = true, true, true }), RemovalReleaseMachine},
		"NotReady":          {"pods on a dead node cannot be evicted", with(worker, func(d *NodeRemoval) { d.Ready = false }), RemovalDeleteMachine},
		"NoNode":            {"a machine that never became a node has no pods", with(worker, func(d *NodeRemoval) { d.HasNode = false }), RemovalDeleteMachine},
		"UnknownPods":       {"unknown pods may exist", with(worker, func(d *NodeRemoval) { d.APIAnswers, d.HasNode = false, false }), RemovalWaitsForAPI},
		"UnknownPodsForced": {"a forced removal ignores unknown pods", with(worker, func(d *NodeRemoval) { d.APIAnswers, d.Forced = false, true }), RemovalDeleteMachine},
		"Expired":           {"the drain timeout has passed", with(worker, func(d *NodeRemoval) { d.Cordoned, d.DrainExpired = true, true }), RemovalDeleteMachine},
		"ExpiredBefore":     {"the drain has not begun", with(worker, func(d *NodeRemoval) { d.Cordoned, d.DrainExpired = false, true }), RemovalCordon},
		"Forced":            {"a forced removal waits for no pod", with(worker, func(d *NodeRemoval) { d.Forced = true }), RemovalDeleteMachine},
		"Deleted":           {"a Machine that a user deleted is not drained", with(worker, func(d *NodeRemoval) { d.Deleted = true }), RemovalReleaseMachine},
		"Etcd":              {"a control plane leaves etcd before its deletion", plane, RemovalLeaveEtcd},
		"Remove":            {"another member removes a dead one", with(plane, func(d *NodeRemoval) { d.MemberAnswers = false }), RemovalRemoveMember},
		"Objection":         {"the majority is checked before the drain", with(plane, func(d *NodeRemoval) { d.Cordoned, d.Objection = false, "no majority" }), RemovalBlocked},
		"ForcedEtcd":        {"a forced removal gives up the member", with(plane, func(d *NodeRemoval) { d.Forced, d.Objection = true, "no majority" }), RemovalDeleteMachine},
		"DeletedMember":     {"the member of a deleted Machine leaves etcd too", with(plane, func(d *NodeRemoval) { d.Deleted = true }), RemovalLeaveEtcd},
		"Disagree":          {"the deletion waits until every member agrees that it has left", with(plane, func(d *NodeRemoval) { d.IsMember, d.MembersAgree = false, false }), RemovalWaitsForMembers},
	}
	for name, tc := range cases {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			if got := tc.d.Next(); got != tc.want {
				t.Errorf("%s: got %s, want %s", tc.reason, got, tc.want)
			}
		})
	}
}

func TestIsTakenOver(t *testing.T) {
	t.Parallel()
	machine := func(uid types.UID, annotations map[string]string) *v1alpha1.Machine {
		return &v1alpha1.Machine{ObjectMeta: metav1.ObjectMeta{UID: uid, Annotations: annotations}}
	}
	removed := map[string]string{v1alpha1.AnnotationRemoving: "first"}
	cases := map[string]struct {
		reason  string
		node    map[string]string
		machine *v1alpha1.Machine
		want    bool
	}{
		"Other":   {"the Node was cordoned for the removal of an earlier Machine", removed, machine("second", nil), true},
		"Same":    {"this Machine is removed, or its removal has stopped", removed, machine("first", nil), false},
		"Leaving": {"the cordon is needed for this Machine too", removed, machine("second", map[string]string{v1alpha1.AnnotationRemoving: "2026-11-25T12:00:00Z"}), false},
		"User":    {"a user has cordoned the Node", nil, machine("second", nil), false},
	}
	for name, tc := range cases {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			if got := IsTakenOver(Node{Cordoned: true, Annotations: tc.node}, tc.machine); got != tc.want {
				t.Errorf("%s: got %t", tc.reason, got)
			}
		})
	}
}
