package bench

import (
	"fmt"
	"testing"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/vitistack/stack/tests/stand/engine"
	"github.com/vitistack/stack/tests/stand/feed"
)

// BenchmarkSimpleCluster creates the documentation's cluster, with all functions scaled to zero at
// first and with simulators without delays, waits until it is Running, and deletes it.
func BenchmarkSimpleCluster(b *testing.B) {
	e := engine.Start(b, "--audit", "--idle", "1s")
	e.Apply("default", e.StaticNetwork("network", 10, 250))
	e.UntilPhase(engine.NetworkNamespaces, "default", "network", "Ready")
	var ready, gone []time.Duration
	requests := tally{}
	for b.Loop() {
		awaitIdle(b, e)
		began := time.Now()
		e.Apply("default", e.Example("simple-kubernetescluster.yaml"))
		awaitRunning(b, e, "simple-cluster")
		ready = append(ready, time.Since(began))
		awaitIdle(b, e)
		requests.add(e, began)
		explainRequests(b, e, began, 3)
		reportWaste(b, e, began, "machine", 3)
		began = time.Now()
		e.Delete(engine.KubernetesClusters, "default", "simple-cluster")
		feed.Until(b, "the cluster is deleted", func() (bool, string) {
			return e.Get(engine.KubernetesClusters, "default", "simple-cluster") == nil, ""
		})
		gone = append(gone, time.Since(began))
	}
	b.ReportMetric(milliseconds(median(ready)), "ms-running")
	b.ReportMetric(milliseconds(median(gone)), "ms-gone")
	requests.report(b, "machine", 3*len(ready))
	b.ReportMetric(0, "ns/op")
}

// awaitRunning watches the cluster instead of polling, to avoid load on the API server.
func awaitRunning(b *testing.B, e *engine.Engine, name string) {
	b.Helper()
	watcher, err := e.Client.Resource(engine.KubernetesClusters).Namespace("default").Watch(b.Context(), metav1.ListOptions{
		FieldSelector: "status.phase=Running",
	})
	if err != nil {
		b.Fatal(err)
	}
	defer watcher.Stop()
	select {
	case <-watcher.ResultChan():
	case <-time.After(time.Minute):
		b.Fatalf("%s is not Running after a minute", name)
	}
}

// awaitIdle waits until no process of a function runs.
func awaitIdle(b *testing.B, e *engine.Engine) {
	b.Helper()
	feed.Until(b, "all functions have ended", func() (bool, string) {
		for _, p := range e.Report().Processes {
			if p.Kind == "function" && p.PID != 0 {
				return false, p.Name
			}
		}
		return true, ""
	})
}

// BenchmarkIdle counts the costs of a Running cluster without changes, the writes of heartbeats apart.
func BenchmarkIdle(b *testing.B) {
	e := engine.Start(b, "--audit", "--idle", "1s")
	e.Apply("default", e.StaticNetwork("network", 10, 250))
	e.Apply("default", e.Example("simple-kubernetescluster.yaml"))
	e.UntilPhase(engine.KubernetesClusters, "default", "simple-cluster", "Running")
	const period = time.Minute // of resync, which checks the created objects once more
	passes := func(d time.Duration) {
		since := time.Now()
		feed.Until(b, "some time has passed", func() (bool, string) { return time.Since(since) > d, fmt.Sprint(d) })
	}
	passes(period)
	awaitIdle(b, e)
	const window = 2 * period
	requests, writes, heartbeats, rounds := 0, 0, 0, 0
	for b.Loop() {
		since := time.Now()
		passes(window)
		rounds++
		for _, r := range e.Requests(since) {
			if r.Verb == "watch" {
				continue
			}
			requests++
			if r.Heartbeat() {
				heartbeats++
				continue
			}
			if r.Writes() {
				writes++
				b.Logf("%s wrote: %s %s/%s %s/%s", r.User.Username, r.Verb, r.ObjectRef.Resource, r.ObjectRef.Subresource, r.ObjectRef.Namespace, r.ObjectRef.Name)
			}
		}
	}
	minutes := float64(rounds) * window.Minutes()
	b.ReportMetric(float64(requests)/minutes, "requests/min")
	b.ReportMetric(float64(writes)/minutes, "writes/min")
	b.ReportMetric(float64(heartbeats)/minutes, "heartbeats/min")
	b.ReportMetric(0, "ns/op")
}
