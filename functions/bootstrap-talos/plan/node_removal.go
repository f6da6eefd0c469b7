package plan

// NodeRemoval is what is known of a machine that leaves.
type NodeRemoval struct {
	// Deleted is whether its Machine is being deleted, and forced whether somebody
	// gave up on its drain and its etcd member.
	Deleted, Forced bool
	// APIAnswers is whether the workload API answers, and node whether that has a Node of
	// it, which may be ready and cordoned.
	APIAnswers, HasNode, Ready, Cordoned bool
	// Drained is whether its pods are gone, expired whether they have had the time
	// that the spec gives them, and overdue whether they have taken long without one.
	Drained, DrainExpired, DrainOverdue bool
	// IsMember is whether etcd has it, objection why it cannot be taken out of that, and
	// agreed whether all members of etcd have the same list.
	IsMember     bool
	Objection    string
	MembersAgree bool
	// MemberAnswers is whether its own member of etcd does.
	MemberAnswers bool
}

// RemovalStep is what is done next for a machine that leaves.
type RemovalStep string

const (
	RemovalBlocked         RemovalStep = "Object"
	RemovalWaitsForAPI     RemovalStep = "Blind"
	RemovalCordon          RemovalStep = "Cordon"
	RemovalDrain           RemovalStep = "Drain"
	RemovalLeaveEtcd       RemovalStep = "LeaveEtcd"
	RemovalExpelMember     RemovalStep = "Expel"
	RemovalWaitsForMembers RemovalStep = "Agree"
	RemovalDeleteMachine   RemovalStep = "Delete"
	RemovalReleaseMachine  RemovalStep = "Goes"
)

// Next decides the next step of a machine that leaves:
//
//	in etcd, and cannot be taken out       object
//	nothing is known of its pods           wait for the workload API
//	its pods can move, not cordoned        cordon
//	its pods can move, and are there       drain
//	in etcd, and answers                   leave etcd
//	in etcd, and is dead                   be expelled by another member
//	out of etcd, not in everybody's list   wait until all agree
//	otherwise                              delete the Machine, and wait until it is gone
//
// Pods of a node that is not Ready cannot end, so that nobody waits for those.
// What is forced or deleted already waits for nothing but its end.
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
		return RemovalExpelMember
	case !d.Forced && !d.MembersAgree:
		return RemovalWaitsForMembers
	case !d.Deleted:
		return RemovalDeleteMachine
	default:
		return RemovalReleaseMachine
	}
}

// nextForPods is the next step for its pods, empty where there is none.
func (d NodeRemoval) nextForPods() RemovalStep {
	switch {
	case d.Forced || d.Deleted:
		return ""
	case !d.APIAnswers:
		return RemovalWaitsForAPI
	case !d.HasNode || !d.Ready || d.DrainExpired:
		return ""
	case !d.Cordoned:
		return RemovalCordon
	case !d.Drained:
		return RemovalDrain
	default:
		return ""
	}
}
