package bench

import (
	"fmt"
	"slices"
	"testing"
	"time"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"

	"github.com/vitistack/stack/tests/stand/engine"
)

// machines is how many are made at once.
const machines = 100

// slowAndFaulty is a hypervisor that takes a second for everything, and fails one
// time in twenty.
const slowAndFaulty = `[{"latency": "1s"}, {"error": "503", "rate": 0.05}]`

// BenchmarkHundredMachines makes a hundred Machines at once on a hypervisor that is
// slow and faulty, and deletes them. It fails unless each runs on exactly one
// virtual machine, and nothing is left in the end.
func BenchmarkHundredMachines(b *testing.B) {
	e := engine.Start(b, "--audit", "--ping-every", "10s")
	e.SetFaults("kubevirt", slowAndFaulty)
	e.Apply("default", e.StaticNetwork("network", 10, 250))
	e.UntilPhase(engine.NetworkNamespaces, "default", "network", "Ready")
	var running, gone []time.Duration
	byFunction := map[string]int{}
	for b.Loop() {
		began := time.Now()
		for i := range machines {
			e.Apply("default", fmt.Sprintf("apiVersion: vitistack.io/v1alpha1\nkind: Machine\nmetadata: {name: vm-%d}\nspec: {template: small}\n", i))
		}
		await(b, "all are Running", func() (int, int) {
			return count(e.List(engine.Machines, "default", ""), func(m unstructured.Unstructured) bool { return phaseOf(m) == "Running" }), machines
		})
		running = append(running, time.Since(began))
		oneEach(b, e)
		for _, r := range e.Requests(began) {
			byFunction[r.Function()]++
		}
		began = time.Now()
		for i := range machines {
			e.Delete(engine.Machines, "default", fmt.Sprintf("vm-%d", i))
		}
		await(b, "all are gone", func() (int, int) {
			left := 0
			for _, resource := range leftovers {
				left += len(e.List(resource, "default", ""))
			}
			return left, 0
		})
		gone = append(gone, time.Since(began))
	}
	each := float64(machines * len(running))
	b.ReportMetric(milliseconds(median(running)), "ms-running")
	b.ReportMetric(milliseconds(median(gone)), "ms-gone")
	b.ReportMetric(float64(byFunction["create-vm"])/each, "create-vm-requests/machine")
	b.ReportMetric(float64(byFunction["allocate-ip"])/each, "allocate-ip-requests/machine")
	b.ReportMetric(0, "ns/op")
}

// perMachine are the kinds that have exactly one object for each of these Machines;
// leftovers are all that must be gone with them.
var (
	perMachine = []schema.GroupVersionResource{engine.VirtualMachines, engine.Instances, engine.Claims, engine.NetworkConfigurations, engine.IPAllocations}
	leftovers  = append(slices.Clone(perMachine), engine.Machines)
)

// oneEach fails unless every Machine has one virtual machine of its own, and an
// address that no other has.
func oneEach(b *testing.B, e *engine.Engine) {
	b.Helper()
	for _, kind := range perMachine {
		if n := len(e.List(kind, "default", "")); n != machines {
			b.Fatalf("%d %s for %d machines", n, kind.Resource, machines)
		}
	}
	owners, addresses := map[string]bool{}, map[string]bool{}
	for _, vm := range e.List(engine.VirtualMachines, "default", "") {
		owners[vm.GetAnnotations()["vitistack.io/uid"]] = true
	}
	for _, m := range e.List(engine.Machines, "default", "") {
		given, _, _ := unstructured.NestedStringSlice(m.Object, "status", "ipAddresses")
		for _, a := range given {
			addresses[a] = true
		}
	}
	if len(owners) != machines || len(addresses) != machines {
		b.Fatalf("%d virtual machines of their own and %d addresses for %d machines", len(owners), len(addresses), machines)
	}
}

func phaseOf(obj unstructured.Unstructured) string {
	phase, _, _ := unstructured.NestedString(obj.Object, "status", "phase")
	return phase
}

func count(objects []unstructured.Unstructured, matches func(unstructured.Unstructured) bool) (n int) {
	for _, o := range objects {
		if matches(o) {
			n++
		}
	}
	return n
}

// await waits until a number is what it has to be.
func await(b *testing.B, what string, number func() (is, want int)) {
	b.Helper()
	const patience = 10 * time.Minute
	for began := time.Now(); ; time.Sleep(time.Second) {
		is, want := number()
		if is == want {
			return
		}
		if time.Since(began) > patience {
			b.Fatalf("%s: not after %s: %d, want %d", what, patience, is, want)
		}
	}
}
