package node

import (
	"context"
	"fmt"
	"maps"
	"slices"
	"strings"
	"time"

	"github.com/vitistack/stack/tests/stand/results"
)

// scaleFromZero measures the time from kubectl apply to a cluster that is Running, while no function has a pod.
func (e *env) scaleFromZero() {
	var took, idle []time.Duration
	var start time.Time
	runs := e.starts()
	table := e.zeroTable()
	for range runs {
		e.deleteCluster()
		e.Step("the cluster is deleted")
		e.AwaitZero()
		idle = append(idle, e.Step("no function has a pod"))
		start = time.Now()
		e.Apply(e.example("simple-kubernetescluster.yaml"))
		e.Kubectl("wait", "kubernetescluster/simple-cluster", "--for=jsonpath={.status.phase}=Running", "--timeout=280s")
		took = append(took, time.Since(start))
		e.Step("from zero: the cluster is Running")
	}
	e.countRequests(start)
	slices.Sort(took)
	slices.Sort(idle)
	table.Row(fmt.Sprintf("to a Running cluster, no function has a pod: median of %d", runs), took[runs/2])
	table.Row("to a Running cluster, no function has a pod: fastest", took[0])
	table.Row("to a Running cluster, no function has a pod: slowest", took[runs-1])
	table.Row("to a Running cluster, functions have pods", e.warmStart())
	table.Row(fmt.Sprintf("from the end of a cluster until no function has a pod: median of %d", runs), idle[runs/2])
	e.RequireNoRestarts()
	e.RequireNoneRefused()
}

// countRequests writes the number of requests that the stack has sent to the API server since a cluster was applied, without heartbeats.
func (e *env) countRequests(since time.Time) {
	e.T.Helper()
	requests, err := e.Requests(since)
	if err != nil {
		e.T.Fatal(err)
	}
	counts, total, writes := map[string]int{}, 0, 0
	for _, r := range requests {
		if r.Heartbeat() || r.Function() == "" {
			continue
		}
		counts[r.Function()]++
		total++
		if r.Writes() {
			writes++
		}
	}
	if counts["create-vm"] == 0 || counts["bootstrap-talos"] == 0 {
		e.T.Errorf("the audit log has no requests of the functions that create a cluster: %v", counts)
	}
	table := e.results.Counts("Requests", "to the API server, from kubectl apply to a Running cluster of three nodes, no function has a pod", "requests")
	for _, name := range slices.Sorted(maps.Keys(counts)) {
		table.Count(name, counts[name])
	}
	table.Count("all", total)
	table.Count("writes among them", writes)
}

// zeroTable is the table of the steps tour and scaleFromZero.
func (e *env) zeroTable() *results.Section {
	return e.results.Table("Scale from zero", "from kubectl apply")
}

// starts returns the number of measured starts from zero, whose median is the figure: ten for the page of results, and three
// otherwise, because each takes a minute.
func (e *env) starts() int {
	if results.IsWritten() {
		return 10
	}
	return 3
}

// warmStart measures the same while the functions of the deletion still have pods.
func (e *env) warmStart() time.Duration {
	e.T.Helper()
	e.deleteCluster()
	start := time.Now()
	e.Apply(e.example("simple-kubernetescluster.yaml"))
	e.Kubectl("wait", "kubernetescluster/simple-cluster", "--for=jsonpath={.status.phase}=Running", "--timeout=280s")
	return time.Since(start)
}

func (e *env) deleteCluster() {
	e.T.Helper()
	e.Kubectl("delete", "kubernetescluster", "simple-cluster", "--timeout=240s")
	e.Await("the machines are deleted", 2*time.Minute, func(ctx context.Context) error { return e.requireNone(ctx, "machines", "-A") })
}

// requireNone returns an error that names the objects of kubectl get.
func (e *env) requireNone(ctx context.Context, args ...string) error {
	all, err := e.List(ctx, args...)
	if err != nil {
		return err
	}
	var names []string
	for _, o := range all {
		names = append(names, fmt.Sprintf("%s/%s (finalizers: %s)", o.Metadata.Namespace, o.Metadata.Name, strings.Join(o.Metadata.Finalizers, ", ")))
	}
	if len(names) > 0 {
		return fmt.Errorf("%d are left: %s", len(names), strings.Join(names, "; "))
	}
	return nil
}
