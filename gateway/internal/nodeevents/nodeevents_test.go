package nodeevents

import (
	"io"
	"strings"
	"testing"
	"time"

	"github.com/siderolabs/talos/pkg/machinery/api/machine"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
)

// TestEvents sends events of the nodes of two clusters, and of others.
func TestEvents(t *testing.T) {
	t.Parallel()
	e := start(t,
		aCluster("booting", false), aMachine("booting", "booting-cp-0", "127.0.7.1"),
		aCluster("running", true), aMachine("running", "running-cp-0", "127.0.7.2"))
	booting, running := e.client("127.0.7.1"), e.client("127.0.7.2")
	booting.mustPublish(serviceEvent("apid", machine.ServiceStateEvent_RUNNING))
	e.eventually("the cluster that boots", func() bool { return e.requests("team/booting") == 1 })
	if e.requests("team/running") != 0 {
		t.Error("the event of a node reconciles another cluster")
	}
	running.mustPublish(serviceEvent("kubelet", machine.ServiceStateEvent_RUNNING))
	if got := e.counted("event irrelevant"); got != 1 {
		t.Errorf("%d irrelevant events, want the service of a cluster that is Ready", got)
	}
	running.mustPublish(statusEvent)
	e.eventually("the cluster that runs", func() bool { return e.requests("team/running") == 1 })

	if err := e.client("127.0.7.3").publish(statusEvent); status.Code(err) != codes.Unavailable {
		t.Errorf("an address of no Machine gets %v", err)
	}
	if e.counted("refused unknown_address") == 0 || e.counted("event unknown_address") != 0 {
		t.Errorf("a stranger is not refused before it sends: %v", e.counts)
	}
}

// TestCoalesces sends a burst, which costs a request at its begin and one at its end, also if the Broker fails meanwhile.
func TestCoalesces(t *testing.T) {
	t.Parallel()
	e := start(t, aCluster("booting", false), aMachine("booting", "cp-0", "127.0.7.11"))
	e.fails = 1
	c := e.client("127.0.7.11")
	began := time.Now()
	for time.Since(began) < 300*time.Millisecond {
		c.mustPublish(statusEvent)
		time.Sleep(2 * time.Millisecond)
	}
	e.eventually("the request after the one that failed", func() bool { return e.requests("team/booting") == 1 })
	if took := time.Since(began); took < window {
		t.Errorf("the failed request is repeated after %s", took)
	}
	time.Sleep(2 * window)
	if got := e.requests("team/booting"); got != 1 || e.counted("forwarded failed") != 1 {
		t.Errorf("%d requests for a burst, %v", got, e.counts)
	}
}

// TestNewMachine has a node send events before the inventory has its address: it tries again, and succeeds.
func TestNewMachine(t *testing.T) {
	t.Parallel()
	e := start(t, aCluster("booting", false))
	c := e.client("127.0.7.21")
	if err := c.publish(statusEvent); err == nil {
		t.Fatal("an unknown address is accepted")
	}
	e.store.Put(aMachine("booting", "cp-0", "127.0.7.21"))
	e.eventually("the event", func() bool { return c.publish(statusEvent) == nil })
	e.eventually("the request", func() bool { return e.requests("team/booting") == 1 })

	e.store.Remove(aMachine("booting", "cp-0").Kind, aMachine("booting", "cp-0").Key)
	e.eventually("the refusal of the deleted Machine", func() bool { return status.Code(c.publish(statusEvent)) == codes.Unavailable })
}

// TestFlood sends more than a node ever does. The address waits for its answers, and another one does not.
func TestFlood(t *testing.T) {
	t.Parallel()
	e := start(t,
		aCluster("loud", false), aMachine("loud", "loud-cp-0", "127.0.7.31"),
		aCluster("quiet", false), aMachine("quiet", "quiet-cp-0", "127.0.7.32"))
	loud := e.client("127.0.7.31")
	start := time.Now()
	for range rateBurst + 2*rateLimit {
		loud.mustPublish(statusEvent)
	}
	if took := time.Since(start); took < 2*time.Second-time.Second/rateLimit {
		t.Errorf("%d events are answered in %s", rateBurst+2*rateLimit, took)
	}
	go func() {
		for t.Context().Err() == nil {
			_ = loud.publish(statusEvent)
		}
	}()
	began := time.Now()
	e.client("127.0.7.32").mustPublish(statusEvent)
	e.eventually("the other cluster", func() bool { return e.requests("team/quiet") == 1 })
	if took := time.Since(began); took > 2*time.Second {
		t.Errorf("another node waits %s", took)
	}
	if got, most := e.requests("team/loud"), int(time.Since(start)/window)+2; got > most {
		t.Errorf("the flood has caused %d requests", got)
	}
}

// TestHugeEvent refuses an event that is larger than any of Talos, and takes the next one.
func TestHugeEvent(t *testing.T) {
	t.Parallel()
	e := start(t, aCluster("a", false), aMachine("a", "cp-0", "127.0.7.41"))
	c := e.client("127.0.7.41")
	huge := serviceEvent("etcd", machine.ServiceStateEvent_RUNNING)
	huge.Message = strings.Repeat("x", maxMessageBytes)
	if err := c.publish(huge); status.Code(err) != codes.ResourceExhausted {
		t.Errorf("got %v", err)
	}
	c.mustPublish(statusEvent)
}

// TestSlowClient opens more connections than a node has, sends nothing, and is closed. Other nodes are served meanwhile.
func TestSlowClient(t *testing.T) {
	t.Parallel()
	e := start(t,
		aCluster("slow", false), aMachine("slow", "slow-cp-0", "127.0.7.51"),
		aCluster("quick", false), aMachine("quick", "quick-cp-0", "127.0.7.52"))
	began := time.Now()
	closed := make(chan time.Duration, 10)
	for range cap(closed) {
		conn, err := dial(t.Context(), "127.0.7.51", e.server.Addr().String())
		if err != nil {
			t.Fatal(err)
		}
		go func() {
			_, _ = io.Copy(io.Discard, conn)
			closed <- time.Since(began)
			_ = conn.Close()
		}()
	}
	for range cap(closed) - maxConnectionsPerAddress {
		if took := <-closed; took > 5*time.Second {
			t.Errorf("a connection above the limit is closed after %s", took)
		}
	}
	e.client("127.0.7.52").mustPublish(statusEvent)
	for range maxConnectionsPerAddress {
		if took := <-closed; took > 3*handshakeTimeout {
			t.Errorf("a silent connection is closed after %s", took)
		}
	}
	if got := e.counted("refused limit"); got != cap(closed)-maxConnectionsPerAddress {
		t.Errorf("%d connections are refused", got)
	}
	e.client("127.0.7.51").mustPublish(statusEvent)
}

// TestStops ends the server while a node is connected.
func TestStops(t *testing.T) {
	t.Parallel()
	e := start(t, aCluster("a", false), aMachine("a", "cp-0", "127.0.7.61"))
	e.client("127.0.7.61").mustPublish(statusEvent)
	began := time.Now()
	e.stop()
	if took := time.Since(began); took > drainTimeout {
		t.Errorf("the end takes %s", took)
	}
}
