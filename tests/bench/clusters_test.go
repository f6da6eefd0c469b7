package bench

import (
	"flag"
	"fmt"
	"testing"
	"time"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"

	"github.com/vitistack/stack/tests/stand/engine"
)

var clusters = flag.Int("clusters", 50, "number of clusters that BenchmarkManyClusters creates at once")

// manyClusters have one node of each kind.
const manyClusters = `apiVersion: vitistack.io/v1alpha1
kind: KubernetesCluster
metadata: {name: cluster-%[1]d}
spec:
  data: {clusterUid: cluster-%[1]d, clusterId: cluster-%[1]d, provider: talos, environment: dev, datacenter: trd1, project: many, region: west, workorder: none, zone: a, workspace: many}
  topology:
    version: "1.33"
    controlplane: {replicas: 1}
    workers: [{name: pool, replicas: 1}]
`

// BenchmarkManyClusters creates many clusters at once, and deletes them. It fails unless all become
// Running, and all of their machines are deleted with them.
func BenchmarkManyClusters(b *testing.B) {
	e := engine.Start(b, "--audit", "--idle", "1s")
	e.Apply("default", e.StaticNetwork("network", 10, 250))
	e.UntilPhase(engine.NetworkNamespaces, "default", "network", "Ready")
	var running, gone []time.Duration
	var used time.Duration
	requests := tally{}
	for b.Loop() {
		awaitIdle(b, e)
		began, cpu := time.Now(), e.FunctionCPU()
		for i := range *clusters {
			e.Apply("default", fmt.Sprintf(manyClusters, i))
		}
		await(b, "all are Running", func() (int, int) {
			return count(e.List(engine.KubernetesClusters, "default", ""), func(kc unstructured.Unstructured) bool { return phaseOf(kc) == "Running" }), *clusters
		})
		running = append(running, time.Since(began))
		awaitIdle(b, e)
		used += e.FunctionCPU() - cpu
		requests.add(e, began)
		began = time.Now()
		for i := range *clusters {
			e.Delete(engine.KubernetesClusters, "default", fmt.Sprintf("cluster-%d", i))
		}
		await(b, "all are deleted", func() (int, int) {
			return len(e.List(engine.KubernetesClusters, "default", "")) + len(e.List(engine.Machines, "default", "")), 0
		})
		gone = append(gone, time.Since(began))
	}
	n := *clusters * len(running)
	b.ReportMetric(milliseconds(median(running)), "ms-running")
	b.ReportMetric(milliseconds(median(gone)), "ms-gone")
	requests.report(b, "cluster", n)
	b.ReportMetric(milliseconds(used)/float64(n), "ms-cpu/cluster")
	b.ReportMetric(0, "ns/op")
}

// tally has the requests of functions to the API server over several rounds, and the number of writes
// among them.
type tally struct {
	asked  map[string]int
	writes int
}

// add counts the requests since a time.
func (t *tally) add(e *engine.Engine, since time.Time) {
	if t.asked == nil {
		t.asked = map[string]int{}
	}
	for _, r := range e.Requests(since) {
		if r.Function() == "" || r.Function() == "event-source" || r.Function() == "gateway" {
			continue
		}
		t.asked[r.Function()]++
		if r.Writes() {
			t.writes++
		}
	}
}

// total returns the number of requests of all functions.
func (t *tally) total() (total int) {
	for _, count := range t.asked {
		total += count
	}
	return total
}

// report reports the requests of each function and of all functions, for each of n objects.
func (t *tally) report(b *testing.B, thing string, n int) {
	b.Helper()
	for name, count := range t.asked {
		b.ReportMetric(float64(count)/float64(n), name+"-requests/"+thing)
	}
	b.ReportMetric(float64(t.total())/float64(n), "requests/"+thing)
	b.ReportMetric(float64(t.writes)/float64(n), "writes/"+thing)
}
