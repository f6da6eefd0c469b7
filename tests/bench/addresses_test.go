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
	"k8s.io/apimachinery/pkg/watch"

	"github.com/vitistack/stack/tests/stand/engine"
)

// BenchmarkAddresses allocates static addresses for many new NetworkConfigurations in an existing
// network, with all functions scaled to zero at first. cpu-ms is the CPU time of the functions and of
// the API server for one address. alone/s is how often per second an idle API server makes the same
// writes, and of-alone the share of it that is reached.
func BenchmarkAddresses(b *testing.B) {
	for _, n := range []int{200, 1000} {
		b.Run(strconv.Itoa(n), func(b *testing.B) {
			e := engine.Start(b, "--idle", "10m")
			var walls []time.Duration
			var functions, server time.Duration
			for b.Loop() {
				namespace := fmt.Sprintf("burst-%d-%d", n, len(walls))
				readyNetwork(b, e, namespace, len(walls))
				toZero(b, e)
				began, before := time.Now(), usages(b, e)
				burst(b, e, namespace, n)
				walls = append(walls, time.Since(began))
				after := usages(b, e)
				server += after["kube-apiserver"].cpu - before["kube-apiserver"].cpu
				functions += functionCPU(b, e)
				distinct(b, e, namespace, n)
			}
			alone := writesAlone(b, e, fmt.Sprintf("burst-%d-0", n), n)
			addresses := float64(n * len(walls))
			b.ReportMetric(float64(n)/alone.Seconds(), "alone/s")
			b.ReportMetric(alone.Seconds()/median(walls).Seconds(), "of-alone")
			b.ReportMetric(milliseconds(median(walls)), "ms-burst")
			b.ReportMetric(float64(n)/median(walls).Seconds(), "addresses/s")
			b.ReportMetric(milliseconds(functions)/addresses, "functions-cpu-ms/address")
			b.ReportMetric(milliseconds(server)/addresses, "apiserver-cpu-ms/address")
			b.ReportMetric(0, "ns/op")
		})
	}
}

// BenchmarkAddressRequests counts the requests of functions to the API server for each of many
// addresses. With -v it prints them by function and resource.
func BenchmarkAddressRequests(b *testing.B) {
	const n = 200
	e := engine.Start(b, "--audit", "--idle", "10m")
	rounds, requests := 0, tally{}
	for b.Loop() {
		namespace := fmt.Sprintf("burst-%d", rounds)
		readyNetwork(b, e, namespace, rounds)
		began, before := time.Now(), usages(b, e)
		burst(b, e, namespace, n)
		requests.add(e, began)
		rounds++
		explain(b, e, began, before, n)
		reportWaste(b, e, began, "address", n)
	}
	requests.report(b, "address", n*rounds)
	b.ReportMetric(0, "ns/op")
}

// readyNetwork creates a network, and waits until no function reconciles it.
func readyNetwork(b *testing.B, e *engine.Engine, namespace string, n int) {
	b.Helper()
	e.Apply(namespace, network(n))
	e.UntilPhase(engine.NetworkNamespaces, namespace, "network", "Ready")
	awaitQuiet(b, e, 2*time.Second)
}

// awaitQuiet waits until no event is on its way, and none has been delivered for a time.
func awaitQuiet(b *testing.B, e *engine.Engine, calm time.Duration) {
	b.Helper()
	var delivered int64
	for quiet := time.Now(); time.Since(quiet) < calm; time.Sleep(calm / 20) {
		var now, busy int64
		for _, t := range e.Report().Triggers {
			now, busy = now+t.Delivered, busy+t.InFlight+t.Queued
		}
		if busy > 0 || now != delivered {
			quiet, delivered = time.Now(), now
		}
	}
}

// network returns the manifest of a network with more than a thousand addresses.
func network(n int) string {
	return fmt.Sprintf(`apiVersion: vitistack.io/v1alpha2
kind: NetworkNamespace
metadata: {name: network}
spec:
  datacenterIdentifier: no-west-az1
  networkProvisioning:
    provider: manual
    manual: {ipv4CIDR: 10.%d.%d.0/20, ipv4Gateway: 10.%d.%d.1, vlanId: %d}
  ipAllocation: {type: static}
`, n/16, n%16*16, n/16, n%16*16, 1+n)
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
	done := watchFor(b, e, "all have their addresses", n, engine.NetworkConfigurations, namespace, "status.phase=Ready")
	create(b, n, func(i int) error {
		_, err := e.Client.Resource(engine.NetworkConfigurations).Namespace(namespace).Create(b.Context(), configuration(i), metav1.CreateOptions{})
		return err
	})
	done()
}

// configuration returns a NetworkConfiguration with one interface.
func configuration(i int) *unstructured.Unstructured {
	return &unstructured.Unstructured{Object: map[string]any{
		"apiVersion": "vitistack.io/v1alpha1", "kind": "NetworkConfiguration",
		"metadata": map[string]any{"name": fmt.Sprintf("nic-%d", i)},
		"spec": map[string]any{"networkNamespaceName": "network", "networkInterfaces": []any{
			map[string]any{"name": "eth0", "macAddress": fmt.Sprintf("02:00:00:%02x:%02x:%02x", i>>16&255, i>>8&255, i&255)},
		}},
	}}
}

// create creates n objects with several concurrent clients.
func create(b *testing.B, n int, make func(i int) error) {
	b.Helper()
	const creators = 8
	var group sync.WaitGroup
	for c := range creators {
		group.Go(func() {
			for i := c; i < n; i += creators {
				if err := make(i); err != nil {
					b.Error(err)
				}
			}
		})
	}
	group.Wait()
}

// watchFor starts a watch of a namespace, or of all namespaces if it is empty, and returns a function
// that waits until n objects match a field selector. A watch costs the API server less than polling.
func watchFor(b *testing.B, e *engine.Engine, what string, n int, kind resource, namespace, selector string) (wait func()) {
	b.Helper()
	const patience = 15 * time.Minute
	ctx, cancel := context.WithTimeout(b.Context(), patience)
	open := func() watch.Interface {
		watcher, err := e.Client.Resource(kind).Namespace(namespace).Watch(ctx, metav1.ListOptions{FieldSelector: selector})
		if err != nil {
			b.Fatal(err)
		}
		return watcher
	}
	watcher := open()
	return func() {
		b.Helper()
		defer cancel()
		defer func() { watcher.Stop() }()
		reached := map[string]bool{}
		for logged := time.Now(); len(reached) < n; {
			change, ok := <-watcher.ResultChan()
			switch {
			case ctx.Err() != nil:
				b.Fatalf("%s: %d of %d after %s", what, len(reached), n, patience)
			case !ok: // a busy API server ends watches; a new one begins with the existing objects
				watcher = open()
				continue
			}
			if obj, ok := change.Object.(*unstructured.Unstructured); ok {
				reached[obj.GetNamespace()+"/"+obj.GetName()] = true
			}
			if time.Since(logged) > 10*time.Second {
				logged = time.Now()
				progress("%s: %d of %d", what, len(reached), n)
			}
		}
	}
}

// distinct fails unless a namespace has n different addresses.
func distinct(b *testing.B, e *engine.Engine, namespace string, n int) {
	b.Helper()
	addresses := map[string]bool{}
	for _, a := range e.List(engine.IPAllocations, namespace, "") {
		address, _, _ := unstructured.NestedString(a.Object, "status", "address")
		in, _, _ := unstructured.NestedString(a.Object, "spec", "networkNamespaceName")
		if key := a.GetNamespace() + "/" + in + "/" + address; address != "" {
			if addresses[key] {
				b.Fatalf("address %s is allocated twice", key)
			}
			addresses[key] = true
		}
	}
	if len(addresses) != n {
		b.Fatalf("%d addresses for %d interfaces", len(addresses), n)
	}
}

// functionCPU returns the CPU time of the running processes of all functions.
func functionCPU(b *testing.B, e *engine.Engine) (total time.Duration) {
	b.Helper()
	for _, p := range e.Report().Processes {
		if p.Kind == "function" && p.PID != 0 {
			total += usageOf(p.PID).cpu
		}
	}
	return total
}
