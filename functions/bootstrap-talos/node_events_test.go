package main

import (
	"context"
	"errors"
	"net"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/cloudevents/sdk-go/v2/event"
	eventsapi "github.com/siderolabs/siderolink/api/events"
	"google.golang.org/grpc"
	"google.golang.org/grpc/peer"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/vitistack/stack/apis/cluster/plan"
	"github.com/vitistack/stack/apis/v1alpha1"
	"github.com/vitistack/stack/events"
	"github.com/vitistack/stack/functions/bootstrap-talos/talos"
	"github.com/vitistack/stack/functions/internal/reconcile"
	"github.com/vitistack/stack/tests/stand/feed"
)

func TestAwaitNodeEvent(t *testing.T) {
	t.Parallel()
	now := time.Now()
	wait := func(reason string) reconcile.WaitError {
		return reconcile.WaitError{Reason: reason, Message: "waits", Requeue: true}
	}
	for name, tc := range map[string]struct {
		why      string
		err      error
		silent   bool
		reported time.Duration
		report   report
		version  string
		ends     bool
	}{
		"Node":      {why: "a node that starts reports it", err: wait("WaitingForNode"), ends: true},
		"Etcd":      {why: "etcd that starts reports it", err: wait("WaitingForEtcd"), ends: true},
		"Silent":    {why: "no node has reported, so none may reach the sink", err: wait("WaitingForNode"), silent: true},
		"Old":       {why: "nodes have reported long ago", err: wait("WaitingForNode"), reported: reportValidity},
		"Refused":   {why: "a node that has not accepted a request reports nothing", err: wait("WaitingForNode"), report: report{bootstrapSent: true}},
		"Member":    {why: "the promotion of a member of etcd is not reported", err: wait("WaitingForEtcd"), report: report{bootstrapped: true}},
		"API":       {why: "no control plane is ready, and one that becomes ready reports it", err: wait(reasonWaitingForAPI), ends: true},
		"Outage":    {why: "nodes that are down report nothing, and the outage has to be noticed", err: wait(reasonWaitingForAPI), version: "1.34.1"},
		"Nodes":     {why: "all machines are ready, so the workload API lags behind", err: wait("WaitingForNodes")},
		"Drain":     {why: "an eviction is not reported", err: wait("RemovingNodes")},
		"Machine":   {why: "create-vm changes the Machine, which is an event", err: reconcile.WaitError{Reason: "WaitingForNode"}},
		"UserError": {why: "the requester has to change something", err: reconcile.UserError{Reason: "InvalidPatch"}},
		"Error":     {why: "a request has failed", err: errors.New("refused")},
		"Done":      {why: "there is nothing to wait for"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			f := &function{now: func() time.Time { return now }}
			c := &cluster{KubernetesCluster: &v1alpha1.KubernetesCluster{ObjectMeta: metav1.ObjectMeta{Namespace: "team", Name: "shop"}}, report: tc.report}
			c.Status.Version = tc.version
			f.reports.record("team/other", now)
			if !tc.silent {
				f.reports.record("team/shop", now.Add(-tc.reported))
			}
			got := f.awaitNodeEvent(t.Context(), c, tc.err)
			if ends := tc.err != nil && reconcile.Retried(tc.err) && !reconcile.Retried(got); ends != tc.ends || c.report.nodeEventFollows != tc.ends {
				t.Errorf("%s: %v becomes %v", tc.why, tc.err, got)
			}
			if tc.err != nil && got.Error() != tc.err.Error() {
				t.Errorf("the message becomes %v", got)
			}
		})
	}
}

// sink is an event sink that counts the events of each address.
type sink struct {
	eventsapi.UnimplementedEventSinkServiceServer
	mu     sync.Mutex
	counts map[string]int
}

func (s *sink) Publish(ctx context.Context, _ *eventsapi.EventRequest) (*eventsapi.EventResponse, error) {
	from, _ := peer.FromContext(ctx)
	host, _, _ := net.SplitHostPort(from.Addr.String())
	s.mu.Lock()
	defer s.mu.Unlock()
	s.counts[host]++
	return &eventsapi.EventResponse{}, nil
}

func (s *sink) events(address string) int {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.counts[address]
}

// serveSink runs an event sink until t ends, and returns its address.
func serveSink(t *testing.T) (*sink, string) {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	s, server := &sink{counts: map[string]int{}}, grpc.NewServer()
	eventsapi.RegisterEventSinkServiceServer(server, s)
	go func() { _ = server.Serve(l) }()
	t.Cleanup(server.Stop)
	return s, l.Addr().String()
}

// TestEventSinkRollsOut switches the event sink of a cluster that runs on and off. Its nodes follow without a reboot.
func TestEventSinkRollsOut(t *testing.T) {
	t.Parallel()
	var frozen atomic.Bool
	s := newEnv(t, envOptions{handle: func(handle events.Handler) events.Handler {
		return func(ctx context.Context, in event.Event) (*event.Event, error) {
			if frozen.Load() {
				return nil, nil
			}
			return handle(ctx, in)
		}
	}})
	s.create(s.cluster("shop", 1, 1))
	s.awaitRunning("shop")
	frozen.Store(true)
	received, address := serveSink(t)
	withSink := s.newFunction(s.clientOf(s.config, plan.FunctionName), time.Now)
	withSink.renderer.eventSink = address
	roll := func(f *function, what string, isDone func(config string) bool) {
		t.Helper()
		feed.Until(t, what, func() (bool, string) {
			_, err := f.handle(t.Context(), resyncEvent(s.namespace, "shop", "look"))
			done := isDone(s.activeConfig("shop", "cp-0")) && isDone(s.activeConfig("shop", "pool-0"))
			return done && err == nil && isUpToDate(s.get("shop")), ""
		})
	}
	restarts := s.restarts("shop")
	roll(withSink, "the nodes have the event sink", func(config string) bool { return strings.Contains(config, "endpoint: "+address) })
	for _, node := range []string{"cp-0", "pool-0"} {
		feed.Until(t, node+" sends its events", func() (bool, string) { return received.events(plan.Address(s.machine("shop-"+node))) > 0, "" })
	}
	roll(s.function, "the nodes have no event sink", func(config string) bool { return !strings.Contains(config, "EventSinkConfig") })
	if after := s.restarts("shop"); after != restarts {
		t.Errorf("the nodes have rebooted: %s, before %s", after, restarts)
	}
}

// restarts returns the boot IDs of the nodes of a cluster.
func (s *env) restarts(cluster string) string {
	s.Helper()
	nodes, err := s.workload(cluster).CoreV1().Nodes().List(s.Context(), metav1.ListOptions{})
	if err != nil {
		s.Fatal(err)
	}
	var ids []string
	for _, n := range nodes.Items {
		ids = append(ids, n.Status.NodeInfo.BootID)
	}
	return strings.Join(ids, " ")
}

// TestNodeReport delivers the event of a node to a cluster that waits for its nodes, and to one that is up to date.
func TestNodeReport(t *testing.T) {
	t.Parallel()
	s := newEnv(t, envOptions{})
	s.create(s.cluster("shop", 1, 0))
	s.awaitRunning("shop")
	report := resyncEvent(s.namespace, "shop", "report")
	report.SetSource(events.SourceNodeEvents)
	began := time.Now()
	if _, err := s.function.handle(t.Context(), report); err != nil {
		t.Error(err)
	}
	if !s.function.reports.isRecent(s.namespace+"/shop", time.Now()) {
		t.Error("the report is not remembered")
	}
	if state, _ := talos.Probe(t.Context(), plan.Address(s.machine("shop-cp-0")), s.access("shop")); state != talos.Configured {
		t.Errorf("the node is %s", state)
	}
	if !talos.IsMachineReady(t.Context(), plan.Address(s.machine("shop-cp-0")), s.access("shop")) {
		t.Error("the machine of a cluster that runs is not ready")
	}
	if took := time.Since(began); took > nodePollTime {
		t.Errorf("a report takes %s", took)
	}
}
