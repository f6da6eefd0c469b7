package nodeevents

import (
	"context"

	eventsapi "github.com/siderolabs/siderolink/api/events"
	"github.com/siderolabs/talos/pkg/machinery/api/machine"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/peer"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/types/known/anypb"
)

// Outcomes of an event.
const (
	outcomeAccepted = "accepted"
	// outcomeIrrelevant is for events that change nothing of what bootstrap-talos waits for.
	outcomeIrrelevant = "irrelevant"
	// outcomeInvalid is for events that cannot be decoded.
	outcomeInvalid = "invalid"
	// outcomeUnknown is for events from an address whose Machine is gone.
	outcomeUnknown = "unknown_address"
)

// EventOutcomes are all outcomes of events, for counters that exist from the start.
var EventOutcomes = []string{outcomeAccepted, outcomeIrrelevant, outcomeInvalid, outcomeUnknown}

// relevance is what an event says of a node.
type relevance int

const (
	irrelevant relevance = iota
	invalid
	// serviceChanged is for a service that bootstrap-talos waits for in a cluster that is not Ready.
	serviceChanged
	// machineChanged is for the stage of the machine, whether it is ready, or what it waits for.
	machineChanged
)

// Publish receives an event of a node. It accepts each event of a known address, whatever it contains, because machined sends an event again
// until it is accepted, and pauses longer after each error: an error would hold up all later events. An address that sends too much
// waits for its answers.
func (s *Server) Publish(ctx context.Context, in *eventsapi.EventRequest) (*eventsapi.EventResponse, error) {
	from, ok := peer.FromContext(ctx)
	if !ok {
		return nil, status.Error(codes.Internal, "the connection has no address")
	}
	n := s.nodes.find(addressOf(from.Addr))
	if n == nil {
		s.Metrics.NodeEvent(outcomeUnknown)
		return nil, status.Error(codes.Unavailable, "no Machine of a cluster has this address")
	}
	if err := n.limit.Wait(ctx); err != nil {
		return nil, status.Error(codes.Canceled, "the request has ended")
	}
	s.Metrics.NodeEvent(s.accept(n, relevanceOf(in.GetData())))
	return &eventsapi.EventResponse{}, nil
}

// accept requests a reconcile of the clusters for which an event of their node matters, and returns its outcome.
func (s *Server) accept(n *node, r relevance) string {
	if r == invalid {
		return outcomeInvalid
	}
	outcome := outcomeIrrelevant
	for _, o := range n.clusters {
		if r == machineChanged || r == serviceChanged && !o.Readiness.Ready {
			s.windows.add(o)
			outcome = outcomeAccepted
		}
	}
	return outcome
}

// relevanceOf decides what an event says:
//
//	MachineStatusEvent                                 the machine has changed
//	ServiceStateEvent of apid, etcd or the kubelet     the service has changed, if it is pulled, runs, has ended or has failed
//	ServiceStateEvent of another service or state      irrelevant
//	sequences, phases, tasks, addresses, others        irrelevant
func relevanceOf(event *anypb.Any) relevance {
	switch event.MessageName() {
	case (*machine.MachineStatusEvent)(nil).ProtoReflect().Descriptor().FullName():
		return machineChanged
	case (*machine.ServiceStateEvent)(nil).ProtoReflect().Descriptor().FullName():
		var e machine.ServiceStateEvent
		if err := proto.Unmarshal(event.GetValue(), &e); err != nil {
			return invalid
		}
		return relevanceOfService(e.GetService(), e.GetAction())
	default:
		return irrelevant
	}
}

func relevanceOfService(service string, action machine.ServiceStateEvent_Action) relevance {
	switch service {
	case "apid", "etcd", "kubelet":
	default:
		return irrelevant
	}
	switch action {
	case machine.ServiceStateEvent_PREPARING, machine.ServiceStateEvent_RUNNING, machine.ServiceStateEvent_FINISHED, machine.ServiceStateEvent_FAILED:
		return serviceChanged
	default:
		return irrelevant
	}
}
