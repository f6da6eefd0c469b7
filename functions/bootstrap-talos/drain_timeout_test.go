package main

import (
	"strings"
	"sync/atomic"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/vitistack/stack/apis/cluster/plan"
	"github.com/vitistack/stack/apis/v1alpha1"
	"github.com/vitistack/stack/tests/sim/faults"
	"github.com/vitistack/stack/tests/stand/feed"
)

// TestDrainTimeout has a PodDisruptionBudget keep all pods until the drain times out.
// TestDrainRespectsBudgets has the case without a timeout.
func TestDrainTimeout(t *testing.T) {
	t.Parallel()
	s := newEnv(t, envOptions{})
	kc := s.cluster("shop", 1, 2)
	kc.Spec.Topology.Workers[0].DrainTimeout = &metav1.Duration{Duration: time.Hour}
	s.create(kc)
	s.awaitRunning("shop")
	s.deploy("shop", "web", 4, 4)
	s.change("shop", replicas(1, map[string]int32{"pool": 1}))
	s.awaitReason("shop", "RemovingNodes", "pool-", "The disruption budget web needs 4 healthy pods")
	s.change("shop", func(kc *v1alpha1.KubernetesCluster) {
		kc.Spec.Topology.Workers[0].DrainTimeout = &metav1.Duration{Duration: time.Second}
	})
	if kc := s.awaitRunning("shop"); kc.Status.WorkersReady != "1/1" {
		t.Errorf("workers: %s, want 1/1", kc.Status.WorkersReady)
	}
}

// TestDrainBlocked has a PodDisruptionBudget keep all pods of a machine whose pool has no timeout,
// until the condition reports it.
func TestDrainBlocked(t *testing.T) {
	t.Parallel()
	var later atomic.Int64
	s := newEnv(t, envOptions{now: func() time.Time { return time.Now().Add(time.Duration(later.Load())) }})
	s.create(s.cluster("shop", 1, 2))
	s.awaitRunning("shop")
	s.deploy("shop", "web", 4, 4)
	s.change("shop", replicas(1, map[string]int32{"pool": 1}))
	s.awaitReason("shop", "RemovingNodes", "pool-", "The disruption budget web needs 4 healthy pods")
	later.Store(int64(plan.DefaultDrainTimeout + time.Minute))
	s.awaitReason("shop", "DrainBlocked", "shop-pool-", "within 1h0m0s", "The disruption budget web needs 4 healthy pods", "drainTimeout", v1alpha1.AnnotationForce+"=true")
	if got := s.machines("shop"); len(got) != 3 {
		t.Errorf("machines %v, want all three", got)
	}
	for _, name := range []string{"shop-pool-0", "shop-pool-1"} {
		if plan.IsLeaving(s.machine(name)) {
			s.annotate(name, v1alpha1.AnnotationForce, "true")
			break
		}
	}
	if kc := s.awaitRunning("shop"); kc.Status.WorkersReady != "1/1" {
		t.Errorf("workers: %s, want 1/1", kc.Status.WorkersReady)
	}
}

// TestDrainOfRemovedPool has a PodDisruptionBudget keep all pods of a pool that is not in the spec any more, and follows the message.
func TestDrainOfRemovedPool(t *testing.T) {
	t.Parallel()
	var later atomic.Int64
	s := newEnv(t, envOptions{now: func() time.Time { return time.Now().Add(time.Duration(later.Load())) }})
	s.create(s.cluster("shop", 1, 1))
	s.awaitRunning("shop")
	s.deploy("shop", "web", 2, 2)
	pools := s.get("shop").Spec.Topology.Workers
	s.change("shop", func(kc *v1alpha1.KubernetesCluster) { kc.Spec.Topology.Workers = nil })
	s.awaitReason("shop", "RemovingNodes", "pool-0", "The disruption budget web needs 2 healthy pods")
	later.Store(int64(plan.DefaultDrainTimeout + time.Minute))
	s.awaitReason("shop", "DrainBlocked", "write pool pool into the spec again, with replicas 0 and a drainTimeout", v1alpha1.AnnotationForce+"=true")
	s.change("shop", func(kc *v1alpha1.KubernetesCluster) {
		pools[0].Replicas, pools[0].DrainTimeout = 0, &metav1.Duration{Duration: time.Second}
		kc.Spec.Topology.Workers = pools
	})
	s.awaitRunning("shop", "cp-0")
}

// TestDrainAfterPause pauses a cluster whose pods keep a machine from leaving, for longer than the drain timeout. The
// drain then has its whole time.
func TestDrainAfterPause(t *testing.T) {
	t.Parallel()
	for name, tc := range map[string]struct {
		reason string
		pause  func(kc *v1alpha1.KubernetesCluster, paused bool)
	}{
		"Field": {"Paused", func(kc *v1alpha1.KubernetesCluster, paused bool) { kc.Spec.Paused = paused }},
		"Annotation": {"PausedByAnnotation", func(kc *v1alpha1.KubernetesCluster, paused bool) {
			if delete(kc.Annotations, v1alpha1.AnnotationPaused); paused {
				metav1.SetMetaDataAnnotation(&kc.ObjectMeta, v1alpha1.AnnotationPaused, "true")
			}
		}},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			testDrainAfterPause(t, tc.reason, tc.pause)
		})
	}
}

func testDrainAfterPause(t *testing.T, reason string, pause func(kc *v1alpha1.KubernetesCluster, paused bool)) {
	t.Helper()
	var later atomic.Int64
	s := newEnv(t, envOptions{now: func() time.Time { return time.Now().Add(time.Duration(later.Load())) }})
	s.create(s.cluster("shop", 1, 2))
	s.awaitRunning("shop")
	s.deploy("shop", "web", 4, 4)
	s.change("shop", func(kc *v1alpha1.KubernetesCluster) {
		kc.Spec.Topology.Workers[0].Replicas = 1
		kc.Spec.Topology.Workers[0].DrainTimeout = &metav1.Duration{Duration: 30 * time.Minute}
	})
	s.awaitReason("shop", "RemovingNodes", "The disruption budget web needs 4 healthy pods")
	s.change("shop", func(kc *v1alpha1.KubernetesCluster) { pause(kc, true) })
	s.awaitReason("shop", reason)
	later.Store(int64(time.Hour))
	s.change("shop", func(kc *v1alpha1.KubernetesCluster) { pause(kc, false) })
	s.awaitReason("shop", "RemovingNodes", "The disruption budget web needs 4 healthy pods")
	if got := s.machines("shop"); len(got) != 3 {
		t.Errorf("machines %v, want all three", got)
	}
	later.Store(int64(2 * time.Hour))
	s.awaitRunning("shop")
}

// TestConfigChanges changes settings that Talos applies only with a reboot.
func TestConfigChanges(t *testing.T) {
	t.Parallel()
	const rule = "SUBSYSTEM==\"block\""
	s := newEnv(t, envOptions{})
	s.create(&corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Name: "patches"}, Data: map[string]string{"a.yaml": "machine:\n  sysctls:\n    vm.swappiness: \"1\"\n"}})
	kc := s.cluster("shop", 1, 0)
	kc.Spec.Talos = &v1alpha1.TalosOptions{Patches: &v1alpha1.ConfigPatches{All: []v1alpha1.ObjectName{"patches"}}}
	s.create(kc)
	s.awaitRunning("shop")
	cm := &corev1.ConfigMap{}
	if err := s.kube.Get(t.Context(), s.namespace, "patches", cm); err != nil {
		t.Fatal(err)
	}
	if err := s.kube.Merge(t.Context(), cm, map[string]any{"data": map[string]any{"a.yaml": "machine:\n  udev:\n    rules:\n      - " + rule + "\n"}}); err != nil {
		t.Fatal(err)
	}
	current := func(reason string) {
		t.Helper()
		feed.Until(t, "ConfigCurrent says "+reason, func() (bool, string) {
			c := meta.FindStatusCondition(s.get("shop").Status.Conditions, v1alpha1.ConditionConfigCurrent)
			if c == nil {
				return false, "no condition"
			}
			return c.Reason == reason && (c.Status == metav1.ConditionTrue || strings.Contains(c.Message, "cp-0")), c.Reason + ": " + c.Message
		})
	}
	runs := func(want bool) {
		t.Helper()
		if got := strings.Contains(s.activeConfig("shop", "cp-0"), "SUBSYSTEM"); got != want {
			t.Errorf("the node runs the change: %t, want %t", got, want)
		}
	}
	policy := func(p v1alpha1.ConfigChanges) {
		s.change("shop", func(kc *v1alpha1.KubernetesCluster) { kc.Spec.Talos.ConfigChanges = p })
	}
	s.reconcile("shop")
	current("RebootNeeded")
	policy(v1alpha1.ConfigStaged)
	current("Staged")
	runs(false)
	if err := s.plan.Set(faults.Rule{Operation: "MachineService/ApplyConfiguration", Error: "Unavailable"}); err != nil {
		t.Fatal(err)
	}
	s.reconcile("shop") // a staged configuration is not sent again, because a second request would fail
	if kc := s.get("shop"); !isUpToDate(kc) {
		t.Errorf("a node that waits for its reboot gets another request: %s", kc.Status.Message)
	}
	if err := s.plan.Set(); err != nil {
		t.Fatal(err)
	}
	policy(v1alpha1.ConfigReboot)
	current("ConfigCurrent")
	s.awaitRunning("shop", "cp-0")
	runs(true)
}
