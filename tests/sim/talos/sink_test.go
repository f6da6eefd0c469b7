package talos_test

import (
	"context"
	"net"
	"slices"
	"sync"
	"testing"

	eventsapi "github.com/siderolabs/siderolink/api/events"
	machineapi "github.com/siderolabs/talos/pkg/machinery/api/machine"
	"github.com/siderolabs/talos/pkg/machinery/config/machine"
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/peer"
	"google.golang.org/grpc/status"

	"github.com/vitistack/stack/tests/sim/talos"
)

// sink is an event sink that does not accept the first requests.
type sink struct {
	eventsapi.UnimplementedEventSinkServiceServer
	mu       sync.Mutex
	failures int
	from     []string
	ids      []string
	ready    bool
}

func (s *sink) Publish(ctx context.Context, in *eventsapi.EventRequest) (*eventsapi.EventResponse, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.failures > 0 {
		s.failures--
		return nil, status.Error(codes.Unavailable, "not yet")
	}
	from, _ := peer.FromContext(ctx)
	host, _, _ := net.SplitHostPort(from.Addr.String())
	s.from, s.ids = append(s.from, host), append(s.ids, in.Id)
	e := &machineapi.MachineStatusEvent{}
	if in.Data.MessageIs(e) && in.Data.UnmarshalTo(e) == nil && e.Status.Ready && e.Stage == machineapi.MachineStatusEvent_RUNNING {
		s.ready = true
	}
	return &eventsapi.EventResponse{}, nil
}

// TestEventSink has a machine send its events to a sink: from its own address, in order, each once, and again after an error.
func TestEventSink(t *testing.T) {
	t.Parallel()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	s, server := &sink{failures: 2}, grpc.NewServer()
	eventsapi.RegisterEventSinkServiceServer(server, s)
	go func() { _ = server.Serve(l) }()
	t.Cleanup(server.Stop)

	r := newRack(t, "v1.13.9", talos.Timing{})
	r.powerOn(2)
	r.apply(2, r.config(machine.TypeControlPlane, "apiVersion: v1alpha1\nkind: EventSinkConfig\nendpoint: "+l.Addr().String()+"\n"))
	r.bootstrap(r.up(2))
	r.eventually("the event of a ready machine", func(context.Context) error {
		s.mu.Lock()
		defer s.mu.Unlock()
		if !s.ready {
			return status.Errorf(codes.NotFound, "%d events", len(s.ids))
		}
		return nil
	})
	s.mu.Lock()
	defer s.mu.Unlock()
	if !slices.IsSorted(s.ids) || len(slices.Compact(slices.Clone(s.ids))) != len(s.ids) {
		t.Errorf("the events are not in order, or repeated after they were accepted: %v", s.ids)
	}
	if slices.ContainsFunc(s.from, func(host string) bool { return host != r.addr(2) }) {
		t.Errorf("events come from %v, want %s", s.from, r.addr(2))
	}
}
