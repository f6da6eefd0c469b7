package plan

import (
	"time"

	"github.com/vitistack/stack/apis/v1alpha1"
)

// BootstrapStep is what is done so that a cluster has an etcd.
type BootstrapStep string

const (
	BootstrapWait          BootstrapStep = "Wait"
	BootstrapChooseMachine BootstrapStep = "Choose"
	BootstrapAskMachine    BootstrapStep = "Ask"
	BootstrapDone          BootstrapStep = "Done"
)

// BootstrapState is what is known of a cluster whose etcd may not have begun.
type BootstrapState struct {
	// Chosen is whether somebody has been chosen to begin, and lost whether the disk
	// of that one is gone, so that what it may have begun has to be asked of others.
	Chosen, Lost bool
	// IsReady is whether the one that is chosen, or would be, has its configuration.
	IsReady bool
	// HasOtherMembers is whether another control plane has etcd, and silent are those that have
	// their configuration and do not say.
	HasOtherMembers bool
	Unanswered      []string
}

// Next decides how etcd begins. It begins once, on a machine that is written down
// before:
//
//	nobody is chosen              choose, once there is somebody
//	the chosen one is there       ask it, however often: it remembers
//	it is lost, others run etcd   it had begun: done
//	it is lost, somebody silent   wait: that one may have joined it
//	it is lost, nobody has etcd   choose again
func (b BootstrapState) Next() BootstrapStep {
	switch {
	case b.Chosen && !b.Lost:
		return Pick(b.IsReady, BootstrapAskMachine, BootstrapWait)
	case b.Lost && b.HasOtherMembers:
		return BootstrapDone
	case b.Lost && len(b.Unanswered) > 0:
		return BootstrapWait
	default:
		return Pick(b.IsReady, BootstrapChooseMachine, BootstrapWait)
	}
}

// Times after which a bootstrap request is sent again to a node that has not booted since.
// Each request begins the pull of etcd's image again, so that an accepted one is given
// the time of a slow pull.
const (
	acceptedTimeout   = 5 * time.Minute
	unansweredTimeout = 10 * time.Second
)

// EtcdService is the service etcd of a control plane.
type EtcdService struct {
	// State is Talos's word for it: Waiting, Preparing, Running and so on.
	State string
	// Empty is whether there is no data of etcd on the node. It is only known while the
	// service is Preparing: before that the disk may not be mounted.
	Empty bool
	// BootID is the node's boot ID.
	BootID string
}

// HasData reports whether the node has the data of an etcd.
func (s EtcdService) HasData() bool {
	return s.State == EtcdRunning || (s.State == EtcdPreparing && !s.Empty)
}

// States of the service etcd. One that waits for a bootstrap, for its image or for an etcd
// to join is Preparing.
const (
	EtcdRunning   = "Running"
	EtcdPreparing = "Preparing"
)

// RequestStep is what is done about the chosen machine.
type RequestStep string

const (
	RequestDone RequestStep = "Done"
	RequestSend RequestStep = "Send"
	RequestWait RequestStep = "Wait"
)

// NextBootstrapRequest decides whether the chosen machine is sent a bootstrap request:
//
//	has data of etcd                       done
//	etcd is not Preparing yet              wait
//	no request has been sent               send
//	it has booted since the last request   send: the request was in memory only
//	the last one has no answer in time     send: it may not have arrived, or not been sent
//	the last one was accepted long ago     send: it came to nothing
//	otherwise                              wait: another request begins the pull again
func NextBootstrapRequest(s EtcdService, last *v1alpha1.BootstrapRequest, now time.Time) RequestStep {
	switch {
	case s.HasData():
		return RequestDone
	case s.State != EtcdPreparing:
		return RequestWait
	case last == nil, last.BootID != s.BootID:
		return RequestSend
	case now.Sub(last.Time.Time) >= Pick(last.Accepted, acceptedTimeout, unansweredTimeout):
		return RequestSend
	default:
		return RequestWait
	}
}
