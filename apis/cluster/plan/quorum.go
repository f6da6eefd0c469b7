package plan

import (
	"errors"
	"fmt"
	"slices"
	"strings"

	"github.com/vitistack/stack/apis/usererror"
)

// EtcdMember is an entry of etcd's member list.
type EtcdMember struct {
	ID uint64
	// Name is empty until the member has started for the first time.
	Name string
	// PeerHost is the address at which the other members reach it.
	PeerHost string
	Learner  bool
}

// EtcdView is what the control planes of a cluster report about etcd.
type EtcdView struct {
	// Members is the list of the leader, if it answers, and otherwise that of another member.
	Members []EtcdMember
	// MemberIDs has the member list of each control plane that answers, and Leaders whether it is
	// the leader, by the names of the Machines.
	MemberIDs map[string][]uint64
	Leaders   map[string]bool
}

// Member returns the member of a Machine by its name, or by its address before it has started.
func (v EtcdView) Member(name, address string) (EtcdMember, bool) {
	i := slices.IndexFunc(v.Members, func(m EtcdMember) bool { return m.Name == name })
	if i < 0 && address != "" {
		i = slices.IndexFunc(v.Members, func(m EtcdMember) bool { return m.Name == "" && m.PeerHost == address })
	}
	if i < 0 {
		return EtcdMember{}, false
	}
	return v.Members[i], true
}

// IsAgreed reports whether all control planes that answer have the same member list.
func (v EtcdView) IsAgreed() bool {
	var ids []uint64
	for _, m := range v.Members {
		ids = append(ids, m.ID)
	}
	slices.Sort(ids)
	for _, list := range v.MemberIDs {
		if !slices.Equal(slices.Sorted(slices.Values(list)), ids) {
			return false
		}
	}
	return true
}

// countVoters returns the number of voting members, and how many of them answer.
func (v EtcdView) countVoters() (n, answering int) {
	for _, m := range v.Members {
		if m.Learner {
			continue
		}
		n++
		if _, ok := v.MemberIDs[m.Name]; ok {
			answering++
		}
	}
	return n, answering
}

// RemovalObjection returns why a member cannot leave etcd without the remaining members losing
// their majority, or an empty string if it can:
//
//	the last voter                                cannot
//	no majority answers now                       cannot: etcd accepts no change
//	a learner, or a member that does not answer   can: it does not count
//	the remaining that answer are a majority      can
func RemovalObjection(v EtcdView, m EtcdMember) string {
	voters, answering := v.countVoters()
	_, counted := v.MemberIDs[m.Name]
	switch {
	case answering <= voters/2:
		return fmt.Sprintf("%d of %d members of etcd answer, which is no majority: bring one back, or restore a backup", answering, voters)
	case m.Learner:
		return ""
	case voters == 1:
		return "it is the last member of etcd"
	case counted && answering-1 <= (voters-1)/2:
		return fmt.Sprintf("only %d of %d members of etcd answer, and its removal would lose the majority: recover another member first", answering, voters)
	default:
		return ""
	}
}

// OrphanedMembers returns the members whose Machine does not exist. A member without a name is
// about to join.
func OrphanedMembers(members []EtcdMember, exists func(name string) bool) []EtcdMember {
	return slices.DeleteFunc(slices.Clone(members), func(m EtcdMember) bool { return m.Name == "" || exists(m.Name) })
}

// Reasons for which a cluster has no etcd, or would lose it.
const (
	ReasonEtcdLost        = "EtcdLost"
	ReasonEtcdUnavailable = "EtcdUnavailable"
	ReasonQuorumAtRisk    = "QuorumAtRisk"
)

// QuorumState is what the control planes report about etcd while the workload API does not
// answer.
type QuorumState struct {
	// Wanted is the number of control planes that the cluster should have.
	Wanted int
	// Leaderless are the control planes whose member knows no leader, Silent the ones that do not
	// answer and may have data of etcd, and Empty the ones without data.
	Leaderless, Silent, Empty []string
	// HasLeader is whether a member knows a leader.
	HasLeader bool
}

// Check returns a UserError if etcd has lost its data or its majority for good:
//
//	no node has a configuration                     not known
//	a member knows a leader                         no: only the API does not answer
//	no control plane has data                       EtcdLost
//	a majority has or may have data                 no: it may come back
//	a member runs without a leader                  EtcdUnavailable
func (e QuorumState) Check() error {
	left := len(e.Leaderless) + len(e.Silent)
	switch {
	case e.HasLeader || left+len(e.Empty) == 0:
		return nil
	case left == 0:
		return usererror.Error{Reason: ReasonEtcdLost, Message: "no control plane has the data of etcd any more: restore a snapshot as functions/etcd-backup/README.md says, or delete the cluster and create it again"}
	case len(e.Leaderless) == 0 || left > e.Wanted/2:
		return nil
	default:
		return usererror.Error{Reason: ReasonEtcdUnavailable, Message: fmt.Sprintf(
			"%d of %d members of etcd left (%s), which is no majority: restore its data as functions/etcd-backup/README.md says under \"When a minority is left\", or delete the cluster and create it again",
			left, e.Wanted, strings.Join(slices.Sorted(slices.Values(append(e.Leaderless, e.Silent...))), ", "))}
	}
}

// IsQuorumLost reports whether an error is one of Check.
func IsQuorumLost(err error) bool {
	var problem usererror.Error
	return errors.As(err, &problem) && (problem.Reason == ReasonEtcdLost || problem.Reason == ReasonEtcdUnavailable)
}

// UnhealthyMember returns the first of the wanted names that is no voting member of etcd or does
// not answer, or an empty string.
func UnhealthyMember(v EtcdView, wanted []string) string {
	for _, name := range wanted {
		m, ok := v.Member(name, "")
		if _, answers := v.MemberIDs[name]; !ok || m.Learner || !answers {
			return name
		}
	}
	return ""
}
