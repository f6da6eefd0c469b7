// Package e2e runs the whole stack as a user would: it applies manifests, waits for machines and
// clusters, deletes them, and checks that nothing is left.
package e2e

import (
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"

	"github.com/vitistack/stack/tests/stand/engine"
	"github.com/vitistack/stack/tests/stand/feed"
)

func TestExamples(t *testing.T) {
	t.Parallel()
	e := engine.Start(t)
	e.Apply("default", e.StaticNetwork("network", 10, 250))

	t.Run("Network", func(t *testing.T) {
		e.Apply("", e.Example("lab-network.yaml"))
		obj := e.UntilPhase(engine.NetworkNamespaces, "datacenter-01", "lab-network", "Ready")
		status, _, _ := unstructured.NestedMap(obj.Object, "status")
		for _, more := range []string{"conditions", "observedGeneration", "nextCheckTime", "ipAllocationSummary"} {
			delete(status, more)
		}
		want := map[string]any{
			"provisioningPhase": "Ready", "ipv4Prefix": "192.168.10.0/24", "ipv4Gateway": "192.168.10.1", "vlanId": int64(200),
			"datacenterIdentifier": "no-west-az1", "supervisorIdentifier": "lab-01", "phase": "Active", "status": "OK",
		}
		if diff := cmp.Diff(want, status); diff != "" {
			t.Errorf("status (-want +got):\n%s", diff)
		}
	})

	t.Run("Reservation", func(t *testing.T) {
		e.Apply("", e.Example("tour-dhcp.yaml"))
		obj := e.UntilPhase(engine.NetworkConfigurations, "tour-dhcp", "printer", "Ready")
		interfaces, _, _ := unstructured.NestedSlice(obj.Object, "status", "networkInterfaces")
		if first, ok := interfaces[0].(map[string]any); !ok || first["dhcpReserved"] != true || first["ipv4Subnet"] != "127.64.20.0/24" {
			t.Errorf("got %v, want a reservation that was read back from Kea", interfaces)
		}
	})

	t.Run("Machines", func(t *testing.T) {
		e.Apply("default", e.Example("networked-vm-networks.yaml"))
		disks := map[string][]string{
			"basic-vm": {"basic-vm-root 40Gi"}, "custom-vm": {"custom-vm-data 100Gi", "custom-vm-root 20Gi"},
			"networked-vm": {"networked-vm-root 40Gi"}, "cloud-init-vm": {"cloud-init-vm-root 80Gi"},
		}
		for name := range disks {
			e.Apply("", e.Example(name+".yaml"))
		}
		for name, want := range disks {
			e.UntilPhase(engine.Machines, "default", name, "Running")
			if vm := e.Get(engine.VirtualMachines, "default", name); vm == nil || vm.GetLabels()["vitistack.io/machine"] != name {
				t.Errorf("%s: its VirtualMachine is %v", name, vm)
			}
			var got []string
			for _, c := range e.List(engine.Claims, "default", "vitistack.io/machine="+name) {
				size, _, _ := unstructured.NestedString(c.Object, "spec", "resources", "requests", "storage")
				got = append(got, c.GetName()+" "+size)
			}
			slices.Sort(got)
			if diff := cmp.Diff(want, got); diff != "" {
				t.Errorf("%s: disks (-want +got):\n%s", name, diff)
			}
		}
	})

	t.Run("Metrics", func(t *testing.T) {
		// Machines are counted at each check of their hypervisor. The next scheduled check may be
		// minutes away.
		(&env{e, t}).patch(engine.MachineProviders, "", "kubevirt", `{"metadata":{"annotations":{"vitistack.io/reconcile":"now"}}}`)
		for _, want := range []string{
			`vitistack_function_deliveries_total{function="create-vm",outcome="done"} `, `vitistack_function_deliveries_total{function="provision-network",outcome="done"} `,
			`kubevirt_operator_reconciliation_duration_seconds_bucket{controller="Machine",le="+Inf"} `, `kubevirt_operator_machines_total{phase="Running",template="large"} 1`,
			`kea_operator_server_health{server="primary",type="dhcp4"} 1`,
		} {
			feed.Until(t, "the gateway has "+want, func() (bool, string) {
				metrics, err := e.Ask("metrics")
				return err == nil && strings.Contains(string(metrics), "\n"+want), fmt.Sprintf("%s %v", metrics, err)
			})
		}
	})

	t.Run("WaitsSayForWhat", func(t *testing.T) {
		e.Apply("empty", e.Example("simple-kubernetescluster.yaml"))
		e.Apply("empty", strings.ReplaceAll(e.Example("basic-vm.yaml"), "namespace: default", "namespace: empty"))
		for resource, name := range map[schema.GroupVersionResource]string{engine.KubernetesClusters: "simple-cluster", engine.Machines: "basic-vm"} {
			feed.Until(t, name+" reports what it waits for", func() (bool, string) {
				reason, message := ready(e.Get(resource, "empty", name))
				return reason == "NoNetworkNamespace" && strings.Contains(message, "create one"), reason + ": " + message
			})
			path := "api/v1/objects/" + string(e.Get(resource, "empty", name).GetUID())
			feed.Until(t, path+" has its Event", func() (bool, string) {
				body, err := e.Ask(path)
				var object struct {
					Events []struct{ Type, Reason string }
				}
				err = errors.Join(err, json.Unmarshal(body, &object))
				return slices.ContainsFunc(object.Events, func(event struct{ Type, Reason string }) bool {
					return event.Type == "Warning" && event.Reason == "NoNetworkNamespace"
				}), fmt.Sprintf("%s %v", body, err)
			})
		}
	})
}

// ready returns reason and message of an object's condition Ready.
func ready(obj *unstructured.Unstructured) (reason, message string) {
	c := readyCondition(obj)
	return c.Reason, c.Message
}

// readyCondition returns the condition Ready of an object. It is zero if there is none.
func readyCondition(obj *unstructured.Unstructured) (ready metav1.Condition) {
	if obj == nil {
		return ready
	}
	conditions, _, _ := unstructured.NestedSlice(obj.Object, "status", "conditions")
	for _, c := range conditions {
		if c, ok := c.(map[string]any); ok && c["type"] == "Ready" {
			_ = runtime.DefaultUnstructuredConverter.FromUnstructured(c, &ready) // an invalid one is as good as none
		}
	}
	return ready
}

func TestClusterLivesAndGoes(t *testing.T) {
	t.Parallel()
	// The full round of every ten minutes would start functions if it came in the idle time.
	e := engine.Start(t, "--audit", "--idle", "3s", "--ping-every", "24h", "--config", "RESYNC_PERIOD=5s")
	e.Apply("default", e.StaticNetwork("network", 10, 250))
	e.UntilPhase(engine.NetworkNamespaces, "default", "network", "Ready")
	e.Apply("default", e.Example("simple-kubernetescluster.yaml"))
	e.UntilPhase(engine.KubernetesClusters, "default", "simple-cluster", "Running")
	if machines := e.List(engine.Machines, "default", "cluster.vitistack.io/cluster-name=simple-cluster"); len(machines) != 3 {
		t.Errorf("%d machines have the cluster's label, want 3", len(machines))
	}
	for name, key := range map[string]string{"simple-cluster-kubeconfig": "kubeconfig", "simple-cluster-talosconfig": "talosconfig"} {
		if secret := e.Get(engine.Secrets, "default", name); secret == nil || data(secret, key) == "" {
			t.Errorf("Secret %s with the key %s is missing", name, key)
		}
	}
	saved := names(t, filepath.Join(e.Results(), "simple-cluster"))
	if want := []string{"simple-cluster-cp-0.talos.yaml", "simple-cluster-cp-0.yaml"}; len(saved) != 6 || !slices.Equal(saved[:2], want) {
		t.Errorf("saved manifests: %v, want two files for each machine", saved)
	}
	nodesAreReady(t, e)
	feed.Until(t, "resync has counted the machines of the provider", func() (bool, string) {
		provider := e.Get(engine.MachineProviders, "", "kubevirt")
		n, _, _ := unstructured.NestedInt64(provider.Object, "status", "machineCount")
		return n == 3, fmt.Sprint(n)
	})
	isIdle(t, e)
	e.Delete(engine.KubernetesClusters, "default", "simple-cluster")
	nothingIsLeft(t, e)
}

// data returns the decoded value of a key in a Secret.
func data(secret *unstructured.Unstructured, key string) string {
	encoded, _, _ := unstructured.NestedString(secret.Object, "data", key)
	var raw []byte
	if json.Unmarshal([]byte(`"`+encoded+`"`), &raw) != nil {
		return ""
	}
	return string(raw)
}

// nodesAreReady lists the nodes of a cluster.
func nodesAreReady(t *testing.T, e *engine.Engine) {
	t.Helper()
	if out := getNodes(t, e, "--no-headers"); strings.Count(out, " Ready ") != 3 {
		t.Errorf("not all nodes are Ready:\n%s", out)
	}
}

// getNodes runs kubectl get nodes with the kubeconfig that the owner of the cluster simple-cluster gets.
func getNodes(t *testing.T, e *engine.Engine, args ...string) string {
	t.Helper()
	kubeconfig := filepath.Join(t.TempDir(), "kubeconfig")
	if err := os.WriteFile(kubeconfig, []byte(data(e.Get(engine.Secrets, "default", "simple-cluster-kubeconfig"), "kubeconfig")), 0o600); err != nil {
		t.Fatal(err)
	}
	out, err := exec.CommandContext(t.Context(), engine.Local(t), append([]string{"kubectl", "--kubeconfig", kubeconfig, "get", "nodes"}, args...)...).CombinedOutput()
	if err != nil {
		t.Fatalf("kubectl get nodes: %v\n%s", err, out)
	}
	return string(out)
}

// isIdle waits until no function runs, and then checks that none is started and nothing is written
// but the heartbeats, although a MachineProvider and a cluster exist.
func isIdle(t *testing.T, e *engine.Engine) {
	t.Helper()
	feed.Until(t, "all functions have ended", func() (bool, string) {
		var running []string
		for _, p := range e.Report().Processes {
			if p.Kind == "function" && p.PID != 0 {
				running = append(running, p.Name)
			}
		}
		return len(running) == 0, strings.Join(running, ", ")
	})
	before, since := starts(e), time.Now()
	const window = 20 * time.Second // several times the interval of resync
	feed.Until(t, "some idle time has passed", func() (bool, string) { return time.Since(since) > window, "" })
	if after := starts(e); !maps.Equal(before, after) {
		t.Errorf("functions were started in an idle system: %v, then %v", before, after)
	}
	for _, r := range e.Requests(since) {
		if r.Writes() && !r.Heartbeat() {
			t.Errorf("an idle system wrote: %s %s %s %s/%s", r.User.Username, r.Verb, r.ObjectRef.Resource, r.ObjectRef.Namespace, r.ObjectRef.Name)
		}
	}
}

// TestDeadNodeIsNoticed crashes a worker without a change of any object or hypervisor, and starts it
// again. No full round of resync runs meanwhile.
func TestDeadNodeIsNoticed(t *testing.T) {
	t.Parallel()
	e := engine.Start(t, "--config", "RESYNC_PERIOD=5s", "--config", "NODE_PROBE_INTERVAL=1s")
	e.Apply("default", e.StaticNetwork("network", 10, 250))
	e.UntilPhase(engine.NetworkNamespaces, "default", "network", "Ready")
	e.Apply("default", e.Example("simple-kubernetescluster.yaml"))
	e.UntilPhase(engine.KubernetesClusters, "default", "simple-cluster", "Running")
	until := func(what, want string) {
		t.Helper()
		feed.Until(t, what, func() (bool, string) {
			status, message := condition(e.Get(engine.KubernetesClusters, "default", "simple-cluster"), "NodesReady")
			return status == want, status + " " + message
		})
	}
	until("all nodes are Ready", "True")
	var workers []string
	for _, m := range e.List(engine.Machines, "default", "cluster.vitistack.io/cluster-name=simple-cluster") {
		if addresses, _, _ := unstructured.NestedStringSlice(m.Object, "status", "ipAddresses"); !strings.Contains(m.GetName(), "-cp-") {
			workers = append(workers, addresses[0])
		}
	}
	// The gateway reports a silent node only after the node has answered once.
	began := time.Now()
	feed.Until(t, "the gateway has connected to the nodes", func() (bool, string) { return time.Since(began) > 3*time.Second, "" })
	e.Crash(workers[0])
	until("the crash is noticed", "False")
	e.Crash()
	until("the recovery is noticed", "True")
}

// condition returns the status and message of an object's condition.
func condition(o *unstructured.Unstructured, name string) (status, message string) {
	conditions, _, _ := unstructured.NestedSlice(o.Object, "status", "conditions")
	for _, c := range conditions {
		if c := c.(map[string]any); c["type"] == name {
			return fmt.Sprint(c["status"]), fmt.Sprint(c["message"])
		}
	}
	return "", ""
}

// TestNamespacesDuringBurst creates 20 namespaces with objects. The event sources restart for each
// namespace, as with Knative. Resync reconciles what no event reports.
func TestNamespacesDuringBurst(t *testing.T) {
	t.Parallel()
	e := engine.Start(t, "--config", "RESYNC_PERIOD=3s")
	const namespaces = 20
	for i := range namespaces {
		namespace := fmt.Sprintf("tenant-%d", i)
		e.Apply(namespace, fmt.Sprintf(`apiVersion: vitistack.io/v1alpha2
kind: NetworkNamespace
metadata: {name: network}
spec:
  datacenterIdentifier: no-west-az1
  networkProvisioning: {provider: manual, manual: {ipv4CIDR: 10.20.%d.0/24, ipv4Gateway: 10.20.%d.1, vlanId: %d}}
  ipAllocation: {type: static}
`, i, i, 400+i))
		for _, source := range []string{"apiserversource-vitistack", "apiserversource-vitistack-resources"} {
			if err := e.KillProcess(source); err != nil {
				t.Fatal(err)
			}
		}
		e.Apply(namespace, configurationOf("device"))
	}
	for i := range namespaces {
		e.UntilPhase(engine.NetworkConfigurations, fmt.Sprintf("tenant-%d", i), "device", "Ready")
	}
}

// starts returns how often each function was started.
func starts(e *engine.Engine) map[string]int {
	n := map[string]int{}
	for _, p := range e.Report().Processes {
		if p.Kind == "function" {
			n[p.Name] = p.Starts
		}
	}
	return n
}

func nothingIsLeft(t *testing.T, e *engine.Engine) {
	t.Helper()
	kinds := []schema.GroupVersionResource{
		engine.KubernetesClusters, engine.Machines, engine.NetworkConfigurations, engine.IPAllocations, engine.Leases, engine.Secrets,
		engine.ConfigMaps, engine.Claims, engine.Volumes, engine.VirtualMachines, engine.Instances,
	}
	feed.Until(t, "nothing is left", func() (bool, string) {
		var left []string
		for _, kind := range kinds {
			for _, obj := range e.List(kind, "", "") {
				if ns := obj.GetNamespace(); ns == "default" || (ns == "" && kind == engine.Volumes) {
					left = append(left, kind.Resource+" "+obj.GetName())
				}
			}
		}
		return len(left) == 0, strings.Join(left, ", ")
	})
	if files := names(t, e.Results()); len(files) > 0 {
		t.Errorf("files are left: %v", files)
	}
}

func names(t *testing.T, folder string) (names []string) {
	t.Helper()
	entries, err := os.ReadDir(folder)
	if err != nil && !os.IsNotExist(err) {
		t.Fatal(err)
	}
	for _, entry := range entries {
		names = append(names, entry.Name())
	}
	return names
}

// TestEverythingDies kills all processes at once while a cluster is created, and restarts the engine
// on the same state.
func TestEverythingDies(t *testing.T) {
	t.Parallel()
	e := engine.Start(t)
	e.Apply("default", e.StaticNetwork("network", 10, 250))
	e.Apply("default", e.Example("simple-kubernetescluster.yaml"))
	for _, done := range []func() bool{
		func() bool { return len(e.List(engine.Machines, "default", "")) > 0 },
		func() bool { return len(e.List(engine.Instances, "default", "")) > 0 },
	} {
		feed.Until(t, "the next step is done", func() (bool, string) { return done(), "" })
		e.Kill()
		e.Run()
	}
	e.UntilPhase(engine.KubernetesClusters, "default", "simple-cluster", "Running")
	if n := len(e.List(engine.VirtualMachines, "default", "")); n != 3 {
		t.Errorf("%d virtual machines, want 3: none lost, none created twice", n)
	}
	nodesAreReady(t, e)
	e.Delete(engine.KubernetesClusters, "default", "simple-cluster")
	nothingIsLeft(t, e)
}

// TestAnyProcessDies kills each process in turn while a cluster is created.
func TestAnyProcessDies(t *testing.T) {
	t.Parallel()
	e := engine.Start(t, "--config", "RESYNC_PERIOD=2s")
	e.Apply("default", e.StaticNetwork("network", 10, 250))
	victims := []string{
		"etcd", "kube-apiserver", "kube-controllers", "apiserversource-vitistack", "apiserversource-vitistack-resources", "sim", "gateway",
		"provision-network", "allocate-ip", "create-vm", "bootstrap-talos", "resync",
	}
	e.Apply("default", e.Example("simple-kubernetescluster.yaml"))
	for _, victim := range victims {
		if err := e.KillProcess(victim); err != nil {
			t.Errorf("kill %s: %v", victim, err)
		}
	}
	e.UntilPhase(engine.KubernetesClusters, "default", "simple-cluster", "Running")
	for _, victim := range victims {
		if err := e.KillProcess(victim); err != nil {
			t.Errorf("kill %s: %v", victim, err)
		}
		feed.Until(t, "the API server answers after "+victim+" died", func() (bool, string) {
			_, err := e.Client.Resource(engine.Namespaces).Get(t.Context(), "default", metav1.GetOptions{})
			return err == nil, fmt.Sprint(err)
		})
	}
	e.Delete(engine.KubernetesClusters, "default", "simple-cluster")
	nothingIsLeft(t, e)
}
