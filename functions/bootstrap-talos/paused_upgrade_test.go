package main

import (
	"testing"

	"k8s.io/apimachinery/pkg/api/meta"

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
