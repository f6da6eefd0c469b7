package bench

import (
	"context"
	"fmt"
	"strconv"
	"sync"
	"testing"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"

	"github.com/vitistack/stack/tests/stand/engine"
)

// BenchmarkAddresses gives static addresses to a burst of NetworkConfigurations,
// with all functions started from zero. cpu-ms are those of the functions and of the
// API server for one address.
func BenchmarkAddresses(b *testing.B) {
	for _, n := range []int{200, 1000} {
		b.Run(strconv.Itoa(n), func(b *testing.B) {
			e := engine.Start(b, "--audit", "--idle", "10m")
			var walls []time.Duration
			requests, rounds := 0, 0
			var functions, server time.Duration
			for b.Loop() {
				rounds++
				namespace := fmt.Sprintf("burst-%d-%d", n, rounds)
				e.Apply(namespace, network(rounds))
				e.UntilPhase(engine.NetworkNamespaces, namespace, "network", "Ready")
				toZero(b, e)
				began, before := time.Now(), usages(b, e)
				burst(b, e, namespace, n)
				walls = append(walls, time.Since(began))
				after := usages(b, e)
				server += after["kube-apiserver"].cpu - before["kube-apiserver"].cpu
				functions += functionCPU(b, e)
				explain(b, e, began, before, n)
				for _, r := range e.Requests(began) {
					if name := r.Function(); name == "allocate-ip" || name == "provision-network" || name == "kea-reserve" {
						requests++
					}
				}
			}
			addresses := float64(n * rounds)
			b.ReportMetric(milliseconds(median(walls)), "ms-burst")
			b.ReportMetric(float64(n)/median(walls).Seconds(), "addresses/s")
			b.ReportMetric(float64(requests)/addresses, "requests/address")
			b.ReportMetric(milliseconds(functions)/addresses, "functions-cpu-ms/address")
			b.ReportMetric(milliseconds(server)/addresses, "apiserver-cpu-ms/address")
			b.ReportMetric(0, "ns/op")
		})
	}
}

// network is the manifest of one with room for a thousand and more.
func network(n int) string {
	return fmt.Sprintf(`apiVersion: vitistack.io/v1alpha2
kind: NetworkNamespace
metadata: {name: network}
spec:
  datacenterIdentifier: no-west-az1
  networkProvisioning:
    provider: manual
    manual: {ipv4CIDR: 10.%[1]d.0.0/20, ipv4Gateway: 10.%[1]d.0.1, vlanId: %[1]d}
  ipAllocation: {type: static}
`, n)
}

// toZero ends the processes of all functions.
func toZero(b *testing.B, e *engine.Engine) {
	b.Helper()
	for _, p := range e.Report().Processes {
		if p.Kind == "function" && p.PID != 0 {
			if err := e.KillProcess(p.Name); err != nil {
				b.Fatal(err)
			}
		}
	}
}

// burst creates NetworkConfigurations and waits until all have their addresses.
func burst(b *testing.B, e *engine.Engine, namespace string, n int) {
	b.Helper()
	configurations := e.Client.Resource(engine.NetworkConfigurations).Namespace(namespace)
	watcher, err := configurations.Watch(b.Context(), metav1.ListOptions{FieldSelector: "status.phase=Ready"})
	if err != nil {
		b.Fatal(err)
	}
	defer watcher.Stop()
	const creators = 8
	var group sync.WaitGroup
	for c := range creators {
		group.Go(func() {
			for i := c; i < n; i += creators {
				obj := &unstructured.Unstructured{Object: map[string]any{
					"apiVersion": "vitistack.io/v1alpha1", "kind": "NetworkConfiguration",
					"metadata": map[string]any{"name": fmt.Sprintf("vm-%d", i)},
					"spec": map[string]any{"networkNamespaceName": "network", "networkInterfaces": []any{
						map[string]any{"name": "eth0", "macAddress": fmt.Sprintf("02:00:00:00:%02x:%02x", i/256, i%256)},
					}},
				}}
				if _, err := configurations.Create(b.Context(), obj, metav1.CreateOptions{}); err != nil {
					b.Error(err)
				}
			}
		})
	}
	ready := map[string]bool{}
	patience, cancel := context.WithTimeout(b.Context(), 10*time.Minute)
	defer cancel()
	for len(ready) < n {
		select {
		case change := <-watcher.ResultChan():
			if obj, ok := change.Object.(*unstructured.Unstructured); ok {
				ready[obj.GetName()] = true
			}
		case <-patience.Done():
			b.Fatalf("%d of %d have an address", len(ready), n)
		}
	}
	group.Wait()
}

// functionCPU is the processor time that the running processes of all functions have
// taken.
func functionCPU(b *testing.B, e *engine.Engine) (total time.Duration) {
	b.Helper()
	for _, p := range e.Report().Processes {
		if p.Kind == "function" && p.PID != 0 {
			total += usageOf(p.PID).cpu
		}
	}
	return total
}
