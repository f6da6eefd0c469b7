// Package etcd is a model of etcd's membership: the members, the leader, and which changes a real
// cluster accepts while some members are down. It stores no keys and has no clock.
package etcd

import (
	"errors"
	"slices"
)

// The errors have the texts of a real etcd, because users search for them.
var (
	ErrNoLeader             = errors.New("etcdserver: no leader")
	ErrUnhealthy            = errors.New("etcdserver: unhealthy cluster")
	ErrNotEnoughStarted     = errors.New("etcdserver: re-configuration failed due to not enough started members")
	ErrTooManyLearners      = errors.New("etcdserver: too many learner members in cluster")
	ErrMemberNotFound       = errors.New("etcdserver: member not found")
	ErrPeerURLExists        = errors.New("etcdserver: Peer URLs already exists")
	ErrLearnerNotReady      = errors.New("etcdserver: can only promote a learner member which is in sync with leader")
	ErrMemberNotLearner     = errors.New("etcdserver: can only promote a learner member")
	ErrLeadershipOnlyMember = errors.New("cannot forfeit leadership, only one member")
)

// Member is one entry of the member list.
type Member struct {
	ID uint64 `json:"id"`
	// Name is empty until the member has started for the first time.
	Name      string `json:"name,omitempty"`
	PeerURL   string `json:"peerURL"`
	ClientURL string `json:"clientURL,omitempty"`
	Learner   bool   `json:"learner,omitempty"`
}

// Started reports whether the member has ever joined.
func (m Member) Started() bool { return m.Name != "" }

// Cluster is one etcd cluster. The zero Cluster has no members. Its methods need the IDs of the
// running members, and are not safe for concurrent use.
type Cluster struct {
	ID      uint64   `json:"id"`
	Members []Member `json:"members"`
	// Leader is the ID of the leader, or 0 without one.
	Leader uint64 `json:"leader,omitempty"`
	Term   uint64 `json:"term"`
	// Index counts changes, as raft's index does.
	Index uint64 `json:"index"`
}

// Live is the set of members that run and are connected.
type Live map[uint64]bool

// Member returns the member with an ID.
func (c *Cluster) Member(id uint64) (Member, bool) {
	i := c.find(id)
	if i < 0 {
		return Member{}, false
	}
	return c.Members[i], true
}

// Quorum reports whether the running voters are a majority.
func (c *Cluster) Quorum(live Live) bool {
	voters := c.voters()
	return len(voters) > 0 && active(voters, live) > len(voters)/2
}

// Elect selects the leader: none without quorum, the present leader while it runs, or otherwise the
// first running voter. It reports whether the leader changed.
func (c *Cluster) Elect(live Live) bool {
	leader := c.Leader
	switch m, ok := c.Member(leader); {
	case !c.Quorum(live):
		leader = 0
	case !ok || m.Learner || !live[leader]:
		leader = c.firstVoter(live)
	}
	if leader == c.Leader {
		return false
	}
	c.Leader = leader
	c.Term++
	return true
}

// Add adds a learner without a name. It returns an error while another member is a learner, and,
// except in a cluster of one, if the running members would not be a majority with one more voter.
func (c *Cluster) Add(id uint64, peerURL string, live Live) error {
	if !c.Quorum(live) {
		return ErrNoLeader
	}
	for _, m := range c.Members {
		if m.PeerURL == peerURL {
			return ErrPeerURLExists
		}
	}
	if slices.ContainsFunc(c.Members, func(m Member) bool { return m.Learner }) {
		return ErrTooManyLearners
	}
	voters := c.voters()
	if len(voters) > 1 && active(voters, live) < (len(voters)+1)/2+1 {
		return ErrUnhealthy
	}
	c.Members = append(c.Members, Member{ID: id, PeerURL: peerURL, Learner: true})
	c.Index++
	return nil
}

// Start records the name of a running member, at its first start and after each change of its host's
// name.
func (c *Cluster) Start(id uint64, name, clientURL string) error {
	i := c.find(id)
	if i < 0 {
		return ErrMemberNotFound
	}
	if c.Members[i].Name != name || c.Members[i].ClientURL != clientURL {
		c.Members[i].Name, c.Members[i].ClientURL = name, clientURL
		c.Index++
	}
	return nil
}

// Promote makes a running learner a voter.
func (c *Cluster) Promote(id uint64, live Live) error {
	i := c.find(id)
	switch {
	case i < 0:
		return ErrMemberNotFound
	case !c.Members[i].Learner:
		return ErrMemberNotLearner
	case !c.Quorum(live):
		return ErrNoLeader
	case !c.Members[i].Started() || !live[id]:
		return ErrLearnerNotReady
	}
	c.Members[i].Learner = false
	c.Index++
	return nil
}

// Remove removes a member. A running voter may be removed only if the remaining running members are a
// majority. The last voter cannot be removed.
func (c *Cluster) Remove(id uint64, live Live) error {
	i := c.find(id)
	switch {
	case !c.Quorum(live):
		return ErrNoLeader
	case i < 0:
		return ErrMemberNotFound
	case !c.Members[i].Learner:
		if err := c.mayRemoveVoter(id, live); err != nil {
			return err
		}
	}
	c.Members = slices.Delete(c.Members, i, i+1)
	c.Index++
	if c.Leader == id {
		c.Elect(live)
	}
	return nil
}

// Forfeit moves the leadership from a member to the next running voter, and returns that voter's name.
// It returns "" if the member is not the leader.
func (c *Cluster) Forfeit(id uint64, live Live) (string, error) {
	switch {
	case !c.Quorum(live):
		return "", ErrNoLeader
	case len(c.Members) == 1:
		return "", ErrLeadershipOnlyMember
	case c.Leader != id:
		return "", nil
	}
	for _, m := range c.voters() {
		if m.ID != id && live[m.ID] {
			c.Leader = m.ID
			c.Term++
			return m.Name, nil
		}
	}
	return "", ErrUnhealthy
}

func (c *Cluster) mayRemoveVoter(id uint64, live Live) error {
	remaining := slices.DeleteFunc(c.voters(), func(m Member) bool { return m.ID == id })
	started := 0
	for _, m := range remaining {
		if m.Started() {
			started++
		}
	}
	switch majority := len(remaining)/2 + 1; {
	case started < majority:
		return ErrNotEnoughStarted
	case live[id] && active(remaining, live) < majority:
		return ErrUnhealthy
	}
	return nil
}

func (c *Cluster) find(id uint64) int {
	return slices.IndexFunc(c.Members, func(m Member) bool { return m.ID == id })
}

func (c *Cluster) voters() []Member {
	return slices.DeleteFunc(slices.Clone(c.Members), func(m Member) bool { return m.Learner })
}

func (c *Cluster) firstVoter(live Live) uint64 {
	for _, m := range c.voters() {
		if live[m.ID] {
			return m.ID
		}
	}
	return 0
}

func active(members []Member, live Live) int {
	n := 0
	for _, m := range members {
		if live[m.ID] {
			n++
		}
	}
	return n
}
