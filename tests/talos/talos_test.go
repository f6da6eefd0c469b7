// Package talos runs the stack with nodes that are the real Talos Linux.
package talos

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/clientcmd"

	"github.com/vitistack/stack/apis/versions"
	"github.com/vitistack/stack/tests/stand/engine"
	stand "github.com/vitistack/stack/tests/stand/kubernetes"
	"github.com/vitistack/stack/tests/stand/lab"
)

const (
	namespace   = "default"
	clusterName = "real"
	// upgradedVersion is the version of the second set of programs of build.sh, which differs from the first in the version only.
	upgradedVersion = "1.35.7"
)

// patch makes nodes pull images from the registry of the lab. A kubelet from 1.35 runs on cgroups of version 1 only on
// request, and would taint a node while less than 15 % of this machine's disk is free.
const patch = `machine:
  registries:
    mirrors:
      registry.k8s.io: {endpoints: ["http://` + lab.Gateway + ":" + registryPort + `"]}
      ghcr.io: {endpoints: ["http://` + lab.Gateway + ":" + registryPort + `"]}
  kubelet:
    extraConfig:
      failCgroupV1: false
      evictionHard: {nodefs.available: 1%, imagefs.available: 1%}
`

// network is a network in the lab, and the patch of its clusters.
const network = `apiVersion: vitistack.io/v1alpha2
kind: NetworkNamespace
metadata: {name: lab}
spec:
  datacenterIdentifier: no-west-az1
  supervisorIdentifier: test
  networkProvisioning:
    provider: manual
    manual: {ipv4CIDR: ` + lab.Network + `, ipv4Gateway: ` + lab.Gateway + `, vlanId: 100}
  ipAllocation:
    type: static
    static: {ipv4RangeStart: 10.195.0.10, ipv4RangeEnd: 10.195.0.100, dns: [` + lab.Gateway + `]}
---
apiVersion: v1
kind: ConfigMap
metadata: {name: lab-patches}
data:
  lab.yaml: |
    %s
---
apiVersion: v1
kind: ConfigMap
metadata: {name: lab-restart}
data:
  restart.yaml: |
    cluster:
      apiServer:
        extraArgs:
          shutdown-watch-termination-grace-period: 5s
`

// cluster is a cluster in that network.
const cluster = `apiVersion: vitistack.io/v1alpha1
kind: KubernetesCluster
metadata: {name: ` + clusterName + `}
spec:
  data: {provider: talos, environment: dev}
  networkNamespaceName: lab
  talos:
    patches: {all: [lab-patches], controlPlane: [lab-restart]}
  topology:
    version: "` + stand.Version + `"
    controlplane: {replicas: 1}
    workers:
      - {name: w, replicas: 1}
`

// TestTalos creates a cluster of real Talos nodes, scales its control plane and its workers, changes and upgrades it, and deletes it.
// VITI_TALOS is the folder of build.sh and rootfs.sh.
func TestTalos(t *testing.T) {
	e := newEnv(t, "make test-talos RESULTS=tests/talos/RESULTS.md")
	e.measure("create one control plane and one worker", func() {
		e.Apply(namespace, cluster)
		e.awaitRunning(2)
	})
	e.checkNodes(t, 1, 1)
	t.Run("Configuration", e.checkConfiguration)
	t.Run("Pods", e.checkPods)
	t.Run("Events", e.checkEvents)

	e.scale("scale to three control planes and two workers", 3, 2)
	e.checkNodes(t, 3, 2)
	t.Run("VirtualAddress", e.checkVirtualAddress)
	e.measureOutage("have the API servers get their new configurations", func() { e.checkPods(t) })
	e.measure("change the configuration of three API servers", func() { e.changeAPIServers(t) })
	e.measureOutage("upgrade Kubernetes", func() { e.upgrade(t) })
	e.checkNodes(t, 3, 2)
	e.scale("scale to one control plane and one worker", 1, 1)
	e.checkNodes(t, 1, 1)
	e.checkRemoved(t, "cp-1", "cp-2", "w-1")
	e.measure("correct a patch by which no kubelet starts", func() { e.correctPatch("machine: {kubelet: {extraArgs: {no-such-flag: \"1\"}}}") })
	e.measure("correct a patch by which the only API server does not start", func() { e.correctPatch("cluster: {apiServer: {extraArgs: {no-such-flag: \"1\"}}}") })
	e.measure("delete the cluster", e.deleteCluster)
	e.deleteNetwork()
}

// measure adds the time that a step takes to the page of results.
func (e *env) measure(step string, do func()) {
	e.t.Helper()
	began := time.Now()
	do()
	e.results.Table("A cluster of Talos nodes", "from the change until the cluster is Running with all nodes Ready").Row(step, time.Since(began))
}

// awaitRunning waits until the cluster is Running with a number of nodes, and prints each message on the way.
func (e *env) awaitRunning(nodes int) {
	e.t.Helper()
	last := ""
	e.await(fmt.Sprintf("KubernetesCluster %s is Running with %d nodes", clusterName, nodes), 10*time.Minute, func(context.Context) error {
		cluster := e.Get(engine.KubernetesClusters, namespace, clusterName)
		phase, _, _ := unstructured.NestedString(cluster.Object, "status", "phase")
		observed, _, _ := unstructured.NestedInt64(cluster.Object, "status", "observedGeneration")
		ready, reason, message := condition(cluster, "Ready")
		message = reason + ": " + message
		if message != last {
			e.step("%s: %s", phase, message)
			last = message
		}
		machines := e.List(engine.Machines, namespace, "")
		if phase == "Running" && ready && observed == cluster.GetGeneration() && len(machines) == nodes {
			return nil
		}
		return fmt.Errorf("phase %s, %d machines: %s", phase, len(machines), message)
	})
	e.step("KubernetesCluster %s is Running", clusterName)
}

// checkEvents checks that the real machined has sent its events to the gateway, which has requested reconciles.
func (e *env) checkEvents(t *testing.T) {
	text, err := e.Ask("metrics")
	if err != nil {
		t.Fatal(err)
	}
	for line := range strings.Lines(string(text)) {
		if series, ok := strings.CutPrefix(strings.TrimSpace(line), "vitistack_operator_node_"); ok {
			e.step("gateway: %s", series)
		}
	}
	for _, zero := range []string{`events_received_total{outcome="accepted"} 0`, `events_forwarded_total{outcome="sent"} 0`} {
		if strings.Contains(string(text), "vitistack_operator_node_"+zero+"\n") {
			t.Errorf("no event of a node has had its cluster reconciled: %s", zero)
		}
	}
}

// condition returns a condition of a cluster.
func condition(cluster *unstructured.Unstructured, conditionType string) (isTrue bool, reason, message string) {
	conditions, _, _ := unstructured.NestedSlice(cluster.Object, "status", "conditions")
	for _, condition := range conditions {
		if c, ok := condition.(map[string]any); ok && c["type"] == conditionType {
			return c["status"] == "True", fmt.Sprint(c["reason"]), fmt.Sprint(c["message"])
		}
	}
	return false, "", ""
}

// checkNodes compares what the tenant's API and Talos's own client say with the number of nodes.
func (e *env) checkNodes(t *testing.T, controlPlanes, workers int) {
	t.Helper()
	client := e.workload()
	version, _, _ := unstructured.NestedString(e.Get(engine.KubernetesClusters, namespace, clusterName).Object, "spec", "topology", "version")
	addresses := map[bool][]string{}
	e.await("all Nodes are Ready in the API of the tenant", 2*time.Minute, func(ctx context.Context) error {
		list, err := client.CoreV1().Nodes().List(ctx, metav1.ListOptions{})
		if err != nil {
			return err
		}
		clear(addresses)
		for _, node := range list.Items {
			if err := checkNode(node, version); err != nil {
				return err
			}
			_, controlPlane := node.Labels["node-role.kubernetes.io/control-plane"]
			addresses[controlPlane] = append(addresses[controlPlane], internalAddress(node))
		}
		if len(addresses[true]) != controlPlanes || len(addresses[false]) != workers {
			return fmt.Errorf("there are %d control planes and %d workers", len(addresses[true]), len(addresses[false]))
		}
		return nil
	})
	e.step("the tenant's API has %d control planes and %d workers, all Ready", controlPlanes, workers)

	config := e.credential("talosconfig")
	for _, address := range slices.Concat(addresses[true], addresses[false]) {
		out, err := talosctl(t.Context(), "--talosconfig", config, "--nodes", address, "version")
		if err != nil || !strings.Contains(out, "Tag:         v"+versions.DefaultTalos) {
			t.Errorf("talosctl version of %s: %v\n%s", address, err, out)
		}
	}
	members, err := talosctl(t.Context(), "--talosconfig", config, "--nodes", addresses[true][0], "etcd", "members")
	if err != nil {
		t.Fatal(err)
	}
	lines := strings.Split(strings.TrimSpace(members), "\n")[1:]
	if len(lines) != controlPlanes {
		t.Errorf("talosctl etcd members prints %d members, want %d:\n%s", len(lines), controlPlanes, members)
	}
	for _, line := range lines {
		if !strings.HasSuffix(strings.TrimSpace(line), "false") {
			t.Errorf("a member is a learner: %s", line)
		}
	}
	e.step("talosctl: version of %d nodes, %d voting members of etcd", controlPlanes+workers, len(lines))
	e.checkHealth(t)
}

// checkNode returns an error unless a node is Ready with a version of Kubernetes on Talos.
func checkNode(node corev1.Node, version string) error {
	info := node.Status.NodeInfo
	if info.KubeletVersion != "v"+version || !strings.HasPrefix(info.OSImage, "Talos") {
		return fmt.Errorf("Node %s runs kubelet %s on %s", node.Name, info.KubeletVersion, info.OSImage)
	}
	for _, condition := range node.Status.Conditions {
		if condition.Type == corev1.NodeReady && condition.Status == corev1.ConditionTrue {
			return nil
		}
	}
	return fmt.Errorf("Node %s is not Ready", node.Name)
}

func internalAddress(node corev1.Node) string {
	for _, address := range node.Status.Addresses {
		if address.Type == corev1.NodeInternalIP {
			return address.Address
		}
	}
	return ""
}

// checkConfiguration has Talos's own client validate the machine configurations that run.
func (e *env) checkConfiguration(t *testing.T) {
	config := e.credential("talosconfig")
	for _, machine := range e.List(engine.Machines, namespace, "") {
		address, err := addressOf(machine)
		if err != nil {
			t.Fatal(err)
		}
		text, err := talosctl(t.Context(), "--talosconfig", config, "--nodes", address, "get", "machineconfig", "v1alpha1", "--output", "jsonpath={.spec}")
		if err != nil {
			t.Fatal(err)
		}
		path := filepath.Join(e.dir, machine.GetName()+".yaml")
		if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
		for _, mode := range []string{"metal", "cloud", "container"} {
			if _, err := talosctl(t.Context(), "validate", "--config", path, "--mode", mode, "--strict"); err != nil {
				t.Errorf("Machine %s, mode %s: %v", machine.GetName(), mode, err)
			}
		}
	}
	e.step("talosctl validates the configurations for metal, cloud and container")
}

// addressOf returns the address of a Machine.
func addressOf(machine unstructured.Unstructured) (string, error) {
	addresses, _, _ := unstructured.NestedStringSlice(machine.Object, "status", "ipAddresses")
	if len(addresses) == 0 {
		return "", fmt.Errorf("Machine %s has no address", machine.GetName())
	}
	return addresses[0], nil
}

// machineAddresses returns the addresses of the Machines.
func (e *env) machineAddresses() (controlPlanes, workers []string) {
	e.t.Helper()
	for _, machine := range e.List(engine.Machines, namespace, "") {
		address, err := addressOf(machine)
		if err != nil {
			e.t.Fatal(err)
		}
		if strings.HasPrefix(machine.GetName(), clusterName+"-cp-") {
			controlPlanes = append(controlPlanes, address)
		} else {
			workers = append(workers, address)
		}
	}
	return controlPlanes, workers
}

// checkPods waits until all pods of the cluster are Ready. CoreDNS is Ready only if flannel and kube-proxy let it reach
// the API server.
func (e *env) checkPods(*testing.T) {
	client := e.workload()
	e.await("all pods are Ready", 8*time.Minute, func(ctx context.Context) error {
		pods, err := client.CoreV1().Pods("").List(ctx, metav1.ListOptions{})
		if err != nil {
			return err
		}
		found := map[string]bool{}
		for _, pod := range pods.Items {
			if !podReady(pod) {
				return fmt.Errorf("pod %s is %s: %s", pod.Name, pod.Status.Phase, whyNotReady(pod))
			}
			found[pod.Labels["k8s-app"]] = true
		}
		for _, app := range []string{"kube-apiserver", "kube-dns", "kube-proxy", "flannel"} {
			if !found[app] {
				return fmt.Errorf("there is no pod of %s, only of %v", app, slices.Sorted(maps.Keys(found)))
			}
		}
		return nil
	})
	e.step("all pods are Ready: control plane, CoreDNS, kube-proxy, flannel")
}

// whyNotReady returns what the scheduler and the kubelet report about a pod.
func whyNotReady(pod corev1.Pod) string {
	var all []string
	for _, c := range pod.Status.Conditions {
		if c.Status != corev1.ConditionTrue {
			all = append(all, fmt.Sprintf("%s %s %s", c.Type, c.Reason, c.Message))
		}
	}
	for _, c := range slices.Concat(pod.Status.InitContainerStatuses, pod.Status.ContainerStatuses) {
		if c.State.Waiting != nil {
			all = append(all, fmt.Sprintf("%s %s %s", c.Name, c.State.Waiting.Reason, c.State.Waiting.Message))
		}
	}
	return strings.Join(all, "; ")
}

func podReady(pod corev1.Pod) bool {
	for _, condition := range pod.Status.Conditions {
		if condition.Type == corev1.PodReady {
			return condition.Status == corev1.ConditionTrue
		}
	}
	return false
}

// checkVirtualAddress checks that the endpoint in the kubeconfig is the address of no node, and that one control plane
// has it in addition to its own.
func (e *env) checkVirtualAddress(t *testing.T) {
	config, err := clientcmd.BuildConfigFromFlags("", e.credential("kubeconfig"))
	if err != nil {
		t.Fatal(err)
	}
	host := strings.TrimSuffix(strings.TrimPrefix(config.Host, "https://"), ":6443")
	var holders []string
	for _, machine := range e.List(engine.Machines, namespace, "") {
		address, err := addressOf(machine)
		if err != nil {
			t.Fatal(err)
		}
		if address == host {
			t.Errorf("the endpoint %s is the address of Machine %s", host, machine.GetName())
		}
		out, err := talosctl(t.Context(), "--talosconfig", e.credential("talosconfig"), "--nodes", address, "get", "addresses")
		if err != nil {
			t.Fatal(err)
		}
		if strings.Contains(out, " "+host+"/32 ") {
			holders = append(holders, machine.GetName())
		}
	}
	if len(holders) != 1 {
		t.Errorf("the virtual address %s is on %v", host, holders)
	}
	e.step("the endpoint is the virtual address %s, which %v has", host, holders)
}

// patchCluster changes the cluster by a merge patch.
func (e *env) patchCluster(patch string) {
	e.t.Helper()
	if _, err := e.Client.Resource(engine.KubernetesClusters).Namespace(namespace).Patch(e.t.Context(), clusterName, types.MergePatchType,
		[]byte(patch), metav1.PatchOptions{}); err != nil {
		e.t.Fatal(err)
	}
}

// scale changes the number of control planes and of workers by one request, and waits for it. step is its row in the page of results.
func (e *env) scale(step string, controlPlanes, workers int) {
	e.t.Helper()
	e.patchCluster(fmt.Sprintf(`{"spec":{"topology":{"controlplane":{"replicas":%d},"workers":[{"name":"w","replicas":%d}]}}}`, controlPlanes, workers))
	e.step("%s", step)
	e.measureOutage(step, func() { e.awaitRunning(controlPlanes + workers) })
}

// measureOutage prints the longest time for which the tenant's API did not answer during a change, at the endpoint of
// before.
func (e *env) measureOutage(change string, do func()) {
	e.t.Helper()
	longest := e.watchAPI()
	e.measure(change, do)
	e.results.Table("Outages", "longest time in which the tenant's API did not answer, at the endpoint of before").Row(change, longest())
}

// watchAPI requests the version of the tenant's API at the endpoint of the present kubeconfig until the returned function
// is called, which returns the longest time without an answer.
func (e *env) watchAPI() (stop func() time.Duration) {
	e.t.Helper()
	client := e.workload()
	ctx, cancel := context.WithCancel(e.t.Context())
	result := make(chan time.Duration, 1)
	go func() {
		longest, answered := time.Duration(0), time.Now()
		for ctx.Err() == nil {
			request, done := context.WithTimeout(ctx, time.Second)
			err := client.Discovery().RESTClient().Get().AbsPath("/version").Do(request).Error()
			done()
			if ctx.Err() == nil {
				longest = max(longest, time.Since(answered))
			}
			if err == nil {
				answered = time.Now()
			}
			time.Sleep(200 * time.Millisecond)
		}
		result <- longest
	}()
	return func() time.Duration {
		cancel()
		return <-result
	}
}

// upgrade upgrades Kubernetes, and checks that each part of the control plane has the new version.
func (e *env) upgrade(t *testing.T) {
	t.Helper()
	e.patchCluster(`{"spec":{"topology":{"version":"` + upgradedVersion + `"}}}`)
	e.step("the version of Kubernetes is changed to %s", upgradedVersion)
	e.awaitRunning(5)
	client := e.workload()
	if v, err := client.Discovery().ServerVersion(); err != nil || v.GitVersion != "v"+upgradedVersion {
		t.Errorf("the API server has the version %v: %v", v, err)
	}
	e.await("the pods of the upgrade are Ready", 3*time.Minute, func(ctx context.Context) error {
		for app, wanted := range map[string]int{"kube-apiserver": 3, "kube-controller-manager": 3, "kube-scheduler": 3, "kube-proxy": 5} {
			list, err := client.CoreV1().Pods("kube-system").List(ctx, metav1.ListOptions{LabelSelector: "k8s-app=" + app})
			if err != nil {
				return err
			}
			if len(list.Items) != wanted {
				return fmt.Errorf("there are %d pods of %s, want %d", len(list.Items), app, wanted)
			}
			for _, pod := range list.Items {
				if image := pod.Spec.Containers[0].Image; !podReady(pod) || !strings.HasSuffix(image, ":v"+upgradedVersion) {
					return fmt.Errorf("pod %s with image %s is not Ready with version %s", pod.Name, image, upgradedVersion)
				}
			}
		}
		return nil
	})
	e.step("the control plane and kube-proxy have the version %s", upgradedVersion)
}

// apiPatch is a patch from which Talos renders the API servers again.
const apiPatch = `apiVersion: v1
kind: ConfigMap
metadata: {name: lab-api}
data:
  api.yaml: |
    cluster:
      apiServer:
        extraArgs:
          audit-log-maxage: "31"
`

// changeAPIServers changes the configuration of three API servers, and checks that at most one at a time restarts. A
// busy machine may let another one answer late.
func (e *env) changeAPIServers(t *testing.T) {
	t.Helper()
	longest := e.watchAPIServers(2)
	e.Apply(namespace, apiPatch)
	e.patchCluster(`{"spec":{"talos":{"patches":{"controlPlane":["lab-restart","lab-api"]}}}}`)
	e.awaitRunning(5)
	client := e.workload()
	e.await("all API servers have the change", 3*time.Minute, func(ctx context.Context) error {
		pods, err := client.CoreV1().Pods("kube-system").List(ctx, metav1.ListOptions{LabelSelector: "k8s-app=kube-apiserver"})
		if err != nil {
			return err
		}
		for _, pod := range pods.Items {
			if !podReady(pod) || !slices.Contains(pod.Spec.Containers[0].Command, "--audit-log-maxage=31") {
				return fmt.Errorf("pod %s is not the changed one, or not Ready", pod.Name)
			}
		}
		return nil
	})
	outage := longest()
	t.Logf("          fewer than 2 of 3 API servers answered for at most %.1f s", outage.Seconds())
	if outage > 5*time.Second {
		t.Errorf("fewer than 2 of 3 API servers answered for %.1f s", outage.Seconds())
	}
}

// correctPatch writes a wrong patch of the nodes, waits until the cluster is not Ready, and corrects the patch.
func (e *env) correctPatch(wrong string) {
	e.t.Helper()
	write := func(patch string) {
		config := &unstructured.Unstructured{Object: map[string]any{"apiVersion": "v1", "kind": "ConfigMap",
			"metadata": map[string]any{"name": "lab-wrong"}, "data": map[string]any{"wrong.yaml": patch}}}
		if _, err := e.Client.Resource(engine.ConfigMaps).Namespace(namespace).Apply(e.t.Context(), "lab-wrong", config, metav1.ApplyOptions{FieldManager: "requester"}); err != nil {
			e.t.Fatal(err)
		}
		e.patchCluster(`{"metadata":{"annotations":{"vitistack.io/reconcile":"` + time.Now().Format(time.RFC3339Nano) + `"}},` +
			`"spec":{"talos":{"patches":{"all":["lab-patches","lab-wrong"]}}}}`)
	}
	write(wrong)
	e.await("the cluster is not Ready", 5*time.Minute, func(context.Context) error {
		isReady, reason, message := condition(e.Get(engine.KubernetesClusters, namespace, clusterName), "Ready")
		if isReady {
			return errors.New("it is Ready")
		}
		e.step("%s: %s", reason, message)
		return nil
	})
	write("machine: {}")
	e.awaitRunning(2)
}

// watchAPIServers requests the version of each API server until the returned function is called, which returns the
// longest time in which fewer than the wanted number answered.
func (e *env) watchAPIServers(wanted int) (stop func() time.Duration) {
	e.t.Helper()
	config, err := clientcmd.BuildConfigFromFlags("", e.credential("kubeconfig"))
	if err != nil {
		e.t.Fatal(err)
	}
	var servers []kubernetes.Interface
	controlPlanes, _ := e.machineAddresses()
	for _, address := range controlPlanes {
		at := rest.CopyConfig(config)
		at.Host, at.Timeout = "https://"+address+":6443", 2*time.Second
		client, err := kubernetes.NewForConfig(at)
		if err != nil {
			e.t.Fatal(err)
		}
		servers = append(servers, client)
	}
	ctx, cancel := context.WithCancel(e.t.Context())
	result := make(chan time.Duration, 1)
	go func() {
		longest, enough := time.Duration(0), time.Now()
		for ctx.Err() == nil {
			var answers atomic.Int32
			var requests sync.WaitGroup
			for _, server := range servers {
				requests.Go(func() {
					if server.Discovery().RESTClient().Get().AbsPath("/version").Do(ctx).Error() == nil {
						answers.Add(1)
					}
				})
			}
			requests.Wait()
			switch {
			case ctx.Err() != nil:
			case int(answers.Load()) >= wanted:
				enough = time.Now()
			default:
				longest = max(longest, time.Since(enough))
			}
			time.Sleep(200 * time.Millisecond)
		}
		result <- longest
	}()
	return func() time.Duration {
		cancel()
		return <-result
	}
}

// resources are those of all objects that belong to a cluster.
var resources = []schema.GroupVersionResource{
	engine.KubernetesClusters, engine.Machines, engine.NetworkConfigurations, engine.IPAllocations, engine.VirtualMachines, engine.Instances, engine.Claims,
	engine.Secrets,
}

// checkRemoved checks that no object, disk and network interface of removed machines is left.
func (e *env) checkRemoved(t *testing.T, removed ...string) {
	t.Helper()
	left := len(e.List(engine.Machines, namespace, ""))
	e.await(fmt.Sprintf("%v leave nothing", removed), time.Minute, func(ctx context.Context) error {
		for _, resource := range resources {
			for _, object := range e.List(resource, namespace, "") {
				for _, name := range removed {
					if strings.HasPrefix(object.GetName(), clusterName+"-"+name) {
						return fmt.Errorf("%s %s is left", resource.Resource, object.GetName())
					}
				}
			}
		}
		nodes, err := nodeFolders()
		if err != nil {
			return err
		}
		ports, err := bridgePorts(ctx)
		if err != nil {
			return err
		}
		if len(nodes) != left || len(ports) != left {
			return fmt.Errorf("%d nodes have %d disks and %d network interfaces", left, len(nodes), len(ports))
		}
		return nil
	})
	e.step("no object, disk or interface of %v is left", removed)
}

// bridgePorts returns the network interfaces of all nodes.
func bridgePorts(ctx context.Context) ([]string, error) {
	out, err := exec.CommandContext(ctx, "ip", "-o", "link", "show", "master", lab.Bridge).Output()
	return slices.Collect(strings.Lines(string(out))), err
}

// deleteCluster deletes the cluster, and checks that no object and no disk of it is left.
func (e *env) deleteCluster() {
	e.t.Helper()
	e.Delete(engine.KubernetesClusters, namespace, clusterName)
	e.await("the cluster is deleted", 5*time.Minute, func(context.Context) error {
		for _, resource := range resources {
			if left := e.List(resource, namespace, ""); len(left) > 0 {
				return fmt.Errorf("%d %s are left", len(left), resource.Resource)
			}
		}
		nodes, err := nodeFolders()
		if err == nil && len(nodes) > 0 {
			err = fmt.Errorf("the disks of %v are left", nodes)
		}
		return err
	})
	e.step("KubernetesCluster %s and all that belongs to it are deleted", clusterName)
}

// deleteNetwork deletes the network, and checks that no process and no network interface is left.
func (e *env) deleteNetwork() {
	e.t.Helper()
	e.Delete(engine.NetworkNamespaces, namespace, "lab")
	e.await("the network is deleted", time.Minute, func(context.Context) error {
		if e.Get(engine.NetworkNamespaces, namespace, "lab") != nil {
			return errors.New("it still exists")
		}
		return nil
	})
	if ports, err := bridgePorts(e.t.Context()); err != nil || len(ports) > 0 {
		e.t.Errorf("interfaces are left: %v, %v", ports, err)
	}
	for _, program := range []string{"init", "containerd", "kubelet", "etcd"} {
		if out, err := exec.CommandContext(e.t.Context(), "pgrep", "-x", program).Output(); err == nil {
			e.t.Errorf("processes %s are left: %s", program, out)
		}
	}
	e.step("the network is deleted, and no process, interface or disk is left")
}
