package etcd_test

import (
	"errors"
	"testing"

	"github.com/vitistack/stack/tests/sim/talos/internal/etcd"
)

func cluster(voters ...uint64) *etcd.Cluster {
	c := &etcd.Cluster{ID: 1, Leader: voters[0], Term: 1}
	for _, id := range voters {
		c.Members = append(c.Members, etcd.Member{ID: id, Name: "m", PeerURL: string(rune('a' + id))})
	}
	return c
}

func live(ids ...uint64) etcd.Live {
	l := etcd.Live{}
	for _, id := range ids {
		l[id] = true
	}
	return l
}

func TestMembershipChanges(t *testing.T) {
	t.Parallel()
	add := func(id uint64) func(*etcd.Cluster, etcd.Live) error {
		return func(c *etcd.Cluster, l etcd.Live) error { return c.Add(id, "new", l) }
	}
	remove := func(id uint64) func(*etcd.Cluster, etcd.Live) error {
		return func(c *etcd.Cluster, l etcd.Live) error { return c.Remove(id, l) }
	}
	cases := map[string]struct {
		reason  string
		cluster *etcd.Cluster
		live    etcd.Live
		change  func(*etcd.Cluster, etcd.Live) error
		want    error
	}{
		"AddToOne":            {"a healthy member accepts a second one", cluster(1), live(1), add(9), nil},
		"AddToThree":          {"three healthy members accept a fourth", cluster(1, 2, 3), live(1, 2, 3), add(9), nil},
		"AddWithOneDown":      {"2 of 3 would not be a majority of 4", cluster(1, 2, 3), live(1, 2), add(9), etcd.ErrUnhealthy},
		"AddToFiveOneDown":    {"4 of 5 are a majority of 6", cluster(1, 2, 3, 4, 5), live(1, 2, 3, 4), add(9), nil},
		"AddWithoutQuorum":    {"a minority cannot add", cluster(1, 2, 3), live(1), add(9), etcd.ErrNoLeader},
		"RemoveRunningOf3":    {"two running members remain", cluster(1, 2, 3), live(1, 2, 3), remove(3), nil},
		"RemoveDeadOf3":       {"a dead member may always be removed while the others have quorum", cluster(1, 2, 3), live(1, 2), remove(3), nil},
		"RemoveRunningDead":   {"the removal of a running member must leave a running majority", cluster(1, 2, 3), live(1, 2), remove(2), etcd.ErrUnhealthy},
		"RemoveDeadOf2":       {"1 of 2 has no quorum", cluster(1, 2), live(1), remove(2), etcd.ErrNoLeader},
		"RemoveOf2":           {"one of two healthy members may leave", cluster(1, 2), live(1, 2), remove(1), nil},
		"RemoveLast":          {"the last voter cannot leave", cluster(1), live(1), remove(1), etcd.ErrNotEnoughStarted},
		"RemoveUnknown":       {"the ID belongs to no member", cluster(1, 2, 3), live(1, 2, 3), remove(7), etcd.ErrMemberNotFound},
		"RemoveWithoutQuorum": {"a minority cannot remove", cluster(1, 2, 3), live(1), remove(3), etcd.ErrNoLeader},
	}
	for name, tc := range cases {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			if err := tc.change(tc.cluster, tc.live); !errors.Is(err, tc.want) {
				t.Errorf("%s: got %v, want %v", tc.reason, err, tc.want)
			}
		})
	}
}

func TestJoin(t *testing.T) {
	t.Parallel()
	c := cluster(1)
	if err := c.Add(2, "p2", live(1)); err != nil {
		t.Fatal(err)
	}
	if m, _ := c.Member(2); m.Started() || !m.Learner {
		t.Errorf("a joining member must be a learner without a name, got %+v", m)
	}
	if err := c.Add(3, "p3", live(1)); !errors.Is(err, etcd.ErrTooManyLearners) {
		t.Errorf("a second learner: got %v", err)
	}
	if err := c.Add(3, "p2", live(1)); !errors.Is(err, etcd.ErrPeerURLExists) {
		t.Errorf("a second member at one address: got %v", err)
	}
	if err := c.Promote(2, live(1, 2)); !errors.Is(err, etcd.ErrLearnerNotReady) {
		t.Errorf("promotion before the start: got %v", err)
	}
	if err := c.Start(2, "two", "c2"); err != nil {
		t.Fatal(err)
	}
	if !c.Quorum(live(1)) {
		t.Error("a learner must not count for quorum")
	}
	if err := c.Promote(2, live(1, 2)); err != nil {
		t.Fatal(err)
	}
	if c.Quorum(live(1)) {
		t.Error("one of two voters must not be a quorum")
	}
}

func TestLeader(t *testing.T) {
	t.Parallel()
	c := cluster(1, 2, 3)
	name, err := c.Forfeit(1, live(1, 2, 3))
	if err != nil || name != "m" || c.Leader != 2 {
		t.Errorf("forfeit by the leader: got %q, %v, leader %d", name, err, c.Leader)
	}
	if name, err := c.Forfeit(1, live(1, 2, 3)); name != "" || err != nil {
		t.Errorf("forfeit by a follower must do nothing, got %q, %v", name, err)
	}
	if !c.Elect(live(1, 3)) || c.Leader != 1 {
		t.Errorf("a dead leader must be replaced, got %d", c.Leader)
	}
	if c.Elect(live(1, 3)) {
		t.Error("a running leader must stay")
	}
	if !c.Elect(live(1)) || c.Leader != 0 {
		t.Errorf("a minority must have no leader, got %d", c.Leader)
	}
	if _, err := cluster(1).Forfeit(1, live(1)); !errors.Is(err, etcd.ErrLeadershipOnlyMember) {
		t.Errorf("forfeit by the only member: got %v", err)
	}
}
