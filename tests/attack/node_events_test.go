package attack

import (
	"bytes"
	"context"
	"fmt"
	"net"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	eventsapi "github.com/siderolabs/siderolink/api/events"
	"github.com/siderolabs/talos/pkg/machinery/api/machine"
	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials/insecure"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/types/known/anypb"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"

	"github.com/vitistack/stack/tests/stand/engine"
	"github.com/vitistack/stack/tests/stand/feed"
	"github.com/vitistack/stack/tests/stand/port"
)

// forged is what the events of an attacker contain. It must appear nowhere.
const forged = "forged\x1b[31m\n{\"level\":\"error\"}"

// TestForgedNodeEvents sends events in the place of nodes: from an address of no node, and from that of a node of a cluster that runs. The first
// has no effect. The second costs a reconcile in ten seconds, and changes nothing.
func TestForgedNodeEvents(t *testing.T) {
	t.Parallel()
	address := port.KeepAddress(t)
	e := engine.Start(t, "--config", "NODE_EVENTS_ADDRESS="+address, "--config", "NODE_EVENTS_ENDPOINT="+address)
	e.Apply("default", e.StaticNetwork("network", 10, 250))
	e.Apply("default", e.Example("simple-kubernetescluster.yaml"))
	e.UntilPhase(engine.KubernetesClusters, "default", "simple-cluster", "Running")
	node := ""
	for _, m := range e.List(engine.Machines, "default", "cluster.vitistack.io/cluster-name=simple-cluster") {
		if addresses, _, _ := unstructured.NestedStringSlice(m.Object, "status", "ipAddresses"); strings.Contains(m.GetName(), "-cp-") {
			node = addresses[0]
		}
	}
	before := e.Get(engine.KubernetesClusters, "default", "simple-cluster")

	if accepted := flood(t, "127.0.0.99", address, 2*time.Second); accepted != 0 {
		t.Errorf("%d events from an address of no node are accepted", accepted)
	}
	requested := nodeEventRequests(t, e)
	if accepted := flood(t, node, address, 10*time.Second); accepted == 0 {
		t.Error("no event from the address of a node is accepted, so the attack shows nothing")
	}
	time.Sleep(time.Second)
	if most := nodeEventRequests(t, e) - requested; most > 3 {
		t.Errorf("a flood of 10 s from a node of a Ready cluster causes %d requests for reconciles", most)
	}
	after := e.Get(engine.KubernetesClusters, "default", "simple-cluster")
	if before.GetResourceVersion() != after.GetResourceVersion() && fmt.Sprint(before.Object["status"]) != fmt.Sprint(after.Object["status"]) {
		t.Errorf("forged events change the status from %v to %v", before.Object["status"], after.Object["status"])
	}
	logs, _ := filepath.Glob(filepath.Join(e.Dir, "logs", "*.log"))
	for _, path := range logs {
		if log, err := os.ReadFile(path); err == nil && bytes.Contains(log, []byte("forged")) {
			t.Errorf("%s has the text of an event", filepath.Base(path))
		}
	}
}

// flood sends events of a node that fails from an address, over more connections than a node has, and returns how many are accepted.
func flood(t *testing.T, from, to string, duration time.Duration) (accepted int) {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), duration)
	defer cancel()
	var mu sync.Mutex
	var senders sync.WaitGroup
	for _, event := range []proto.Message{
		&machine.MachineStatusEvent{Stage: machine.MachineStatusEvent_MAINTENANCE, Status: &machine.MachineStatusEvent_MachineStatus{
			UnmetConditions: []*machine.MachineStatusEvent_MachineStatus_UnmetCondition{{Name: forged, Reason: forged}},
		}},
		&machine.ServiceStateEvent{Service: "etcd", Action: machine.ServiceStateEvent_FAILED, Message: forged},
		&machine.ServiceStateEvent{Service: forged, Message: strings.Repeat(forged, 10_000)},
	} {
		data, err := anypb.New(event)
		if err != nil {
			t.Fatal(err)
		}
		conn, err := grpc.NewClient(to, grpc.WithTransportCredentials(insecure.NewCredentials()), grpc.WithContextDialer(func(ctx context.Context, to string) (net.Conn, error) {
			d := net.Dialer{LocalAddr: &net.TCPAddr{IP: net.ParseIP(from)}}
			return d.DialContext(ctx, "tcp", to)
		}))
		if err != nil {
			t.Fatal(err)
		}
		defer func() { _ = conn.Close() }()
		client := eventsapi.NewEventSinkServiceClient(conn)
		senders.Go(func() {
			for ctx.Err() == nil {
				if _, err := client.Publish(ctx, &eventsapi.EventRequest{Id: forged, ActorId: forged, Data: data}); err == nil {
					mu.Lock()
					accepted++
					mu.Unlock()
				} else {
					time.Sleep(time.Millisecond)
				}
			}
		})
	}
	senders.Wait()
	return accepted
}

// nodeEventRequests returns how many reconciles the gateway has requested because of events of nodes.
func nodeEventRequests(t *testing.T, e *engine.Engine) (count int) {
	t.Helper()
	feed.Until(t, "the gateway answers with its metrics", func() (bool, string) {
		metrics, err := e.Ask("metrics")
		if err != nil {
			return false, err.Error()
		}
		for line := range strings.Lines(string(metrics)) {
			if value, ok := strings.CutPrefix(line, `vitistack_operator_node_events_forwarded_total{outcome="sent"} `); ok {
				_, err = fmt.Sscan(value, &count)
			}
		}
		return err == nil, fmt.Sprint(err)
	})
	return count
}
