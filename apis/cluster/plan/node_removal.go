package plan

import "github.com/vitistack/stack/apis/v1alpha1"

// NodeRemoval is what is known of a machine that is being removed.
type NodeRemoval struct {
	// Deleted is whether the Machine is being deleted, and Forced whether it is annotated with
	// vitistack.io/force=true, which skips the drain and etcd.
	Deleted, Forced bool
	// APIAnswers is whether the workload API answers, and HasNode whether it has a Node of the
	// machine, which may be Ready and Cordoned.
	APIAnswers, HasNode, Ready, Cordoned bool
	// Drained is whether no pod is left to evict, and DrainExpired whether the pool has a drainTimeout
	// that is over. The drain of a pool without one is not skipped after DefaultDrainTimeout, but fails.
	Drained, DrainExpired bool
	// IsMember is whether it is a member of etcd, Objection why it cannot leave etcd, and
	// MembersAgree whether all members of etcd have the same member list.
	IsMember     bool
	Objection    string
	MembersAgree bool
	// MemberAnswers is whether its own member of etcd answers.
	MemberAnswers bool
}

// RemovalStep is the next step of a removal.
type RemovalStep string

// Steps of a removal, in their order.
const (
	RemovalBlocked         RemovalStep = "Blocked"
	RemovalWaitsForAPI     RemovalStep = "WaitForAPI"
	RemovalCordon          RemovalStep = "Cordon"
	RemovalDrain           RemovalStep = "Drain"
	RemovalLeaveEtcd       RemovalStep = "LeaveEtcd"
	RemovalRemoveMember    RemovalStep = "RemoveMember"
	RemovalWaitsForMembers RemovalStep = "WaitForMembers"
	RemovalDeleteMachine   RemovalStep = "DeleteMachine"
	RemovalReleaseMachine  RemovalStep = "ReleaseMachine"
)

// Next decides the next step of a removal:
//
//	member of etcd that cannot leave             blocked
//	workload API does not answer                 wait for it
//	Node is Ready and not cordoned               cordon
//	Node is Ready and has pods to evict          drain, until the drainTimeout is over
//	member of etcd that answers                  leave etcd
//	member of etcd that does not                 another member removes it
//	no member, and still in a member list        wait until all members agree
//	otherwise                                    delete the Machine, and release it
//
// A node that is not Ready is not drained, because its pods cannot terminate. A Machine that is
// forced or being deleted is not drained either.
func (d NodeRemoval) Next() RemovalStep {
	inEtcd := d.IsMember && !d.Forced
	pods := d.nextForPods()
	switch {
	case inEtcd && d.Objection != "":
		return RemovalBlocked
	case pods != "":
		return pods
	case inEtcd && d.MemberAnswers:
		return RemovalLeaveEtcd
	case inEtcd:
		return RemovalRemoveMember
	case !d.Forced && !d.MembersAgree:
		return RemovalWaitsForMembers
	case !d.Deleted:
		return RemovalDeleteMachine
	default:
		return RemovalReleaseMachine
	}
}

// nextForPods returns the next step of the drain, or an empty string.
func (d NodeRemoval) nextForPods() RemovalStep {
	switch {
	case d.Forced || d.Deleted:
		return ""
	case !d.APIAnswers:
		return RemovalWaitsForAPI
	case !d.HasNode || !d.Ready:
		return ""
	case !d.Cordoned:
		return RemovalCordon
	case !d.Drained && !d.DrainExpired:
		return RemovalDrain
	default:
		return ""
	}
}

// IsLeftOfEarlier reports whether the Node of a Machine's name is left of an earlier Machine of that name: it was registered before the
// Machine was created, and the Machine has not joined. A kubelet can register before the status of its Machine says that the virtual machine exists,
// and does not register again, so that its Node must not be deleted.
func IsLeftOfEarlier(n Node, m *v1alpha1.Machine) bool {
	return n.Created.Before(m.CreationTimestamp.Time) && !MayHaveJoined(m)
}

// IsTakenOver reports whether a Machine has taken over the Node of an earlier Machine of its name, which was cordoned
// for its removal.
func IsTakenOver(n Node, m *v1alpha1.Machine) bool {
	removed := n.Annotations[v1alpha1.AnnotationRemoving]
	return removed != "" && removed != string(m.UID) && !IsLeaving(m)
}
