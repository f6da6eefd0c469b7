package plan

import (
	"errors"
	"testing"

	"github.com/vitistack/stack/apis/usererror"
)

func TestRemovalObjection(t *testing.T) {
	t.Parallel()
	// view returns an etcd with the members a, b, and so on. The named members answer.
	view := func(n int, answer ...string) EtcdView {
		v := EtcdView{MemberIDs: map[string][]uint64{}}
		for i := range n {
			v.Members = append(v.Members, EtcdMember{ID: uint64(i + 1), Name: string(rune('a' + i))})
		}
		for _, name := range answer {
			v.MemberIDs[name] = nil
		}
		return v
	}
	learning := view(2, "a")
	learning.Members[1].Learner = true
	cases := map[string]struct {
		reason string
		v      EtcdView
		leaves string
		may    bool
	}{
		"Last":       {"the data of etcd would be lost", view(1, "a"), "a", false},
		"OneOfTwo":   {"the remaining member is a majority", view(2, "a", "b"), "b", true},
		"OneOfThree": {"two of the two remaining members answer", view(3, "a", "b", "c"), "c", true},
		"Dead":       {"a dead member does not count for the majority", view(3, "a", "b"), "c", true},
		"AliveOfTwo": {"only one of the two remaining members would answer", view(3, "a", "b"), "b", false},
		"NoMajority": {"etcd without a majority accepts no change", view(3, "a"), "c", false},
		"OfFive":     {"three of the four remaining members answer", view(5, "a", "b", "c", "d"), "d", true},
		"OfFiveTwo":  {"only two of the four remaining members would answer", view(5, "a", "b", "c"), "c", false},
		"DeadOfTwo":  {"one of two is no majority", view(2, "a"), "b", false},
		"Learner":    {"a learner does not vote", learning, "b", true},
	}
	for name, tc := range cases {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			m, _ := tc.v.Member(tc.leaves, "")
			if why := RemovalObjection(tc.v, m); (why == "") != tc.may {
				t.Errorf("%s: got objection %q, want it allowed: %t", tc.reason, why, tc.may)
			}
		})
	}
}

func TestEtcdView(t *testing.T) {
	t.Parallel()
	joining := EtcdMember{ID: 3, PeerHost: "192.0.2.3"}
	v := EtcdView{Members: []EtcdMember{{ID: 1, Name: "a"}, {ID: 2, Name: "gone"}, joining}, MemberIDs: map[string][]uint64{"a": {1, 2, 3}}}
	if got := OrphanedMembers(v.Members, func(name string) bool { return name == "a" }); len(got) != 1 || got[0].ID != 2 {
		t.Errorf("a member without a name is about to join and must stay, but orphaned are %v", got)
	}
	if m, ok := v.Member("new", "192.0.2.3"); !ok || m.ID != 3 {
		t.Errorf("a member without a name is identified by its address: got %v", m)
	}
	for want, wanted := range map[string][]string{"": {"a"}, "b": {"a", "b"}, "gone": {"gone"}} {
		if got := UnhealthyMember(v, wanted); got != want {
			t.Errorf("of %v, %q is unhealthy, want %q", wanted, got, want)
		}
	}
	if !v.IsAgreed() {
		t.Error("one list agrees with itself")
	}
	v.MemberIDs["b"] = []uint64{1, 3}
	if v.IsAgreed() {
		t.Error("different lists must not agree")
	}
}

// TestQuorumState decides when etcd is lost or unavailable.
func TestQuorumState(t *testing.T) {
	t.Parallel()
	one, two := []string{"a"}, []string{"a", "b"}
	for name, tc := range map[string]struct {
		reason string
		e      QuorumState
		want   string
	}{
		"NotConfigured": {"no control plane has a configuration", QuorumState{Wanted: 3}, ""},
		"Leads":         {"only the API does not answer", QuorumState{Wanted: 3, HasLeader: true, Empty: two}, ""},
		"Empty":         {"no control plane has its data", QuorumState{Wanted: 3, Empty: two}, ReasonEtcdLost},
		"Silent":        {"a silent member may have the data", QuorumState{Wanted: 1, Silent: one}, ""},
		"MayCome":       {"two of three may become a majority", QuorumState{Wanted: 3, Leaderless: one, Silent: one}, ""},
		"Minority":      {"one of three is never a majority", QuorumState{Wanted: 3, Leaderless: one, Empty: two}, ReasonEtcdUnavailable},
		"Starts":        {"no member has reported a missing leader", QuorumState{Wanted: 3, Silent: one, Empty: two}, ""},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			var got usererror.Error
			if _ = errors.As(tc.e.Check(), &got); got.Reason != tc.want {
				t.Errorf("%s: got %q, want %q", tc.reason, got.Reason, tc.want)
			}
		})
	}
}
