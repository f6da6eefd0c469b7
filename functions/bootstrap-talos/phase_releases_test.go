package main

import (
	"net/netip"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/vitistack/stack/apis/cluster/plan"
	"github.com/vitistack/stack/apis/v1alpha1"
	"github.com/vitistack/stack/functions/internal/kube"
	"github.com/vitistack/stack/tests/stand/feed"
)

// TestReleaseDoesNotExist requests a patch release that has no images, for a new cluster, follows the message, and
// deletes another one that waits.
func TestReleaseDoesNotExist(t *testing.T) {
	t.Parallel()
	s := newEnv(t, envOptions{})
	for _, name := range []string{"shop", "gone"} {
		kc := s.cluster(name, 1, 1)
		kc.Spec.Topology.Version = "1.33.77"
		s.create(kc)
	}
	for _, name := range []string{"shop", "gone"} {
		s.awaitReason(name, "KubernetesVersionUnknown", "Kubernetes 1.33.77 does not exist", "kubelet:v1.33.77 is not found", "write 1.33, or a release from 1.33.0 to 1.33.13")
	}
	s.change("shop", func(kc *v1alpha1.KubernetesCluster) { kc.Spec.Topology.Version = "1.33" })
	s.awaitRunning("shop", "cp-0", "pool-0")
	s.awaitVersions("shop", "1.33.13", "1.13.9")
	if err := s.kube.Delete(t.Context(), s.get("gone")); err != nil {
		t.Fatal(err)
	}
	feed.Until(s, "the cluster is deleted", func() (bool, string) {
		err := s.kube.Get(t.Context(), s.namespace, "gone", &v1alpha1.KubernetesCluster{})
		return kube.NotFound(err), strings.Join(s.machines("gone"), ", ")
	})
}

// TestUpgradeToReleaseThatDoesNotExist upgrades a running cluster to a patch release that has no images. Every node
// keeps running, the cluster grows meanwhile, and follows a version that exists.
func TestUpgradeToReleaseThatDoesNotExist(t *testing.T) {
	t.Parallel()
	s := newEnv(t, envOptions{})
	kc := s.cluster("shop", 1, 1)
	kc.Spec.Topology.Version = "1.33.4"
	s.create(kc)
	s.awaitRunning("shop", "cp-0", "pool-0")
	s.awaitVersions("shop", "1.33.4", "1.13.9")
	s.change("shop", func(kc *v1alpha1.KubernetesCluster) { kc.Spec.Topology.Version = "1.33.77" })
	s.awaitReason("shop", "UpgradeFailed", "Kubernetes 1.33.77 does not exist", "kube-apiserver:v1.33.77 is not found", "write 1.33, or a release from 1.33.0 to 1.33.13")
	s.change("shop", func(kc *v1alpha1.KubernetesCluster) { kc.Spec.Topology.Workers[0].Replicas = 2 })
	feed.Until(s, "another node joins", func() (bool, string) {
		ready, all := s.nodes("shop")
		return len(ready) == 3 && len(all) == 3, s.get("shop").Status.Message
	})
	s.change("shop", func(kc *v1alpha1.KubernetesCluster) { kc.Spec.Topology.Version = "1.33.13" })
	s.awaitVersions("shop", "1.33.13", "1.13.9")
}

// TestHealingDuringFailedUpgrade crashes a worker after an upgrade has stopped.
func TestHealingDuringFailedUpgrade(t *testing.T) {
	t.Parallel()
	var skew atomic.Int64
	s := newEnv(t, envOptions{now: func() time.Time { return time.Now().Add(time.Duration(skew.Load())) }})
	kc := s.cluster("shop", 1, 2)
	kc.Spec.Topology.Version = "1.33.4"
	s.create(kc)
	s.awaitRunning("shop", "cp-0", "pool-0", "pool-1")
	s.change("shop", func(kc *v1alpha1.KubernetesCluster) { kc.Spec.Topology.Version = "1.33.77" })
	s.awaitReason("shop", "UpgradeFailed", "Kubernetes 1.33.77 does not exist")
	old := s.machine("shop-pool-0")
	if err := s.fleet.Crash([]netip.Addr{netip.MustParseAddr(plan.Address(old))}); err != nil {
		t.Fatal(err)
	}
	skew.Store(int64(time.Hour))
	s.awaitReplaced("shop", old)
}
