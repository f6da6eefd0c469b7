package main

import (
	"context"
	"fmt"
	"net"
	"slices"
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/dynamic"

	"github.com/vitistack/stack/apis/cluster/plan"
	"github.com/vitistack/stack/apis/v1alpha1"
	"github.com/vitistack/stack/events/outbound"
	"github.com/vitistack/stack/functions/internal/kube"
	simtalos "github.com/vitistack/stack/tests/sim/talos"
	"github.com/vitistack/stack/tests/stand/apiserver"
	"github.com/vitistack/stack/tests/stand/feed"
)

// awaitNode waits until is accepts a Node.
func (s *env) awaitNode(cluster, node, what string, is func(*corev1.Node) bool) {
	s.Helper()
	client := s.workload(cluster)
	feed.Until(s, what, func() (bool, string) {
		n, err := client.CoreV1().Nodes().Get(s.Context(), cluster+"-"+node, metav1.GetOptions{})
		if err != nil {
			return false, err.Error()
		}
		return is(n), strings.Join([]string{metav1.FormatLabelSelector(&metav1.LabelSelector{MatchLabels: n.Labels})}, " ")
	})
}

func TestLabelsAndTaints(t *testing.T) {
	t.Parallel()
	s := newEnv(t, envOptions{})
	kc := s.cluster("shop", 1, 1)
	pool := &kc.Spec.Topology.Workers[0]
	pool.Labels = map[string]string{"tier": "front", "node-role.kubernetes.io/front": ""}
	pool.Taints = []v1alpha1.NodeTaint{{Key: "only", Value: "front", Effect: "NoSchedule"}}
	s.create(kc)
	s.awaitRunning("shop")
	tainted := func(n *corev1.Node, key string) bool {
		for _, t := range n.Spec.Taints {
			if t.Key == key {
				return true
			}
		}
		return false
	}
	s.awaitNode("shop", "pool-0", "the node has labels that a kubelet may not set", func(n *corev1.Node) bool {
		_, role := n.Labels["node-role.kubernetes.io/front"]
		return role && n.Labels["tier"] == "front" && tainted(n, "only")
	})
	s.change("shop", func(kc *v1alpha1.KubernetesCluster) {
		kc.Spec.Topology.Workers[0].Labels = map[string]string{"tier": "back"}
		kc.Spec.Topology.Workers[0].Taints = nil
	})
	s.awaitNode("shop", "pool-0", "the node has lost the labels and taints that the spec no longer has", func(n *corev1.Node) bool {
		_, role := n.Labels["node-role.kubernetes.io/front"]
		return !role && n.Labels["tier"] == "back" && !tainted(n, "only") && n.Labels["kubernetes.io/hostname"] != ""
	})
	s.awaitRunning("shop")
}

func TestPatchesAndDrift(t *testing.T) {
	t.Parallel()
	s := newEnv(t, envOptions{})
	s.create(&corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Name: "patches"}, Data: map[string]string{"a.yaml": "machine:\n  sysctls:\n    vm.swappiness: \"1\"\n"}})
	kc := s.cluster("shop", 1, 1)
	kc.Spec.Talos = &v1alpha1.TalosOptions{Patches: &v1alpha1.ConfigPatches{All: []v1alpha1.ObjectName{"patches"}}}
	s.create(kc)
	current := func() {
		t.Helper()
		if c := meta.FindStatusCondition(s.awaitRunning("shop").Status.Conditions, v1alpha1.ConditionConfigCurrent); c == nil || c.Status != metav1.ConditionTrue {
			t.Errorf("condition ConfigCurrent: %v", c)
		}
	}
	current()
	if got := s.activeConfig("shop", "pool-0"); !strings.Contains(got, "vm.swappiness: \"1\"") {
		t.Error("the patch is not in the node's configuration")
	}
	patch := func(text string) {
		t.Helper()
		cm := &corev1.ConfigMap{}
		if err := s.kube.Get(t.Context(), s.namespace, "patches", cm); err != nil {
			t.Fatal(err)
		}
		if err := s.kube.Merge(t.Context(), cm, map[string]any{"data": map[string]any{"a.yaml": text}}); err != nil {
			t.Fatal(err)
		}
		s.reconcile("shop")
	}
	patch("machine:\n  sysctls:\n    vm.swappiness: \"2\"\n")
	for _, node := range []string{"cp-0", "pool-0"} {
		feed.Until(t, node+" has applied the change without a reboot", func() (bool, string) {
			return strings.Contains(s.activeConfig("shop", node), "vm.swappiness: \"2\""), ""
		})
	}
	patch("machine:\n  sysctls:\n    vm.swappiness: \"2\"\n  install:\n    wipe: true\n  type: worker\n")
	s.awaitReason("shop", "InvalidPatch", "a.yaml of ConfigMap patches", "machine.type")
	patch("machine:\n  nonsense: true\n")
	s.awaitReason("shop", "InvalidPatch", "nonsense")
	patch("machine:\n  sysctls:\n    vm.swappiness: \"2\"\n")
	current()
}

// TestRegistryOfPatches changes the credentials and the authority of a registry, and a trusted authority, of a running cluster. Every
// node gets them without a reboot, and no object that is no Secret shows the password.
func TestRegistryOfPatches(t *testing.T) {
	t.Parallel()
	registry := func(password, ca string) string {
		return "apiVersion: v1alpha1\nkind: RegistryAuthConfig\nname: registry.example.com\nusername: nodes\npassword: " + password + "\n---\n" +
			"apiVersion: v1alpha1\nkind: TrustedRootsConfig\nname: company\ncertificates: |\n  " + ca + "\n"
	}
	s := newEnv(t, envOptions{})
	patches := s.configMap("registry", map[string]string{"a.yaml": registry("former-password", "former-ca")})
	kc := s.cluster("shop", 1, 1)
	kc.Spec.Talos = &v1alpha1.TalosOptions{Patches: &v1alpha1.ConfigPatches{All: []v1alpha1.ObjectName{"registry"}}}
	s.create(kc)
	said := meta.FindStatusCondition(s.awaitRunning("shop").Status.Conditions, v1alpha1.ConditionConfigCurrent)
	if said == nil || !strings.Contains(said.Message, "the ConfigMaps with patches are read again every ten minutes, or at once with the annotation vitistack.io/reconcile") {
		t.Errorf("the condition does not say when the ConfigMap is read again: %v", said)
	}
	before := s.machines("shop")
	if err := s.kube.Merge(t.Context(), patches, map[string]any{"data": map[string]any{"a.yaml": registry("latter-password", "latter-ca")}}); err != nil {
		t.Fatal(err)
	}
	s.reconcile("shop")
	for _, node := range []string{"cp-0", "pool-0"} {
		feed.Until(t, node+" has the credentials", func() (bool, string) {
			config := s.activeConfig("shop", node)
			return strings.Contains(config, "latter-password") && strings.Contains(config, "latter-ca") && !strings.Contains(config, "former"), config
		})
	}
	s.awaitRunning("shop", before...)
	list := &corev1.ConfigMapList{}
	if err := s.kube.List(t.Context(), s.namespace, "", list); err != nil {
		t.Fatal(err)
	}
	for _, cm := range list.Items {
		for key, text := range cm.Data {
			if cm.Name != "registry" && strings.Contains(text, "-password") {
				t.Errorf("ConfigMap %s has the password in %s", cm.Name, key)
			}
		}
	}
	if text := fmt.Sprint(s.get("shop").Status); strings.Contains(text, "-password") {
		t.Errorf("the status has the password: %s", text)
	}
}

// TestPatchedMeanwhile edits a patch after a node gets its configuration and before the cluster is
// Running, which takes more than one delivery.
func TestPatchedMeanwhile(t *testing.T) {
	t.Parallel()
	s := newEnv(t, envOptions{timing: simtalos.Timing{NodeReady: nodePollTime + 2*time.Second}})
	patches := &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Name: "patches"}, Data: map[string]string{"a.yaml": "machine:\n  sysctls:\n    vm.swappiness: \"1\"\n"}}
	s.create(patches)
	kc := s.cluster("shop", 1, 0)
	kc.Spec.Talos = &v1alpha1.TalosOptions{Patches: &v1alpha1.ConfigPatches{All: []v1alpha1.ObjectName{"patches"}}}
	s.create(kc)
	feed.Until(t, "the node has its configuration", func() (bool, string) {
		m := &v1alpha1.Machine{}
		err := s.kube.Get(t.Context(), s.namespace, "shop-cp-0", m)
		return err == nil && plan.IsInstalled(m), string(m.Status.Phase)
	})
	if isTrue(s.get("shop"), v1alpha1.ConditionReady) {
		t.Fatal("the cluster is Running already")
	}
	if err := s.kube.Merge(t.Context(), patches, map[string]any{"data": map[string]any{"a.yaml": "machine:\n  sysctls:\n    vm.swappiness: \"2\"\n"}}); err != nil {
		t.Fatal(err)
	}
	s.awaitRunning("shop")
	if got := s.activeConfig("shop", "cp-0"); !strings.Contains(got, "vm.swappiness: \"2\"") {
		t.Error("the cluster is Running while a node lacks its present configuration")
	}
}

// TestCorrectedPatch corrects patches of a running cluster by which no worker is Ready any more, and then by which its only API
// server does not start.
func TestCorrectedPatch(t *testing.T) {
	t.Parallel()
	const missing = "1.33.99"
	for name, patch := range map[string]string{
		"Kubelet":   "machine:\n  kubelet:\n    image: ghcr.io/siderolabs/kubelet:v" + missing + "\n",
		"APIServer": "cluster:\n  apiServer:\n    image: registry.k8s.io/kube-apiserver:v" + missing + "\n",
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			s := newEnv(t, envOptions{})
			patches := s.configMap("patches", map[string]string{"a.yaml": ""})
			kc := s.cluster("shop", 1, 2)
			kc.Spec.Talos = &v1alpha1.TalosOptions{Patches: &v1alpha1.ConfigPatches{All: []v1alpha1.ObjectName{"patches"}}}
			s.create(kc)
			s.awaitRunning("shop")
			edit := func(text string) {
				t.Helper()
				if err := s.kube.Merge(t.Context(), patches, map[string]any{"data": map[string]any{"a.yaml": text}}); err != nil {
					t.Fatal(err)
				}
				s.reconcile("shop")
			}
			edit(patch)
			feed.Until(t, "the cluster is not Ready", func() (bool, string) {
				s.reconcile("shop")
				return !isTrue(s.get("shop"), v1alpha1.ConditionReady), ""
			})
			edit("# none any more\n")
			s.awaitRunning("shop")
			for _, node := range []string{"cp-0", "pool-0", "pool-1"} {
				if strings.Contains(s.activeConfig("shop", node), missing) {
					t.Errorf("%s runs the former patch", node)
				}
			}
		})
	}
}

// TestPatchesOfRolesAndPools checks that every node gets exactly the patches of its role and pool.
func TestPatchesOfRolesAndPools(t *testing.T) {
	t.Parallel()
	s := newEnv(t, envOptions{})
	for _, name := range []string{"everybody", "planes", "workers", "special"} {
		s.create(&corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Name: name}, Data: map[string]string{"a.yaml": "machine:\n  sysctls:\n    net." + name + ": \"1\"\n    vm.swappiness: \"" + name + "\"\n"}})
	}
	kc := s.cluster("shop", 1, 1)
	kc.Spec.Talos = &v1alpha1.TalosOptions{Patches: &v1alpha1.ConfigPatches{
		All: []v1alpha1.ObjectName{"everybody"}, ControlPlane: []v1alpha1.ObjectName{"planes"}, Workers: []v1alpha1.ObjectName{"workers"},
	}}
	kc.Spec.Topology.Workers = append(kc.Spec.Topology.Workers, v1alpha1.WorkerPool{Name: "gpu", Replicas: 1})
	kc.Spec.Topology.Workers[1].Patches = []v1alpha1.ObjectName{"special"}
	s.create(kc)
	s.awaitRunning("shop")
	for node, want := range map[string][]string{ // the last patch overrides a value that all of them set
		"cp-0": {"everybody", "planes"}, "pool-0": {"everybody", "workers"}, "gpu-0": {"everybody", "workers", "special"},
	} {
		config := s.activeConfig("shop", node)
		for _, name := range []string{"everybody", "planes", "workers", "special"} {
			if got := strings.Contains(config, "net."+name+":"); got != slices.Contains(want, name) {
				t.Errorf("%s runs the patch %s: %t, want %t", node, name, got, !got)
			}
		}
		if last := "vm.swappiness: " + want[len(want)-1]; !strings.Contains(config, last) {
			t.Errorf("%s must have %s from the most specific of its patches", node, last)
		}
	}
}

// TestAutoscaling scales by the subresource, as autoscalers do.
func TestAutoscaling(t *testing.T) {
	t.Parallel()
	s := newEnv(t, envOptions{})
	kc := s.cluster("shop", 1, 1)
	kc.Spec.Topology.Workers[0].Autoscaling = &v1alpha1.Autoscaling{Enabled: true, MinReplicas: 1, MaxReplicas: 3}
	s.create(kc)
	s.awaitRunning("shop", "cp-0", "pool-0")
	client, err := dynamic.NewForConfig(apiserver.Start(t).Config())
	if err != nil {
		t.Fatal(err)
	}
	clusters := client.Resource(v1alpha1.GroupVersion.WithResource("kubernetesclusters")).Namespace(s.namespace)
	scale := func(n int64) error {
		t.Helper()
		return kube.OnConflict(func() error { // as kubectl scale does
			obj, err := clusters.Get(t.Context(), "shop", metav1.GetOptions{}, "scale")
			if err != nil {
				t.Fatal(err)
			}
			obj.Object["spec"] = map[string]any{"replicas": n}
			_, err = clusters.Update(t.Context(), obj, metav1.UpdateOptions{}, "scale")
			return err
		})
	}
	feed.Until(t, "the subresource answers", func() (bool, string) {
		_, err := clusters.Get(t.Context(), "shop", metav1.GetOptions{}, "scale")
		return err == nil, ""
	})
	if err := scale(9); err == nil || !strings.Contains(err.Error(), "at most the sum of their maxReplicas") {
		t.Errorf("the pool has at most 3 workers, but 9 is accepted: %v", err)
	}
	if err := scale(3); err != nil {
		t.Fatal(err)
	}
	s.awaitRunning("shop", "cp-0", "pool-0", "pool-1", "pool-2")
	if err := scale(2); err != nil {
		t.Fatal(err)
	}
	s.awaitRunning("shop", "cp-0", "pool-0", "pool-1")
	feed.Until(t, "the subresource reports the number of workers", func() (bool, string) {
		obj, err := clusters.Get(t.Context(), "shop", metav1.GetOptions{}, "scale")
		if err != nil {
			return false, err.Error()
		}
		status, _ := obj.Object["status"].(map[string]any)
		return status["replicas"] == int64(2) && strings.Contains(status["selector"].(string), "cluster-name=shop"), ""
	})

	s.change("shop", func(kc *v1alpha1.KubernetesCluster) {
		pool := &kc.Spec.Topology.Workers[0]
		pool.Replicas, pool.Autoscaling.Enabled = 3, false
	})
	s.awaitRunning("shop", "cp-0", "pool-0", "pool-1", "pool-2")
	s.change("shop", func(kc *v1alpha1.KubernetesCluster) { kc.Spec.Topology.Workers[0].Autoscaling.Enabled = true })
	got := s.awaitRunning("shop", "cp-0", "pool-0", "pool-1", "pool-2")
	if n := got.Spec.Topology.ScaledWorkers; n == nil || *n != 3 {
		t.Errorf("autoscaling is enabled again with 3 workers: got scaledWorkers %v, want 3", n)
	}
}

// TestLargePatch gives control planes configurations that no ConfigMap can hold together.
func TestLargePatch(t *testing.T) {
	t.Parallel()
	s := newEnv(t, envOptions{})
	s.newPatchedCluster(3, 0, true)
	s.writePatches("machine:\n  sysctls:\n    vm.swappiness: \"2\"\n    kernel.core_pattern: " + strings.Repeat("a", 400<<10) + "\n")
	s.reconcile("shop")
	for _, node := range []string{"cp-0", "cp-1", "cp-2"} {
		feed.Until(t, node+" has the change", func() (bool, string) {
			return strings.Contains(s.activeConfig("shop", node), `vm.swappiness: "2"`), s.get("shop").Status.Message
		})
	}
	s.awaitRunning("shop")
}

// TestOneControlPlaneAtATime changes what the API servers of three control planes are rendered from, upgrades them at
// once, and checks that at most one of them does not answer at any time.
func TestOneControlPlaneAtATime(t *testing.T) {
	t.Parallel()
	const restart = 1500 * time.Millisecond
	s := newEnv(t, envOptions{timing: simtalos.Timing{StaticPods: restart}})
	s.newPatchedCluster(3, 1, true)
	s.awaitRunning("shop", "cp-0", "cp-1", "cp-2", "pool-0")
	mostDown := s.watchAPIServers("shop", "cp-0", "cp-1", "cp-2")
	s.writePatches(auditPatch)
	s.reconcile("shop")
	for _, node := range []string{"cp-0", "cp-1", "cp-2"} {
		feed.Until(t, node+" has the change", func() (bool, string) {
			return strings.Contains(s.activeConfig("shop", node), `audit-log-maxage: "31"`), s.get("shop").Status.Message
		})
	}
	s.awaitRunning("shop")
	s.change("shop", func(kc *v1alpha1.KubernetesCluster) { kc.Spec.Topology.Version = "1.35" })
	feed.Until(t, "all nodes are upgraded", func() (bool, string) {
		kc := s.get("shop")
		return isUpToDate(kc) && strings.HasPrefix(kc.Status.Version, "1.35.") && kc.Status.Upgrade == nil, kc.Status.Message
	})
	if most := mostDown(); most != 1 {
		t.Errorf("%d API servers did not answer at the same time, want 1", most)
	}
}

// TestConfigCurrentAfterRestart has an API server take longer to restart than a delivery waits. ConfigCurrent is False, and
// the worker is not changed, until it has.
func TestConfigCurrentAfterRestart(t *testing.T) {
	t.Parallel()
	s := newEnv(t, envOptions{timing: simtalos.Timing{StaticPods: nodePollTime + 3*time.Second}})
	s.newPatchedCluster(1, 1, true)
	s.change("shop", func(kc *v1alpha1.KubernetesCluster) {
		kc.Spec.Topology.Workers[0].Patches = []v1alpha1.ObjectName{"disks"}
	})
	s.awaitRunning("shop", "cp-0", "pool-0")
	mostDown := s.watchAPIServers("shop", "cp-0")
	s.writePatches(auditPatch)
	_, _ = s.function.handle(t.Context(), resyncEvent(s.namespace, "shop", "look")) // ends before the restart
	feed.Until(t, "ConfigCurrent is False", func() (bool, string) {
		c := meta.FindStatusCondition(s.get("shop").Status.Conditions, v1alpha1.ConditionConfigCurrent)
		return c != nil && c.Status == metav1.ConditionFalse && c.Reason == reasonChangingNodes, fmt.Sprint(c)
	})
	feed.Until(t, "the worker has the change", func() (bool, string) {
		return strings.Contains(s.activeConfig("shop", "pool-0"), "audit-log-maxage"), s.get("shop").Status.Message
	})
	if most := mostDown(); most != 1 {
		t.Error("the API server has yet to restart")
	}
	s.awaitRunning("shop")
	if !isTrue(s.get("shop"), v1alpha1.ConditionConfigCurrent) {
		t.Error("ConfigCurrent is not True after the restart")
	}
}

// TestChangeOfAnEndedDelivery ends the delivery that has changed a control plane before it records that the API server has yet to restart. The
// worker is not changed until it has.
func TestChangeOfAnEndedDelivery(t *testing.T) {
	t.Parallel()
	u := &unwritten{}
	s := newEnv(t, envOptions{timing: simtalos.Timing{StaticPods: 2 * nodePollTime}, wrap: u.wrap})
	s.newPatchedCluster(1, 1, true)
	s.change("shop", func(kc *v1alpha1.KubernetesCluster) {
		kc.Spec.Topology.Workers[0].Patches = []v1alpha1.ObjectName{"disks"}
	})
	s.awaitRunning("shop", "cp-0", "pool-0")
	mostDown := s.watchAPIServers("shop", "cp-0")
	u.text.Store("waiting for the control plane of node shop-cp-0")
	s.writePatches(auditPatch)
	if _, err := s.function.handle(t.Context(), resyncEvent(s.namespace, "shop", "look")); err == nil || !strings.Contains(s.activeConfig("shop", "cp-0"), "audit-log-maxage") {
		t.Fatalf("the delivery has not changed the control plane, or ended with %v", err)
	}
	u.text.Store("")
	s.awaitAfterResync("shop", "the worker has the change", func() (bool, string) {
		return strings.Contains(s.activeConfig("shop", "pool-0"), "audit-log-maxage"), s.get("shop").Status.Message
	})
	if most := mostDown(); most != 1 {
		t.Error("the API server has yet to restart")
	}
	s.awaitRunning("shop")
}

// auditPatch is a patch that Talos renders the API server from.
const auditPatch = "cluster:\n  apiServer:\n    extraArgs:\n      audit-log-maxage: \"31\"\n"

// watchAPIServers connects to the API servers of nodes until the returned function is called, which returns how many
// of them did not accept a connection at the same time.
func (s *env) watchAPIServers(cluster string, nodes ...string) (stop func() int) {
	s.Helper()
	var servers []string
	for _, node := range nodes {
		servers = append(servers, net.JoinHostPort(plan.Address(s.machine(cluster+"-"+node)), "6443"))
	}
	ctx, cancel := context.WithCancel(s.Context())
	most := make(chan int, 1)
	go func() {
		result := 0
		for ctx.Err() == nil {
			down := 0
			for _, server := range servers {
				conn, err := outbound.FromEnvironment().DialContext(ctx, "tcp", server)
				if err == nil {
					_ = conn.Close()
				} else if ctx.Err() == nil {
					down++
				}
			}
			result = max(result, down)
			time.Sleep(20 * time.Millisecond)
		}
		most <- result
	}()
	return func() int {
		cancel()
		return <-most
	}
}
