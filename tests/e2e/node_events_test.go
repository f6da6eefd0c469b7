package e2e

import (
	"bufio"
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/vitistack/stack/tests/stand/engine"
	"github.com/vitistack/stack/tests/stand/port"
)

// nodesTakeTime has each step of a node take seconds, and each node a different time.
const nodesTakeTime = `{"Boot": 4000000000, "Services": 5000000000, "EtcdPull": 4000000000, "EtcdStart": 500000000, "NodeReady": 4000000000, "Spread": 0.5}`

// TestNodeEvents creates a cluster whose nodes take a random time to boot: without an event sink, with one, and with one that no node
// reaches. With the events no delivery waits for nodes, and the cluster becomes Running at once. Without them nodes are polled.
func TestNodeEvents(t *testing.T) {
	t.Parallel()
	polled := createSlowCluster(t, "RESYNC_PERIOD=1m")
	address := port.KeepAddress(t)
	reported := createSlowCluster(t, "RESYNC_PERIOD=1m", "NODE_EVENTS_ADDRESS="+address, "NODE_EVENTS_ENDPOINT="+address)
	lost := createSlowCluster(t, "RESYNC_PERIOD=1m", "NODE_EVENTS_ENDPOINT="+port.KeepAddress(t))
	t.Logf("polled:   %s", polled)
	t.Logf("reported: %s", reported)
	t.Logf("lost:     %s", lost)
	if 2*reported.share() > polled.share() || reported.calls > polled.calls {
		t.Error("deliveries wait for nodes that send their events")
	}
	for _, c := range []slowCluster{reported, lost} {
		if c.latency > 10*time.Second {
			t.Errorf("a cluster is Running %s after its last node is Ready", c.latency)
		}
	}
	if reported.forwarded == "" || lost.forwarded != "" {
		t.Errorf("the gateway has forwarded %q, and without events %q", reported.forwarded, lost.forwarded)
	}
}

// slowCluster is what a cluster has taken and cost.
type slowCluster struct {
	// busy is the time of all deliveries of bootstrap-talos together.
	running, latency, busy         time.Duration
	deliveries, redelivered, calls int
	received, forwarded            string
}

// share returns how many deliveries of bootstrap-talos there are on average until the cluster is Running. A machine that is busy, and nodes that
// take long, change it less than the time of the deliveries.
func (c slowCluster) share() float64 { return c.busy.Seconds() / c.running.Seconds() }

func (c slowCluster) String() string {
	return fmt.Sprintf("Running after %.1fs, %.1fs after the last node was Ready; %d deliveries of bootstrap-talos of %.1fs together, %d of them repeated; %d calls of nodes; events %s, requests %s",
		c.running.Seconds(), c.latency.Seconds(), c.deliveries, c.busy.Seconds(), c.redelivered, c.calls, c.received, c.forwarded)
}

// createSlowCluster starts an engine with settings, and creates a cluster of one control plane and two workers.
func createSlowCluster(t *testing.T, settings ...string) slowCluster {
	t.Helper()
	var flags []string
	for _, s := range settings {
		flags = append(flags, "--config", s)
	}
	e := engine.Start(t, flags...)
	defer e.Stop()
	e.SetNodeTiming(nodesTakeTime)
	e.Apply("default", e.StaticNetwork("network", 10, 250))
	e.UntilPhase(engine.NetworkNamespaces, "default", "network", "Ready")
	began := time.Now()
	e.Apply("default", e.Example("simple-kubernetescluster.yaml"))
	e.UntilPhase(engine.KubernetesClusters, "default", "simple-cluster", "Running")
	c := slowCluster{running: time.Since(began), latency: time.Since(lastReady(t, e))}
	calls, err := e.Calls("talos")
	if err != nil {
		t.Fatal(err)
	}
	for _, n := range calls {
		c.calls += n
	}
	c.countDeliveries(t, e)
	c.received, c.forwarded = counters(t, e, "vitistack_operator_node_events_received_total"), counters(t, e, "vitistack_operator_node_events_forwarded_total")
	return c
}

// lastReady returns when the last Node of the cluster became Ready, to the second.
func lastReady(t *testing.T, e *engine.Engine) time.Time {
	t.Helper()
	out := getNodes(t, e, "-o", `jsonpath={.items[*].status.conditions[?(@.type=="Ready")].lastTransitionTime}`)
	var last time.Time
	for _, text := range strings.Fields(out) {
		at, err := time.Parse(time.RFC3339, text)
		if err != nil {
			t.Fatal(err)
		}
		if at.After(last) {
			last = at
		}
	}
	return last
}

// countDeliveries counts the deliveries to bootstrap-talos, those that the Broker repeats, and their time, in its log.
func (c *slowCluster) countDeliveries(t *testing.T, e *engine.Engine) {
	t.Helper()
	paths, _ := filepath.Glob(filepath.Join(e.Dir, "logs", "bootstrap-talos*.log"))
	for _, path := range paths {
		file, err := os.Open(path)
		if err != nil {
			t.Fatal(err)
		}
		for lines := bufio.NewScanner(file); lines.Scan(); {
			var l struct{ Outcome, EventType, Duration string }
			if json.Unmarshal(lines.Bytes(), &l) != nil || l.EventType == "" || l.Outcome == "" {
				continue
			}
			took, _ := time.ParseDuration(l.Duration)
			c.deliveries, c.busy = c.deliveries+1, c.busy+took
			if l.Outcome == "retry" {
				c.redelivered++
			}
		}
		_ = file.Close()
	}
}

// counters returns the series of a counter of the gateway that are not zero.
func counters(t *testing.T, e *engine.Engine, name string) string {
	t.Helper()
	metrics, err := e.Ask("metrics")
	if err != nil {
		t.Fatal(err)
	}
	var found []string
	for line := range strings.Lines(string(metrics)) {
		if series, ok := strings.CutPrefix(strings.TrimSpace(line), name); ok && !strings.HasSuffix(series, " 0") {
			found = append(found, series)
		}
	}
	return strings.Join(found, ", ")
}
