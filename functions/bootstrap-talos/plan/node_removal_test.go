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
		"Cordon":        {"new pods are kept away first", worker, RemovalCordon},
		"Drain":         {"then the pods move", with(worker, func(d *NodeRemoval) { d.Cordoned = true }), RemovalDrain},
		"Delete":        {"an empty worker goes", with(worker, func(d *NodeRemoval) { d.Cordoned, d.Drained = true, true }), RemovalDeleteMachine},
		"Goes":          {"and is waited for", with(worker, func(d *NodeRemoval) { d.Cordoned, d.Drained, d.Deleted = true, true, true }), RemovalReleaseMachine},
		"NotReady":      {"pods of a dead node cannot end", with(worker, func(d *NodeRemoval) { d.Ready = false }), RemovalDeleteMachine},
		"NoNode":        {"what never was a node has no pods", with(worker, func(d *NodeRemoval) { d.HasNode = false }), RemovalDeleteMachine},
		"Blind":         {"not knowing the pods is not having none", with(worker, func(d *NodeRemoval) { d.APIAnswers, d.HasNode = false, false }), RemovalWaitsForAPI},
		"BlindForced":   {"unless somebody gives up on them", with(worker, func(d *NodeRemoval) { d.APIAnswers, d.Forced = false, true }), RemovalDeleteMachine},
		"Expired":       {"a drain has an end where one is set", with(worker, func(d *NodeRemoval) { d.Cordoned, d.DrainExpired = true, true }), RemovalDeleteMachine},
		"Forced":        {"forced waits for no pod", with(worker, func(d *NodeRemoval) { d.Forced = true }), RemovalDeleteMachine},
		"Deleted":       {"nor does a Machine that somebody deleted", with(worker, func(d *NodeRemoval) { d.Deleted = true }), RemovalReleaseMachine},
		"Etcd":          {"a control plane leaves etcd before it goes", plane, RemovalLeaveEtcd},
		"Expel":         {"a dead one is taken out by another", with(plane, func(d *NodeRemoval) { d.MemberAnswers = false }), RemovalExpelMember},
		"Objection":     {"the majority comes before the drain", with(plane, func(d *NodeRemoval) { d.Cordoned, d.Objection = false, "no majority" }), RemovalBlocked},
		"ForcedEtcd":    {"forced gives up on the member", with(plane, func(d *NodeRemoval) { d.Forced, d.Objection = true, "no majority" }), RemovalDeleteMachine},
		"DeletedMember": {"a deleted one still leaves etcd", with(plane, func(d *NodeRemoval) { d.Deleted = true }), RemovalLeaveEtcd},
		"Disagree":      {"it goes when all members know that it has left", with(plane, func(d *NodeRemoval) { d.IsMember, d.MembersAgree = false, false }), RemovalWaitsForMembers},
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
