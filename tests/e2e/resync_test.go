package e2e

import (
	"fmt"
	"strings"
	"testing"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"

	"github.com/vitistack/stack/tests/stand/engine"
	"github.com/vitistack/stack/tests/stand/feed"
)

// TestEventSourceStopped stops the event source, so that only resync causes events. The test sends its
// pings. The objects of the first two layers are Ready after two pings, and after two more for each
// dependency. A whole cluster takes longer.
func TestEventSourceStopped(t *testing.T) {
	t.Parallel()
	e := engine.Start(t, "--ping-every", "24h")
	e.StopSources()
	e.Apply("default", e.StaticNetwork("network", 10, 12))
	for _, name := range []string{"one", "two"} {
		e.Apply("default", configurationOf(name))
	}
	e.Apply("default", "apiVersion: vitistack.io/v1alpha2\nkind: IPAllocation\nmetadata: {name: own}\nspec: {networkNamespaceName: network}\n")
	periods(t, e, 2)
	for _, name := range []string{"one", "two"} {
		settledWith(t, e.Get(engine.NetworkConfigurations, "default", name), "NetworkConfigured")
	}
	settledWith(t, e.Get(engine.IPAllocations, "default", "own"), "Allocated")

	e.Apply("default", configurationOf("three"))
	periods(t, e, 1)
	settledWith(t, e.Get(engine.NetworkConfigurations, "default", "three"), "PoolExhausted")
	e.Delete(engine.IPAllocations, "default", "own")
	periods(t, e, 2)
	if e.Get(engine.IPAllocations, "default", "own") != nil {
		t.Error("after two pings the IPAllocation still exists")
	}
	settledWith(t, e.Get(engine.NetworkConfigurations, "default", "three"), "NetworkConfigured")

	const cluster = "simple-cluster"
	e.Apply("shop", strings.ReplaceAll(e.StaticNetwork("network", 20, 250), "vlanId: 100", "vlanId: 101"))
	e.Apply("shop", e.Example("simple-kubernetescluster.yaml"))
	n := 0
	feed.Until(t, cluster+" is Running", func() (bool, string) {
		n++
		periods(t, e, 1)
		obj := e.Get(engine.KubernetesClusters, "shop", cluster)
		phase, _, _ := unstructured.NestedString(obj.Object, "status", "phase")
		reason, message := ready(obj)
		return phase == "Running", fmt.Sprintf("%s after %d periods: %s: %s", phase, n, reason, message)
	})
	t.Logf("a cluster is Running after %d pings without any event of a change", n)
}

// TestNetworkComesLast creates the network after every object in it. Events alone make every object
// Ready.
func TestNetworkComesLast(t *testing.T) {
	t.Parallel()
	e := engine.Start(t, "--ping-every", "24h")
	e.Apply("default", e.Example("simple-kubernetescluster.yaml"))
	e.Apply("default", e.Example("basic-vm.yaml"))
	e.Apply("default", configurationOf("device"))
	for name, kind := range map[string]schema.GroupVersionResource{
		"simple-cluster": engine.KubernetesClusters, "basic-vm": engine.Machines, "device": engine.NetworkConfigurations,
	} {
		feed.Until(t, name+" reports the missing network", func() (bool, string) {
			reason, message := ready(e.Get(kind, "default", name))
			return reason == "NoNetworkNamespace" || reason == "NetworkNamespaceNotFound", reason + ": " + message
		})
	}
	e.Apply("default", e.StaticNetwork("network", 10, 250))
	e.UntilPhase(engine.NetworkConfigurations, "default", "device", "Ready")
	e.UntilPhase(engine.Machines, "default", "basic-vm", "Running")
	e.UntilPhase(engine.KubernetesClusters, "default", "simple-cluster", "Running")
}

// TestBeforeSinkBindings starts every process without K_SINK, as Knative starts the first revision of
// a Service. A SinkBinding sets it later, or never, if its webhook ignores the namespace.
func TestBeforeSinkBindings(t *testing.T) {
	t.Parallel()
	e := engine.Start(t, "--without-sink-bindings", "--config", "RESYNC_PERIOD=5s")
	e.Apply("default", e.StaticNetwork("network", 10, 250))
	e.Apply("default", e.Example("simple-kubernetescluster.yaml"))
	e.UntilPhase(engine.KubernetesClusters, "default", "simple-cluster", "Running")
}

// periods sends pings as the PingSource does. After each it waits until all resulting events are
// delivered.
func periods(t *testing.T, e *engine.Engine, n int) {
	t.Helper()
	for range n {
		e.RequestRound()
		quiet := 0
		feed.Until(t, "everything is delivered", func() (bool, string) {
			var busy []string
			for _, trigger := range e.Report().Triggers {
				if trigger.InFlight+trigger.Queued > 0 {
					busy = append(busy, trigger.Name)
				}
			}
			if quiet++; len(busy) > 0 {
				quiet = 0
			}
			return quiet > 4, strings.Join(busy, ", ")
		})
	}
}

func settledWith(t *testing.T, obj *unstructured.Unstructured, want string) {
	t.Helper()
	if reason, message := ready(obj); reason != want {
		t.Errorf("got %s: %s, want %s", reason, message, want)
	}
}

// configurationOf returns a NetworkConfiguration with an interface that has a MAC address.
func configurationOf(name string) string {
	return fmt.Sprintf(`apiVersion: vitistack.io/v1alpha1
kind: NetworkConfiguration
metadata:
  name: %s
spec:
  networkNamespaceName: network
  networkInterfaces:
    - {name: eth0, macAddress: "02:00:%02x:%02x:%02x:01"}
`, name, len(name), name[0], name[1])
}
