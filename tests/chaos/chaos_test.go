package chaos

import (
	"context"
	"fmt"
	"math/rand/v2"
	"sync"
	"testing"
	"time"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"

	"github.com/vitistack/stack/tests/stand/engine"
	"github.com/vitistack/stack/tests/stand/feed"
)

// start runs an engine whose events pass through a faulty network.
func start(t *testing.T, seed uint64, flags ...string) (*engine.Engine, *Network) {
	t.Helper()
	t.Logf("seed %d", seed)
	n := NewNetwork(t, seed)
	e := engine.Start(t, append([]string{"--ingress", n.URL, "--config", "RESYNC_PERIOD=3s"}, flags...)...)
	n.SetBroker(e.Ingress())
	return e, n
}

// TestEventsSuffer duplicates, drops and reorders events, while functions are killed at random. The
// result is the same.
func TestEventsSuffer(t *testing.T) {
	t.Parallel()
	const seed = 1
	e, n := start(t, seed)
	n.SetFaults(EventFaults{Drop: 0.2, Duplicate: 1, Delay: 300 * time.Millisecond})
	stop := killFunctions(t, e, seed)
	defer stop()
	e.Apply("default", e.StaticNetwork("network", 10, 250))
	e.Apply("default", e.Example("simple-kubernetescluster.yaml"))
	e.Apply("", e.Example("basic-vm.yaml"))
	e.UntilPhase(engine.KubernetesClusters, "default", "simple-cluster", "Running")
	e.UntilPhase(engine.Machines, "default", "basic-vm", "Running")
	stop()
	consistent(t, e)
	e.Delete(engine.KubernetesClusters, "default", "simple-cluster")
	e.Delete(engine.Machines, "default", "basic-vm")
	empty(t, e, "default")
}

// TestAllEventsAreLost drops every event of the source. Resync alone has to reconcile every object.
func TestAllEventsAreLost(t *testing.T) {
	t.Parallel()
	e, n := start(t, 2)
	for _, source := range e.Sources() {
		if err := e.KillProcess(source.Name); err != nil {
			t.Fatal(err)
		}
		defer e.KeepDown(source.Name)()
	}
	n.SetFaults(EventFaults{})
	e.Apply("default", e.StaticNetwork("network", 10, 250))
	e.Apply("default", e.Example("simple-kubernetescluster.yaml"))
	e.UntilPhase(engine.KubernetesClusters, "default", "simple-cluster", "Running")
	consistent(t, e)
	e.Delete(engine.KubernetesClusters, "default", "simple-cluster")
	empty(t, e, "default")
}

// functions are killed at random.
var functions = []string{"provision-network", "allocate-ip", "kea-reserve", "create-vm", "bootstrap-talos", "etcd-backup", "resync"}

// killFunctions kills a random function from time to time until stop is called.
func killFunctions(t *testing.T, e *engine.Engine, seed uint64) (stop func()) {
	t.Helper()
	random := rand.New(rand.NewPCG(seed, seed))
	return every(t, func() time.Duration { return time.Duration(100+random.IntN(400)) * time.Millisecond }, func() {
		_ = e.KillProcess(functions[random.IntN(len(functions))])
	})
}

// every calls do repeatedly until stop is called. stop may be called twice.
func every(t *testing.T, pause func() time.Duration, do func()) (stop func()) {
	t.Helper()
	ctx, cancel := context.WithCancel(t.Context())
	done := make(chan struct{})
	go func() {
		defer close(done)
		for {
			select {
			case <-ctx.Done():
				return
			case <-time.After(pause()):
				do()
			}
		}
	}()
	return sync.OnceFunc(func() {
		cancel()
		<-done
	})
}

// consistent checks that no address is allocated twice, and that each Machine has one virtual machine.
func consistent(t *testing.T, e *engine.Engine) {
	t.Helper()
	holders := map[string]string{}
	for _, a := range e.List(engine.IPAllocations, "", "") {
		address, _, _ := unstructured.NestedString(a.Object, "status", "address")
		if other, taken := holders[address]; taken && address != "" {
			t.Errorf("address %s was allocated to %s and %s", address, other, a.GetName())
		}
		holders[address] = a.GetName()
	}
	machines, vms := e.List(engine.Machines, "", ""), e.List(engine.VirtualMachines, "", "")
	if len(machines) != len(vms) {
		t.Errorf("%d virtual machines for %d Machines", len(vms), len(machines))
	}
}

// empty waits until every created object is deleted.
func empty(t *testing.T, e *engine.Engine, namespace string) {
	t.Helper()
	kinds := []schema.GroupVersionResource{
		engine.KubernetesClusters, engine.Machines, engine.NetworkConfigurations, engine.IPAllocations, engine.VirtualMachines, engine.Instances, engine.Claims,
	}
	feed.Until(t, "nothing is left", func() (bool, string) {
		left := ""
		for _, kind := range kinds {
			for _, obj := range e.List(kind, namespace, "") {
				left += fmt.Sprintf("%s %s; ", kind.Resource, obj.GetName())
			}
		}
		if leases := e.List(engine.Leases, namespace, ""); len(leases) > 0 {
			left += fmt.Sprintf("%d leases", len(leases))
		}
		return left == "", left
	})
}
