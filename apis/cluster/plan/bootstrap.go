package plan

import (
	"time"

	"github.com/vitistack/stack/apis/v1alpha1"
)

// BootstrapStep is what is done so that a cluster has an etcd.
type BootstrapStep string

// Steps of a bootstrap.
const (
	BootstrapWait          BootstrapStep = "Wait"
	BootstrapChooseMachine BootstrapStep = "Choose"
	BootstrapAskMachine    BootstrapStep = "Ask"
	BootstrapDone          BootstrapStep = "Done"
)

// BootstrapState is what is known of a cluster whose etcd may not be bootstrapped.
type BootstrapState struct {
	// Chosen is whether a machine has been chosen, and Lost whether its disk is gone, so that the
	// other control planes have to be asked whether it was bootstrapped.
	Chosen, Lost bool
	// IsReady is whether the machine that is chosen, or would be, has its configuration.
	IsReady bool
	// HasOtherMembers is whether another control plane has data of etcd, and Unanswered are the
	// configured ones that do not answer.
	HasOtherMembers bool
	Unanswered      []string
}

// Next decides how etcd is bootstrapped. That happens once, on a machine that is recorded first:
//
//	no machine is chosen                    choose one, once one is ready
//	the chosen machine exists               ask it, as often as needed
//	it is lost, others run etcd             done: it was bootstrapped
//	it is lost, another does not answer     wait: the other may have joined it
//	it is lost, none has etcd               choose again
func (b BootstrapState) Next() BootstrapStep {
	switch {
	case b.Chosen && !b.Lost && b.IsReady:
		return BootstrapAskMachine
	case b.Chosen && !b.Lost:
		return BootstrapWait
	case b.Lost && b.HasOtherMembers:
		return BootstrapDone
	case b.Lost && len(b.Unanswered) > 0:
		return BootstrapWait
	case b.IsReady:
		return BootstrapChooseMachine
	default:
		return BootstrapWait
	}
}

// Times after which a bootstrap request is repeated to a node that has not booted since. Each
// request restarts the pull of etcd's image, so an accepted one gets the time of a slow pull.
const (
	acceptedTimeout   = 5 * time.Minute
	unansweredTimeout = 10 * time.Second
)

// EtcdService is the Talos service etcd of a control plane.
type EtcdService struct {
	// State is the state of the service: Waiting, Preparing, Running and so on.
	State string
	// Empty is whether the node has no data of etcd. It is only known while the service is
	// Preparing: before that the disk may not be mounted.
	Empty bool
	// BootID changes with each boot.
	BootID string
}

// HasData reports whether the node has data of etcd.
func (s EtcdService) HasData() bool {
	return s.State == EtcdRunning || (s.State == EtcdPreparing && !s.Empty)
}

// States of the service etcd. It is Preparing while it waits for a bootstrap, for its image or for
// an etcd to join.
const (
	EtcdRunning   = "Running"
	EtcdPreparing = "Preparing"
)

// RequestStep is what is done about a bootstrap request.
type RequestStep string

// Steps of a bootstrap request.
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
//	has booted since the last request      send: Talos keeps a request in memory only
//	the last one is not answered in time   send: it may be lost
//	the last one was accepted long ago     send: it has failed
//	otherwise                              wait: a request restarts the image pull
func NextBootstrapRequest(s EtcdService, last *v1alpha1.BootstrapRequest, now time.Time) RequestStep {
	switch {
	case s.HasData():
		return RequestDone
	case s.State != EtcdPreparing:
		return RequestWait
	case last == nil, last.BootID != s.BootID:
		return RequestSend
	}
	timeout := unansweredTimeout
	if last.Accepted {
		timeout = acceptedTimeout
	}
	if now.Sub(last.Time.Time) >= timeout {
		return RequestSend
	}
	return RequestWait
}
