// Package nodeevents receives the events that Talos sends to the endpoint of its document EventSinkConfig, and requests a reconcile of the
// cluster of the node. Talos sends them without TLS and credentials, so an event is only a hint: the address that it comes from names the
// cluster, and nothing of its content leaves this package.
package nodeevents

import (
	"context"
	"fmt"
	"log/slog"
	"net"
	"sync"
	"time"

	eventsapi "github.com/siderolabs/siderolink/api/events"
	"google.golang.org/grpc"
	"google.golang.org/grpc/keepalive"

	"github.com/vitistack/stack/events"
	"github.com/vitistack/stack/gateway/internal/inventory"
)

// Limits of connections. machined has one connection and one request at a time. It sends all stored events in the first seconds, and then a
// few in a minute.
const (
	maxConnections           = 4096
	maxConnectionsPerAddress = 2
	maxStreams               = 2
	maxMessageBytes          = 128 << 10
	maxHeaderBytes           = 8 << 10
	bufferBytes              = 4 << 10
	// handshakeTimeout bounds the time from the connection to the preface of HTTP/2.
	handshakeTimeout = 10 * time.Second
	// maxIdle is shorter than the idle timeouts of load balancers, which drop connections in silence: machined has no keepalive, and would
	// wait for minutes. It connects again for its next event.
	maxIdle = 30 * time.Second
	// maxAge and ageGrace end the requests of clients that never send their message.
	maxAge   = 10 * time.Minute
	ageGrace = 10 * time.Second
	// pingInterval and pingTimeout find connections whose node is gone. minPingInterval is for pings of clients.
	pingInterval    = 20 * time.Second
	pingTimeout     = 10 * time.Second
	minPingInterval = 20 * time.Second
	// drainTimeout is the time for running requests at the end.
	drainTimeout = 5 * time.Second
)

// Metrics counts what the server does.
type Metrics interface {
	// NodeEvent counts an event of a node by its outcome.
	NodeEvent(outcome string)
	// NodeEventForwarded counts a request for a reconcile by its outcome.
	NodeEventForwarded(outcome string)
	// NodeConnectionRefused counts a connection that was closed at once.
	NodeConnectionRefused(reason string)
}

// Options are what a Server needs.
type Options struct {
	Store   *inventory.Store
	Broker  *events.Sender
	Metrics Metrics
	// Timeout bounds each request to the Broker.
	Timeout time.Duration
	Log     *slog.Logger
}

// Server is the event sink of Talos nodes. Create it with Listen.
type Server struct {
	eventsapi.UnimplementedEventSinkServiceServer
	Options
	listener net.Listener
	nodes    *nodes
	windows  *windows
}

// Listen opens the port at an address of the form host:port. Connections wait until Run.
func Listen(ctx context.Context, address string, o Options) (*Server, error) {
	l, err := (&net.ListenConfig{}).Listen(ctx, "tcp", address)
	if err != nil {
		return nil, fmt.Errorf("listen for events of nodes: %w", err)
	}
	return &Server{Options: o, listener: l, nodes: newNodes(o.Store), windows: newWindows()}, nil
}

// Addr returns the address that the server listens on.
func (s *Server) Addr() net.Addr { return s.listener.Addr() }

// Run receives events and forwards requests for reconciles until ctx ends. Call it when the inventory is complete.
func (s *Server) Run(ctx context.Context) {
	server := grpc.NewServer(
		grpc.MaxConcurrentStreams(maxStreams), grpc.MaxRecvMsgSize(maxMessageBytes), grpc.MaxHeaderListSize(maxHeaderBytes),
		grpc.ReadBufferSize(bufferBytes), grpc.WriteBufferSize(bufferBytes), grpc.ConnectionTimeout(handshakeTimeout),
		grpc.KeepaliveParams(keepalive.ServerParameters{
			MaxConnectionIdle: maxIdle, MaxConnectionAge: maxAge, MaxConnectionAgeGrace: ageGrace, Time: pingInterval, Timeout: pingTimeout,
		}),
		grpc.KeepaliveEnforcementPolicy(keepalive.EnforcementPolicy{MinTime: minPingInterval}),
	)
	eventsapi.RegisterEventSinkServiceServer(server, s)
	var forwarding sync.WaitGroup
	forwarding.Go(func() { s.forward(ctx) })
	defer forwarding.Wait()
	drained := make(chan struct{})
	stop := context.AfterFunc(ctx, func() {
		defer close(drained)
		kill := time.AfterFunc(drainTimeout, server.Stop)
		defer kill.Stop()
		server.GracefulStop() // a node connects to another replica without an error, after which it would pause
	})
	s.Log.Info("Listening for events of nodes", "address", s.Addr().String())
	err := server.Serve(newListener(s.listener, s.nodes, s.Metrics))
	if stop() {
		s.Log.Error("Cannot receive events of nodes", "error", err.Error())
		return
	}
	<-drained
}
