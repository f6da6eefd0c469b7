package bench

import (
	"fmt"
	"testing"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"

	"github.com/vitistack/stack/tests/stand/engine"
)

// BenchmarkMachines creates a hundred Machines at once on a hypervisor without delays, with all
// functions scaled to zero at first, and then one more.
func BenchmarkMachines(b *testing.B) {
	e := engine.Start(b, "--idle", "10m")
	readyNetwork(b, e, "default", 0)
	e.UntilPhase(engine.MachineProviders, "", "kubevirt", "Ready")
	var burst, more []time.Duration
	made := 0
	running := func(n int) time.Duration {
		made += n
		return runMachines(b, e, "kubevirt", made-n, n)
	}
	for b.Loop() {
		toZero(b, e)
		burst = append(burst, running(machines))
		const samples = 5
		for range samples {
			more = append(more, running(1))
		}
	}
	distinct(b, e, "default", made)
	b.ReportMetric(milliseconds(median(burst)), "ms-burst")
	b.ReportMetric(milliseconds(median(more)), "ms-one-more")
	b.ReportMetric(0, "ns/op")
}

// BenchmarkMachineRequests counts the requests of functions to the API server until a hundred Machines
// are Running. With -v it prints them by function and resource.
func BenchmarkMachineRequests(b *testing.B) {
	e := engine.Start(b, "--audit", "--idle", "10m")
	readyNetwork(b, e, "default", 0)
	e.UntilPhase(engine.MachineProviders, "", "kubevirt", "Ready")
	made, requests := 0, tally{}
	for b.Loop() {
		began, before := time.Now(), usages(b, e)
		runMachines(b, e, "kubevirt", made, machines)
		made += machines
		requests.add(e, began)
		explain(b, e, began, before, machines)
		reportWaste(b, e, began, "machine", machines)
	}
	requests.report(b, "machine", made)
	b.ReportMetric(0, "ns/op")
}

// runMachines creates n more Machines of a provider, and returns the time until all are Running.
func runMachines(b *testing.B, e *engine.Engine, provider string, there, n int) time.Duration {
	b.Helper()
	began := time.Now()
	done := watchFor(b, e, "machines", there+n, engine.Machines, "default", "status.phase=Running")
	create(b, n, func(i int) error {
		_, err := e.Client.Resource(engine.Machines).Namespace("default").Create(b.Context(), machine(provider, there+i), metav1.CreateOptions{})
		return err
	})
	done()
	return time.Since(began)
}

// machine returns a minimal Machine.
func machine(provider string, i int) *unstructured.Unstructured {
	return &unstructured.Unstructured{Object: map[string]any{
		"apiVersion": "vitistack.io/v1alpha1", "kind": "Machine",
		"metadata": map[string]any{"name": fmt.Sprintf("vm-%d", i)},
		"spec":     map[string]any{"template": "small", "providerRef": map[string]any{"name": provider}},
	}}
}
