package main

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/cloudevents/sdk-go/v2/event"
	corev1 "k8s.io/api/core/v1"
	policyv1 "k8s.io/api/policy/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/intstr"

	"github.com/vitistack/stack/apis/cluster/plan"
	"github.com/vitistack/stack/apis/v1alpha1"
	"github.com/vitistack/stack/tests/sim/faults"
	simtalos "github.com/vitistack/stack/tests/sim/talos"
	"github.com/vitistack/stack/tests/stand/feed"
)

// nodeVersions returns the Kubernetes and Talos versions of a cluster's nodes.
func nodeVersions(kc *v1alpha1.KubernetesCluster) map[string]string {
	out := map[string]string{}
	for _, n := range kc.Status.Nodes {
		out[strings.TrimPrefix(n.Name, kc.Name+"-")] = n.Version + " on " + n.TalosVersion
	}
	return out
}

// awaitVersions waits until a cluster is Running with these versions on every node.
func (s *env) awaitVersions(name, kubernetes, talos string) {
	s.Helper()
	feed.Until(s, fmt.Sprintf("%s runs Kubernetes %s on Talos %s", name, kubernetes, talos), func() (bool, string) {
		kc := s.get(name)
		ok := isUpToDate(kc) && kc.Status.Version == kubernetes && kc.Status.TalosVersion == talos && kc.Status.Upgrade == nil
		found := nodeVersions(kc)
		for _, v := range found {
			ok = ok && v == "v"+kubernetes+" on "+talos
		}
		return ok, fmt.Sprintf("%s: %s; %v", kc.Status.Phase, kc.Status.Message, found)
	})
}

// awaitTalos waits until all nodes of a cluster run a version of Talos.
func (s *env) awaitTalos(name, talos string) {
	s.Helper()
	feed.Until(s, name+" runs Talos "+talos, func() (bool, string) {
		kc := s.get(name)
		other := slices.ContainsFunc(kc.Status.Nodes, func(n v1alpha1.NodeStatus) bool { return n.TalosVersion != talos })
		return len(kc.Status.Nodes) > 0 && !other, fmt.Sprintf("%s: %s; %v", kc.Status.Phase, kc.Status.Message, nodeVersions(kc))
	})
}

// newOutdatedCluster creates a cluster with versions that can be upgraded.
func (s *env) newOutdatedCluster(name string, controlPlanes, workers int32) {
	s.Helper()
	kc := s.cluster(name, controlPlanes, workers)
	kc.Spec.Topology.Version, kc.Spec.Talos = "1.33.4", &v1alpha1.TalosOptions{Version: "1.12.6"}
	s.create(kc)
	s.awaitRunning(name)
	s.awaitVersions(name, "1.33.4", "1.12.6")
}

// addons checks the images of kube-proxy and CoreDNS.
func (s *env) addons(cluster, proxy, dns string) {
	s.Helper()
	api := s.workload(cluster).AppsV1()
	set, err := api.DaemonSets("kube-system").Get(s.Context(), "kube-proxy", metav1.GetOptions{})
	if err != nil {
		s.Fatal(err)
	}
	deployment, err := api.Deployments("kube-system").Get(s.Context(), "coredns", metav1.GetOptions{})
	if err != nil {
		s.Fatal(err)
	}
	if got := set.Spec.Template.Spec.Containers[0].Image; got != proxy {
		s.Errorf("kube-proxy runs %s, want %s", got, proxy)
	}
	if got := deployment.Spec.Template.Spec.Containers[0].Image; got != dns {
		s.Errorf("CoreDNS runs %s, want %s", got, dns)
	}
}

// talosTo returns an edit that requests a version of Talos.
func talosTo(version string) func(*v1alpha1.KubernetesCluster) {
	return func(kc *v1alpha1.KubernetesCluster) { kc.Spec.Talos.Version = version }
}

// watchUpgrade observes each change of a cluster until the test ends, and reports an upgrade in the
// wrong order.
func (s *env) watchUpgrade(cluster string, most int) {
	look := func(ctx context.Context, _ event.Event) (*event.Event, error) {
		kc := &v1alpha1.KubernetesCluster{}
		if s.kube.Get(ctx, s.namespace, cluster, kc) == nil && kc.Status.Upgrade != nil {
			s.inOrder(kc, most)
		}
		return nil, nil
	}
	feed.Run(s, s.config, s.namespace, look, clusters)
}

func (s *env) inOrder(kc *v1alpha1.KubernetesCluster, most int) {
	u := kc.Status.Upgrade
	if len(u.Nodes) > most {
		s.Errorf("%d nodes are upgraded at the same time, want %d at most: %v", len(u.Nodes), most, u.Nodes)
	}
	for _, n := range u.Nodes {
		if strings.Contains(n.Name, "-cp-") {
			if len(u.Nodes) > 1 {
				s.Errorf("a control plane is upgraded together with another node: %v", u.Nodes)
			}
			continue
		}
		for _, other := range kc.Status.Nodes {
			if u.Kind == v1alpha1.UpgradeTalos && other.Role == v1alpha1.RoleControlPlane && other.TalosVersion != n.To {
				s.Errorf("worker %s is upgraded before control plane %s", n.Name, other.Name)
			}
		}
	}
}

func TestUpgrades(t *testing.T) {
	t.Parallel()
	s := newEnv(t, envOptions{timing: simtalos.Timing{StaticPodPull: time.Hour}}) // no API server may wait for its image
	s.newOutdatedCluster("shop", 3, 3)
	s.addons("shop", "registry.k8s.io/kube-proxy:v1.33.4", "registry.k8s.io/coredns/coredns:v1.13.2")
	s.watchUpgrade("shop", 2)
	s.change("shop", func(kc *v1alpha1.KubernetesCluster) {
		kc.Spec.Topology.Version, kc.Spec.Talos.Version = "1.34.1", "1.13.9"
		kc.Spec.Topology.Workers[0].UpgradeConcurrency = 2
	})
	s.awaitTalos("shop", "1.13.9")
	s.awaitVersions("shop", "1.34.1", "1.13.9")
	s.addons("shop", "registry.k8s.io/kube-proxy:v1.34.1", "registry.k8s.io/coredns/coredns:v1.14.6")
	if ready, all := s.nodes("shop"); len(ready) != 6 || len(all) != 6 {
		t.Errorf("nodes %v, Ready are %v", all, ready)
	}
	list, err := s.workload("shop").CoreV1().Nodes().List(t.Context(), metav1.ListOptions{})
	if err != nil {
		t.Fatal(err)
	}
	for _, n := range list.Items {
		if n.Spec.Unschedulable {
			t.Errorf("node %s is still cordoned", n.Name)
		}
	}
	if got := s.members("shop", "cp-0"); !slices.Equal(got, []string{"cp-0", "cp-1", "cp-2"}) {
		t.Errorf("etcd members: %v", got)
	}
	s.change("shop", func(kc *v1alpha1.KubernetesCluster) { kc.Spec.Topology.Version = "1.36" })
	s.awaitReason("shop", "KubernetesUpgradePath", "write 1.35 first")
}

// TestUpgradeRespectsBudgets has a PodDisruptionBudget keep a pod for longer than the timeout of its
// pool.
func TestUpgradeRespectsBudgets(t *testing.T) {
	t.Parallel()
	s := newEnv(t, envOptions{})
	s.newOutdatedCluster("shop", 1, 1)
	api := s.workload("shop")
	labels := map[string]string{"app": "db"}
	_, err := api.CoreV1().Pods("default").Create(t.Context(), &corev1.Pod{
		ObjectMeta: metav1.ObjectMeta{Name: "db", Labels: labels},
		Spec:       corev1.PodSpec{NodeName: "shop-pool-0", Containers: []corev1.Container{{Name: "db", Image: "db:1"}}},
	}, metav1.CreateOptions{})
	if err != nil {
		t.Fatal(err)
	}
	one := intstr.FromInt32(1)
	_, err = api.PolicyV1().PodDisruptionBudgets("default").Create(t.Context(), &policyv1.PodDisruptionBudget{
		ObjectMeta: metav1.ObjectMeta{Name: "db"},
		Spec:       policyv1.PodDisruptionBudgetSpec{MinAvailable: &one, Selector: &metav1.LabelSelector{MatchLabels: labels}},
	}, metav1.CreateOptions{})
	if err != nil {
		t.Fatal(err)
	}
	s.change("shop", talosTo("1.13.9"))
	s.awaitReason("shop", "Upgrading", "shop-pool-0", "pod default/db may not be moved", "disruption budget")
	s.change("shop", func(kc *v1alpha1.KubernetesCluster) {
		kc.Spec.Topology.Workers[0].DrainTimeout = &metav1.Duration{Duration: time.Second}
	})
	s.awaitReason("shop", "UpgradeFailed", "shop-pool-0", "were not evicted within 1s", "pod default/db may not be moved", "spec.upgrade.paused")
	s.change("shop", func(kc *v1alpha1.KubernetesCluster) { kc.Spec.Topology.Workers[0].DrainTimeout = nil })
	s.awaitReason("shop", "Upgrading", "shop-pool-0", "pod default/db may not be moved")
	if err := api.PolicyV1().PodDisruptionBudgets("default").Delete(t.Context(), "db", metav1.DeleteOptions{}); err != nil {
		t.Fatal(err)
	}
	s.awaitVersions("shop", "1.33.4", "1.13.9")
}

// TestUpgradeStops has the first node reject the upgrade, so that no other node is upgraded.
func TestUpgradeStops(t *testing.T) {
	t.Parallel()
	s := newEnv(t, envOptions{})
	s.newOutdatedCluster("shop", 1, 2)
	if err := s.plan.Set(faults.Rule{Operation: "MachineService/Upgrade", Error: "error validating installer image"}); err != nil {
		t.Fatal(err)
	}
	s.change("shop", talosTo("1.13.9"))
	s.awaitReason("shop", "UpgradeFailed", "shop-cp-0", "error validating installer image", "spec.upgrade.paused")
	if got := s.get("shop").Status.Upgrade; len(got.Nodes) != 1 || got.Progress != "0/3" {
		t.Errorf("only the first node may be upgraded: %+v", got)
	}
	if err := s.plan.Set(); err != nil {
		t.Fatal(err)
	}
	for _, paused := range []bool{true, false} {
		s.change("shop", func(kc *v1alpha1.KubernetesCluster) { kc.Spec.Upgrade = &v1alpha1.UpgradeOptions{Paused: paused} })
	}
	s.awaitVersions("shop", "1.33.4", "1.13.9")
	s.change("shop", func(kc *v1alpha1.KubernetesCluster) {
		kc.Spec.Upgrade.Paused, kc.Spec.Topology.Version = true, "1.33.5"
	})
	feed.Until(t, "the pause is shown", func() (bool, string) {
		kc := s.get("shop")
		for _, c := range kc.Status.Conditions {
			if c.Type == v1alpha1.ConditionVersionsCurrent {
				return isUpToDate(kc) && c.Reason == "UpgradePaused" && strings.Contains(c.Message, "3 nodes with Kubernetes 1.33.4 on Talos 1.13.9"), c.Message
			}
		}
		return false, "no condition"
	})
}

// TestUpgradeStopsTheAPI upgrades the only control plane to a version whose API server does not answer, and goes back to the
// former one.
func TestUpgradeStopsTheAPI(t *testing.T) {
	t.Parallel()
	const restart = 3 * time.Second
	var ahead atomic.Int64
	s := newEnv(t, envOptions{timing: simtalos.Timing{StaticPods: restart}, now: func() time.Time { return time.Now().Add(time.Duration(ahead.Load())) }})
	s.newOutdatedCluster("shop", 1, 0)
	s.change("shop", func(kc *v1alpha1.KubernetesCluster) { kc.Spec.Topology.Version = "1.34.1" })
	runs := func(version string) {
		t.Helper()
		feed.Until(t, "the node gets the API server "+version, func() (bool, string) {
			return strings.Contains(s.activeConfig("shop", "cp-0"), "kube-apiserver:v"+version), s.get("shop").Status.Message
		})
	}
	runs("1.34.1")
	s.setFaults(faults.Rule{Operation: "workload", Error: "503"})
	s.awaitReason("shop", "Upgrading", "shop-cp-0")
	ahead.Store(int64(plan.NodeUpgradeTimeout))
	s.awaitReason("shop", "UpgradeFailed", "shop-cp-0", "it does not answer with version 1.34.1 after 20m0s", "change the versions")
	s.change("shop", func(kc *v1alpha1.KubernetesCluster) { kc.Spec.Topology.Version = "1.33.4" })
	runs("1.33.4")
	time.Sleep(2 * restart) // until then the simulated API server of the newer version would answer
	s.setFaults()
	s.awaitVersions("shop", "1.33.4", "1.12.6")
}

// TestUpgradeStopsTheNode upgrades Talos on the only control plane, which does not boot again.
func TestUpgradeStopsTheNode(t *testing.T) {
	t.Parallel()
	var ahead atomic.Int64
	s := newEnv(t, envOptions{now: func() time.Time { return time.Now().Add(time.Duration(ahead.Load())) }})
	s.newOutdatedCluster("shop", 1, 0)
	s.change("shop", talosTo("1.13.9"))
	feed.Until(t, "the upgrade of the node is requested", func() (bool, string) {
		u := s.get("shop").Status.Upgrade
		return u != nil && len(u.Nodes) == 1 && u.Nodes[0].Step == v1alpha1.UpgradeRequested, s.get("shop").Status.Message
	})
	if err := s.fleet.PowerOff(string(s.machine("shop-cp-0").UID)); err != nil {
		t.Fatal(err)
	}
	s.awaitReason("shop", reasonWaitingForAPI)
	ahead.Store(int64(plan.NodeUpgradeTimeout))
	s.awaitReason("shop", "UpgradeFailed", "shop-cp-0", "it does not answer with version 1.13.9 after 20m0s")
}

// TestUpgradePulls has a node fail to pull the next API server, and then one fail to pull the next kubelet. It keeps the one
// that runs, and continues once it can pull.
func TestUpgradePulls(t *testing.T) {
	t.Parallel()
	var hurry atomic.Bool
	s := newEnv(t, envOptions{now: hurried(&hurry)})
	s.newOutdatedCluster("shop", 1, 1)
	for _, step := range []struct {
		pool        v1alpha1.KubernetesVersion
		node, image string
	}{
		{"1.33.4", "cp-0", "registry.k8s.io/kube-apiserver:v1.34.1"},
		{"", "pool-0", "ghcr.io/siderolabs/kubelet:v1.34.1"},
	} {
		s.setFaults(faults.Rule{Operation: "MachineService/ImagePull", Error: "no route to host"})
		s.change("shop", func(kc *v1alpha1.KubernetesCluster) {
			kc.Spec.Topology.Version, kc.Spec.Topology.Workers[0].Version = "1.34.1", step.pool
		})
		s.awaitReason("shop", "Upgrading", "it cannot pull "+step.image+" yet", "no route to host")
		if strings.Contains(s.activeConfig("shop", step.node), step.image) {
			t.Errorf("%s has the configuration of the image %s, which it cannot pull", step.node, step.image)
		}
		s.setFaults()
		hurry.Store(true)
		s.awaitRunning("shop")
	}
	s.awaitVersions("shop", "1.34.1", "1.12.6")
}

// TestUpgradeAwaitsRestart has an upgrade requested while a control plane is about to restart its API server with a changed
// configuration. The first node gets the new version once that has restarted.
func TestUpgradeAwaitsRestart(t *testing.T) {
	t.Parallel()
	s := newEnv(t, envOptions{timing: simtalos.Timing{StaticPods: 3 * time.Second}})
	s.newOutdatedCluster("shop", 3, 0)
	mostDown := s.watchAPIServers("shop", "cp-2")
	config := s.activeConfig("shop", "cp-2")
	s.configureNode("shop-cp-2", strings.Replace(config, "    apiServer:\n", "    apiServer:\n        extraArgs: {audit-log-maxage: \"31\"}\n", 1))
	s.change("shop", func(kc *v1alpha1.KubernetesCluster) { kc.Spec.Topology.Version = "1.34.1" })
	feed.Until(t, "the upgrade begins", func() (bool, string) {
		return strings.Contains(s.activeConfig("shop", "cp-0"), "kube-apiserver:v1.34.1"), s.get("shop").Status.Message
	})
	if mostDown() != 1 {
		t.Error("cp-0 is upgraded while the API server of cp-2 is about to restart")
	}
}

// TestUpgradeSurvives loses every tenth answer, before or after its effect.
func TestUpgradeSurvives(t *testing.T) {
	t.Parallel()
	var hurry atomic.Bool
	s := newEnv(t, envOptions{now: hurried(&hurry)})
	s.newOutdatedCluster("shop", 1, 1)
	s.plan.Seed(7)
	if err := s.plan.Set(
		faults.Rule{Operation: "*/*", Error: "reset", After: true, Rate: 0.1},
		faults.Rule{Operation: "*/*", Error: "unavailable", Rate: 0.1},
		faults.Rule{Operation: "workload", Error: "500", After: true, Rate: 0.1},
	); err != nil {
		t.Fatal(err)
	}
	hurry.Store(true)
	s.change("shop", func(kc *v1alpha1.KubernetesCluster) {
		kc.Spec.Topology.Version, kc.Spec.Talos.Version = "1.34.1", "1.13.9"
	})
	s.awaitVersions("shop", "1.34.1", "1.13.9")
}

// hurried returns a clock that runs ten times as fast once hurry is set, so that a delay of a minute
// passes within a test.
func hurried(hurry *atomic.Bool) func() time.Time {
	began := time.Now()
	return func() time.Time {
		if !hurry.Load() {
			return time.Now()
		}
		return began.Add(10 * time.Since(began))
	}
}
