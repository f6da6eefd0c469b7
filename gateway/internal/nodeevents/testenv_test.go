package nodeevents

import (
	"context"
	"fmt"
	"log/slog"
	"net"
	"net/http"
	"net/http/httptest"
	"sync"
	"testing"
	"time"

	eventsapi "github.com/siderolabs/siderolink/api/events"
	"github.com/siderolabs/talos/pkg/machinery/api/machine"
	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials/insecure"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/types/known/anypb"

	"github.com/vitistack/stack/events"
	"github.com/vitistack/stack/gateway/internal/inventory"
)

// env is a server with an inventory and a Broker.
type env struct {
	t      *testing.T
	server *Server
	store  *inventory.Store
	stop   func()

	mu sync.Mutex
	// sent are the names of the clusters whose reconcile was requested, in order, and ids the IDs of these events.
	sent []string
	ids  map[string]bool
	// fails is how many further requests the Broker does not accept.
	fails  int
	counts map[string]int
}

// start runs a server with an inventory until t ends.
func start(t *testing.T, objects ...*inventory.Object) *env {
	t.Helper()
	e := &env{t: t, store: inventory.NewStore("test"), ids: map[string]bool{}, counts: map[string]int{}}
	for _, o := range objects {
		e.store.Put(o)
	}
	broker := httptest.NewServer(http.HandlerFunc(e.receive))
	t.Cleanup(broker.Close)
	var err error
	e.server, err = Listen(t.Context(), "127.0.0.1:0", Options{
		Store: e.store, Broker: events.NewSinkSender(events.NewSink(broker.URL, nil)), Metrics: e, Timeout: 5 * time.Second, Log: slog.New(slog.DiscardHandler),
	})
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(t.Context())
	done := make(chan struct{})
	go func() {
		defer close(done)
		e.server.Run(ctx)
	}()
	e.stop = func() {
		cancel()
		<-done
	}
	t.Cleanup(e.stop)
	return e
}

// receive is the Broker.
func (e *env) receive(w http.ResponseWriter, req *http.Request) {
	e.mu.Lock()
	defer e.mu.Unlock()
	if e.fails > 0 {
		e.fails--
		w.WriteHeader(http.StatusServiceUnavailable)
		return
	}
	if req.Header.Get("Ce-Type") != events.TypeResync || req.Header.Get("Ce-Kind") != "KubernetesCluster" || e.ids[req.Header.Get("Ce-Id")] {
		e.t.Errorf("unexpected event %v", req.Header)
	}
	e.ids[req.Header.Get("Ce-Id")] = true
	e.sent = append(e.sent, req.Header.Get("Ce-Namespace")+"/"+req.Header.Get("Ce-Name"))
	w.WriteHeader(http.StatusAccepted)
}

func (e *env) NodeEvent(outcome string)            { e.count("event " + outcome) }
func (e *env) NodeEventForwarded(outcome string)   { e.count("forwarded " + outcome) }
func (e *env) NodeConnectionRefused(reason string) { e.count("refused " + reason) }
func (e *env) count(what string) {
	e.mu.Lock()
	defer e.mu.Unlock()
	e.counts[what]++
}

// counted returns a counter.
func (e *env) counted(what string) int {
	e.mu.Lock()
	defer e.mu.Unlock()
	return e.counts[what]
}

// requests returns how often the reconcile of a cluster was requested.
func (e *env) requests(cluster string) int {
	e.mu.Lock()
	defer e.mu.Unlock()
	n := 0
	for _, name := range e.sent {
		if name == cluster {
			n++
		}
	}
	return n
}

// eventually waits until a condition is true.
func (e *env) eventually(what string, condition func() bool) {
	e.t.Helper()
	for deadline := time.Now().Add(20 * time.Second); !condition(); time.Sleep(5 * time.Millisecond) {
		if time.Now().After(deadline) {
			e.t.Fatalf("waited too long for %s", what)
		}
	}
}

// client is machined at an address.
type client struct {
	t   *testing.T
	api eventsapi.EventSinkServiceClient
}

func (e *env) client(address string) *client {
	e.t.Helper()
	conn, err := grpc.NewClient(e.server.Addr().String(), grpc.WithTransportCredentials(insecure.NewCredentials()),
		grpc.WithContextDialer(func(ctx context.Context, to string) (net.Conn, error) { return dial(ctx, address, to) }))
	if err != nil {
		e.t.Fatal(err)
	}
	e.t.Cleanup(func() { _ = conn.Close() })
	return &client{e.t, eventsapi.NewEventSinkServiceClient(conn)}
}

// dial connects from an address of the loopback network.
func dial(ctx context.Context, from, to string) (net.Conn, error) {
	d := net.Dialer{LocalAddr: &net.TCPAddr{IP: net.ParseIP(from)}}
	return d.DialContext(ctx, "tcp", to)
}

// publish sends an event as machined does.
func (c *client) publish(payload proto.Message) error {
	c.t.Helper()
	data, err := anypb.New(payload)
	if err != nil {
		c.t.Fatal(err)
	}
	_, err = c.api.Publish(c.t.Context(), &eventsapi.EventRequest{Id: "c0ffee", Data: data})
	return err
}

func (c *client) mustPublish(payload proto.Message) {
	c.t.Helper()
	if err := c.publish(payload); err != nil {
		c.t.Fatal(err)
	}
}

func aCluster(name string, ready bool) *inventory.Object {
	return &inventory.Object{
		Kind: inventory.KindCluster, APIVersion: "vitistack.io/v1alpha1", Key: inventory.Key{Namespace: "team", Name: name}, UID: "uid-" + name,
		ResourceVersion: "1", Readiness: inventory.Readiness{Ready: ready}, Facts: &inventory.Cluster{},
	}
}

func aMachine(cluster, name string, addresses ...string) *inventory.Object {
	return &inventory.Object{
		Kind: inventory.KindMachine, Key: inventory.Key{Namespace: "team", Name: name}, UID: "uid-" + name, ResourceVersion: "1",
		Facts: &inventory.Machine{Cluster: cluster, Addresses: addresses},
	}
}

var statusEvent = &machine.MachineStatusEvent{Stage: machine.MachineStatusEvent_BOOTING, Status: &machine.MachineStatusEvent_MachineStatus{}}

func serviceEvent(service string, action machine.ServiceStateEvent_Action) *machine.ServiceStateEvent {
	return &machine.ServiceStateEvent{Service: service, Action: action, Message: fmt.Sprintf("service %s", service)}
}
