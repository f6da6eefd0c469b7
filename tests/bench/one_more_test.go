package bench

import (
	"fmt"
	"testing"
	"time"

	"github.com/vitistack/stack/tests/stand/engine"
)

// BenchmarkMachines makes a hundred Machines at once on a hypervisor that answers at
// once, with all functions started from zero, and then one more.
func BenchmarkMachines(b *testing.B) {
	e := engine.Start(b, "--idle", "10m")
	settledNetwork(b, e, "default", 0)
	e.UntilPhase(engine.MachineProviders, "", "kubevirt", "Ready")
	var burst, more []time.Duration
	made := 0
	running := func(n int) time.Duration {
		began := time.Now()
		done := watchFor(b, e, "machines", made+n, engine.Machines, "default", "status.phase=Running")
		create(b, n, func(i int) error {
			e.Apply("default", fmt.Sprintf("apiVersion: vitistack.io/v1alpha1\nkind: Machine\nmetadata: {name: vm-%d}\nspec: {template: small, providerRef: {name: kubevirt}}\n", made+i))
			return nil
		})
		made += n
		done()
		return time.Since(began)
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
