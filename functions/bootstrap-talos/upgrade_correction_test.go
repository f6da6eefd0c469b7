package main

import (
	"strings"
	"sync/atomic"
	"testing"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/vitistack/stack/apis/cluster/plan"
	"github.com/vitistack/stack/apis/v1alpha1"
	"github.com/vitistack/stack/tests/sim/faults"
	simtalos "github.com/vitistack/stack/tests/sim/talos"
	"github.com/vitistack/stack/tests/stand/feed"
)

// awaitConfig waits until a node of shop runs a configuration with some words.
func (s *env) awaitConfig(node string, words ...string) {
	s.Helper()
	feed.Until(s, node+" has "+strings.Join(words, ", "), func() (bool, string) {
		config := s.activeConfig("shop", node)
		for _, w := range words {
			if !strings.Contains(config, w) {
				return false, w + " is missing: " + s.get("shop").Status.Message
			}
		}
		return true, ""
	})
}

// TestCorrectedAPIServerOfUpgrade corrects a patch for which the API server of the next version does not start. The node gets it with that version,
// and keeps its kubelet, whose turn comes later.
func TestCorrectedAPIServerOfUpgrade(t *testing.T) {
	t.Parallel()
	var ahead atomic.Int64
	s := newEnv(t, envOptions{
		timing: simtalos.Timing{StaticPods: 3 * time.Second},
		now:    func() time.Time { return time.Now().Add(time.Duration(ahead.Load())) },
	})
	patches := s.configMap("patches", map[string]string{"a.yaml": "cluster:\n  apiServer:\n    extraArgs: {removed-flag: \"true\"}\n"})
	kc := s.cluster("shop", 1, 0)
	kc.Spec.Topology.Version = "1.33.4"
	kc.Spec.Talos = &v1alpha1.TalosOptions{Version: "1.12.6", Patches: &v1alpha1.ConfigPatches{All: []v1alpha1.ObjectName{"patches"}}}
	s.create(kc)
	s.awaitVersions("shop", "1.33.4", "1.12.6")
	s.change("shop", func(kc *v1alpha1.KubernetesCluster) { kc.Spec.Topology.Version = "1.34.1" })
	s.awaitConfig("cp-0", "kube-apiserver:v1.34.1", "removed-flag")
	s.setFaults(faults.Rule{Operation: "workload", Error: "503"})
	s.awaitReason("shop", "Upgrading", "shop-cp-0")
	ahead.Store(int64(plan.NodeUpgradeTimeout))
	s.awaitReason("shop", "UpgradeFailed", "it does not answer with version 1.34.1", "correct the patch of its configuration if that is the reason")
	if err := s.kube.Merge(t.Context(), patches, map[string]any{"data": map[string]any{"a.yaml": "cluster:\n  apiServer:\n    extraArgs: {known-flag: \"true\"}\n"}}); err != nil {
		t.Fatal(err)
	}
	s.awaitConfig("cp-0", "known-flag", "kube-apiserver:v1.34.1", "kube-controller-manager:v1.34.1", "kube-scheduler:v1.34.1", "kubelet:v1.33.4")
	if strings.Contains(s.activeConfig("shop", "cp-0"), "removed-flag") {
		t.Error("the node has the former patch")
	}
	s.setFaults()
	s.awaitVersions("shop", "1.34.1", "1.12.6")
}

// TestCorrectedKubeletOfUpgrade has a worker whose upgrade has failed because its kubelet does not start with its configuration.
func TestCorrectedKubeletOfUpgrade(t *testing.T) {
	t.Parallel()
	s := newEnv(t, envOptions{})
	kc := s.cluster("shop", 1, 1)
	kc.Spec.Topology.Version = "1.34.1"
	s.create(kc)
	s.awaitRunning("shop")
	s.change("shop", func(kc *v1alpha1.KubernetesCluster) { kc.Spec.Paused = true })
	s.awaitReason("shop", reasonPaused)
	s.configureNode("shop-pool-0", strings.Replace(s.activeConfig("shop", "pool-0"), "kubelet:v1.34.1", "kubelet:v1.34.99", 1))
	feed.Until(t, "the worker is not Ready", func() (bool, string) {
		ready, _ := s.nodes("shop")
		return len(ready) == 1, ""
	})
	kc = s.get("shop")
	before := kc.DeepCopy()
	kc.Status.Upgrade = &v1alpha1.UpgradeStatus{Kind: v1alpha1.UpgradeKubelet, Generation: kc.Generation + 1, Nodes: []v1alpha1.NodeUpgrade{
		{Name: "shop-pool-0", Step: v1alpha1.UpgradeFailed, From: "1.33.4", To: "1.34.1", Since: metav1.Now()},
	}}
	if _, err := s.kube.PatchStatus(t.Context(), before, kc); err != nil {
		t.Fatal(err)
	}
	s.change("shop", func(kc *v1alpha1.KubernetesCluster) { kc.Spec.Paused = false })
	kc = s.awaitRunning("shop")
	if strings.Contains(s.activeConfig("shop", "pool-0"), "v1.34.99") || kc.Status.Upgrade != nil {
		t.Errorf("the worker has the former configuration, or the upgrade does not end: %+v", kc.Status.Upgrade)
	}
}
