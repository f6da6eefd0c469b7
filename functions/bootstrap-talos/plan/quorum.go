package plan

import (
	"errors"
	"fmt"
	"slices"
	"strings"

	"github.com/vitistack/stack/functions/internal/reconcile"
)

// EtcdMember is one entry of etcd's member list.
type EtcdMember struct {
	Id uint64
	// Name is empty until the member has started for the first time.
	Name string
	// PeerHost is the address at which other members reach it.
	PeerHost string
	Learner  bool
}

// EtcdView is what the control planes of a cluster say of its etcd.
type EtcdView struct {
	// Members is the list that the leader has.
	Members []EtcdMember
	// MemberIDs are the members' IDs as each control plane that answers has them, and
	// leads tells which of them leads, by the names of their Machines.
	MemberIDs map[string][]uint64
	Leaders   map[string]bool
}

// Member is the member of a machine, by its name or, before it has started, its
// address.
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

// IsAgreed tells whether all control planes that answer have the same list.
func (v EtcdView) IsAgreed() bool {
	var ids []uint64
	for _, m := range v.Members {
		ids = append(ids, m.Id)
	}
	slices.Sort(ids)
	for _, list := range v.MemberIDs {
		if !slices.Equal(slices.Sorted(slices.Values(list)), ids) {
			return false
		}
	}
	return true
}

// countVoters counts the members that vote, and those of them that answer.
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

// RemovalObjection decides whether a member can be taken out of etcd without those that
// remain losing their majority. It returns why not, or nothing.
//
//	the last voter                                 never
//	no majority answers now                        no: etcd takes no change
//	a learner, or one that does not answer         yes: nobody counts on it
//	those that remain and answer are a majority    yes
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
		return fmt.Sprintf("only %d of %d members of etcd answer, and without it no majority would: bring one back first", answering, voters)
	default:
		return ""
	}
}

// OrphanedMembers are members that no machine stands behind. One without a name is about
// to join.
func OrphanedMembers(members []EtcdMember, exists func(name string) bool) []EtcdMember {
	return slices.DeleteFunc(slices.Clone(members), func(m EtcdMember) bool { return m.Name == "" || exists(m.Name) })
}

// Reasons for which a cluster has no etcd, or soon would have none.
const (
	ReasonEtcdLost        = "EtcdLost"
	ReasonEtcdUnavailable = "EtcdUnavailable"
	ReasonQuorumAtRisk    = "QuorumAtRisk"
)

// QuorumState is what the control planes of a cluster whose API does not answer say about
// etcd, each by its name.
type QuorumState struct {
	// Wanted is how many control planes the cluster has when all are there.
	Wanted int
	// leaderless run etcd, and know no leader; silent may have its data and do not say;
	// empty have none.
	Leaderless, Silent, Empty []string
	// HasLeader is whether a member knows a leader.
	HasLeader bool
}

// Check decides whether etcd has come to an end, and what a user has to do:
//
//	nobody has a configuration              not known
//	a member knows a leader                 no: only the API does not answer
//	every control plane says it has no data yes: it is lost
//	those that may have data are a majority no: they may come back
//	a member runs without a leader          yes: it has no majority and cannot get one
func (e QuorumState) Check() error {
	left := len(e.Leaderless) + len(e.Silent)
	switch {
	case e.HasLeader || left+len(e.Empty) == 0:
		return nil
	case left == 0:
		return reconcile.UserError{Reason: ReasonEtcdLost, Message: "no control plane has the data of etcd any more: restore a snapshot as functions/etcd-backup/README.md says, or delete the cluster and create it again"}
	case len(e.Leaderless) == 0 || left > e.Wanted/2:
		return nil
	default:
		return reconcile.UserError{Reason: ReasonEtcdUnavailable, Message: fmt.Sprintf(
			"%d of %d members of etcd left (%s), which is no majority: restore its data as functions/etcd-backup/README.md says under \"When a minority is left\", or delete the cluster and create it again",
			left, e.Wanted, strings.Join(slices.Sorted(slices.Values(append(e.Leaderless, e.Silent...))), ", "))}
	}
}

// IsQuorumLost reports whether an error says that etcd has come to an end.
func IsQuorumLost(err error) bool {
	var flt reconcile.UserError
	return errors.As(err, &flt) && (flt.Reason == ReasonEtcdLost || flt.Reason == ReasonEtcdUnavailable)
}

// UnhealthyMember is the first of the wanted members of etcd that is none, does not vote,
// or does not answer.
func UnhealthyMember(v EtcdView, wanted []string) string {
	for _, name := range wanted {
		m, ok := v.Member(name, "")
		if _, answers := v.MemberIDs[name]; !ok || m.Learner || !answers {
			return name
		}
	}
	return ""
}
