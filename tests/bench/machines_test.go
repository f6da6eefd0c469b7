package bench

import (
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"testing"
	"time"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"

	"github.com/vitistack/stack/tests/stand/engine"
)

// machines is the number of concurrent creations.
const machines = 100

// slowAndFaulty is the fault plan of a hypervisor with a delay of one second, where one of twenty
// requests fails.
const slowAndFaulty = `[{"latency": "1s"}, {"error": "503", "rate": 0.05}]`

// manySite is a hypervisor with many machines.
type manySite struct {
	provider string
	// own are the kinds with exactly one object for each machine, in addition to perMachine.
	own []schema.GroupVersionResource
	// vms returns the UIDs of the machines with a virtual machine, and volumes returns all disks.
	vms     func(b *testing.B, e *engine.Engine) []string
	volumes func(b *testing.B, e *engine.Engine) int
}

var manySites = map[string]manySite{
	"KubeVirt": {
		provider: "kubevirt",
		own:      []schema.GroupVersionResource{engine.VirtualMachines, engine.Instances, engine.Claims},
		vms: func(_ *testing.B, e *engine.Engine) (uids []string) {
			for _, vm := range e.List(engine.VirtualMachines, "default", "") {
				uids = append(uids, vm.GetAnnotations()["vitistack.io/uid"])
			}
			return uids
		},
		volumes: func(_ *testing.B, e *engine.Engine) int { return len(e.List(engine.Claims, "default", "")) },
	},
	"Proxmox": {
		provider: "proxmox",
		vms: func(b *testing.B, e *engine.Engine) (uids []string) {
			for _, vm := range proxmoxState(b, e).Machines {
				uids = append(uids, uidOf.FindString(vm.Config["description"]))
			}
			return uids
		},
		volumes: func(b *testing.B, e *engine.Engine) int { return len(proxmoxState(b, e).Volumes) },
	},
}

// uidOf matches the UID of a machine in a description.
var uidOf = regexp.MustCompile(`[0-9a-f]{8}(?:-[0-9a-f]{4}){3}-[0-9a-f]{12}`)

// proxmoxCluster is the stored state of the simulated Proxmox VE.
type proxmoxCluster struct {
	Machines []struct{ Config map[string]string }
	Volumes  []any
}

func proxmoxState(b *testing.B, e *engine.Engine) (c proxmoxCluster) {
	b.Helper()
	doc, err := os.ReadFile(filepath.Join(e.Dir, "sim", "proxmox.json"))
	if err == nil {
		err = json.Unmarshal(doc, &c)
	}
	if err != nil {
		b.Fatal(err)
	}
	return c
}

// BenchmarkHundredMachines creates a hundred Machines at once on a slow and faulty hypervisor, and
// deletes them. It fails unless each has exactly one virtual machine, and nothing is left in the end.
func BenchmarkHundredMachines(b *testing.B) {
	for name, site := range manySites {
		b.Run(name, func(b *testing.B) { hundredMachines(b, site) })
	}
}

func hundredMachines(b *testing.B, site manySite) {
	e := engine.Start(b, "--audit", "--config", "RESYNC_PERIOD=10s")
	e.Apply("default", e.StaticNetwork("network", 10, 250))
	e.UntilPhase(engine.NetworkNamespaces, "default", "network", "Ready")
	e.UntilPhase(engine.MachineProviders, "", site.provider, "Ready")
	e.SetFaults(site.provider, slowAndFaulty)
	var running, gone []time.Duration
	byFunction := map[string]int{}
	for b.Loop() {
		began := time.Now()
		for i := range machines {
			e.Apply("default", fmt.Sprintf(
				"apiVersion: vitistack.io/v1alpha1\nkind: Machine\nmetadata: {name: vm-%d}\nspec: {template: small, providerRef: {name: %s}}\n", i, site.provider))
		}
		await(b, "all are Running", func() (int, int) {
			return count(e.List(engine.Machines, "default", ""), func(m unstructured.Unstructured) bool { return phaseOf(m) == "Running" }), machines
		})
		running = append(running, time.Since(began))
		oneEach(b, e, site, machines)
		for _, r := range e.Requests(began) {
			byFunction[r.Function()]++
		}
		began = time.Now()
		for i := range machines {
			e.Delete(engine.Machines, "default", fmt.Sprintf("vm-%d", i))
		}
		await(b, "all are deleted", func() (int, int) { return left(b, e, site), 0 })
		gone = append(gone, time.Since(began))
	}
	each := float64(machines * len(running))
	b.ReportMetric(milliseconds(median(running)), "ms-running")
	b.ReportMetric(milliseconds(median(gone)), "ms-gone")
	b.ReportMetric(float64(byFunction["create-vm"])/each, "create-vm-requests/machine")
	b.ReportMetric(float64(byFunction["allocate-ip"])/each, "allocate-ip-requests/machine")
	b.ReportMetric(0, "ns/op")
}

// perMachine are the kinds with exactly one object for each machine on every hypervisor.
var perMachine = []schema.GroupVersionResource{engine.NetworkConfigurations, engine.IPAllocations}

// left counts what must be deleted with the machines: their objects, their virtual machines and disks,
// and their claimed VMIDs.
func left(b *testing.B, e *engine.Engine, site manySite) (n int) {
	b.Helper()
	for _, kind := range slices.Concat(perMachine, site.own, []schema.GroupVersionResource{engine.Machines}) {
		n += len(e.List(kind, "default", ""))
	}
	n += len(e.List(engine.Leases, "vitistack-system", "vitistack.io/holder"))
	return n + len(site.vms(b, e)) + site.volumes(b, e)
}

// oneEach fails unless every Machine has a virtual machine and an address of its own.
func oneEach(b *testing.B, e *engine.Engine, site manySite, machines int) {
	b.Helper()
	for _, kind := range slices.Concat(perMachine, site.own) {
		if n := len(e.List(kind, "default", "")); n != machines {
			b.Fatalf("%d %s for %d machines", n, kind.Resource, machines)
		}
	}
	vms := site.vms(b, e)
	addresses := map[string]bool{}
	for _, m := range e.List(engine.Machines, "default", "") {
		given, _, _ := unstructured.NestedStringSlice(m.Object, "status", "ipAddresses")
		for _, a := range given {
			addresses[a] = true
		}
		if !slices.Contains(vms, string(m.GetUID())) {
			b.Fatalf("%s has no virtual machine", m.GetName())
		}
	}
	if len(vms) != machines || len(addresses) != machines {
		b.Fatalf("%d virtual machines and %d addresses for %d machines", len(vms), len(addresses), machines)
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

// await waits until a number has its wanted value.
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
