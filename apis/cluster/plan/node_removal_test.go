package plan

import (
	"testing"
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
		"Forced":            {"a forced removal waits for no pod", with(worker, func(d *NodeRemoval) { d.Forced = true }), RemovalDeleteMachine},
		"Deleted":           {"a Machine that a user deleted is not drained", with(worker, func(d *NodeRemoval) { d.Deleted = true }), RemovalReleaseMachine},
		"Etcd":              {"a control plane leaves etcd before its deletion", plane, RemovalLeaveEtcd},
		"Expel":             {"another member removes a dead one", with(plane, func(d *NodeRemoval) { d.MemberAnswers = false }), RemovalExpelMember},
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
