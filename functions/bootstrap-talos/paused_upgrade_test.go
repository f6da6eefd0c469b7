package main

import (
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/vitistack/stack/apis/v1alpha1"
	"github.com/vitistack/stack/tests/sim/faults"
	"github.com/vitistack/stack/tests/stand/feed"
)

// TestSilentAPIDuringPausedUpgrade has the workload API not answer while an upgrade is paused.
func TestSilentAPIDuringPausedUpgrade(t *testing.T) {
	t.Parallel()
	s := newEnv(t, envOptions{})
	s.newOutdatedCluster("shop", 1, 0)
	s.pauseUpgrade("shop", "1.34.1")
	s.setFaults(faults.Rule{Operation: "workload", Error: "503"})
	s.reconcile("shop")
	s.awaitReason("shop", "ClusterUnreachable", "although the cluster has been running")
}

// TestChangesDuringPausedUpgrade changes labels and a patch while an upgrade is paused.
func TestChangesDuringPausedUpgrade(t *testing.T) {
	t.Parallel()
	s := newEnv(t, envOptions{})
	s.newOutdatedCluster("shop", 1, 1)
	s.pauseUpgrade("shop", "1.34.1")
	s.create(&corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Name: "mirror"}, Data: map[string]string{
		"mirror.yaml": "machine:\n  registries:\n    mirrors:\n      ghcr.io:\n        endpoints: [https://mirror.example.com]\n",
	}})
	s.change("shop", func(kc *v1alpha1.KubernetesCluster) {
		kc.Spec.Topology.Workers[0].Labels = map[string]string{"disk": "fast"}
		kc.Spec.Talos.Patches = &v1alpha1.ConfigPatches{All: []v1alpha1.ObjectName{"mirror"}}
	})
	s.awaitRunning("shop")
	n, err := s.workload("shop").CoreV1().Nodes().Get(t.Context(), "shop-pool-0", metav1.GetOptions{})
	if err != nil {
		t.Fatal(err)
	}
	if n.Labels["disk"] != "fast" {
		t.Errorf("the node has labels %v, want those of its pool", n.Labels)
	}
	c := meta.FindStatusCondition(s.get("shop").Status.Conditions, v1alpha1.ConditionConfigCurrent)
	if c == nil || c.Status != metav1.ConditionFalse || c.Reason != reasonUpgradePaused || !strings.Contains(c.Message, "set spec.upgrade.paused to false") {
		t.Errorf("the nodes do not have the patch, and ConfigCurrent says %+v", c)
	}
	s.change("shop", func(kc *v1alpha1.KubernetesCluster) { kc.Spec.Upgrade.Paused = false })
	s.awaitVersions("shop", "1.34.1", "1.12.6")
	if config := s.activeConfig("shop", "pool-0"); !strings.Contains(config, "mirror.example.com") {
		t.Error("the node does not have the patch after the upgrade")
	}
}

// pauseUpgrade writes another Kubernetes version into a cluster whose upgrades are paused, and waits until the status shows that.
func (s *env) pauseUpgrade(cluster string, version v1alpha1.KubernetesVersion) {
	s.Helper()
	s.change(cluster, func(kc *v1alpha1.KubernetesCluster) {
		kc.Spec.Upgrade = &v1alpha1.UpgradeOptions{Paused: true}
		kc.Spec.Topology.Version = version
	})
	feed.Until(s, "the pause is shown", func() (bool, string) {
		kc := s.get(cluster)
		c := meta.FindStatusCondition(kc.Status.Conditions, v1alpha1.ConditionVersionsCurrent)
		return isUpToDate(kc) && c != nil && c.Reason == "UpgradePaused", kc.Status.Message
	})
}
