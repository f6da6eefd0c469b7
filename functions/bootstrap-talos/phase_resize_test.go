package main

import (
	"fmt"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	policyv1 "k8s.io/api/policy/v1"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/intstr"

	"github.com/vitistack/stack/apis/v1alpha1"
	"github.com/vitistack/stack/tests/sim/faults"
	"github.com/vitistack/stack/tests/stand/feed"
)

// inPlace is a rollout that resizes machines in place, some at the same time.
func inPlace(maxUnavailable int32) *v1alpha1.Rollout {
	return &v1alpha1.Rollout{Type: v1alpha1.RolloutInPlace, MaxUnavailable: maxUnavailable}
}

// newSmallCluster creates a cluster whose machines are small and are resized in place, and waits until it runs.
func (s *env) newSmallCluster(controlPlanes, workers int32) {
	s.Helper()
	kc := s.cluster("shop", controlPlanes, workers)
	kc.Spec.Topology.ControlPlane.Template = "small"
	kc.Spec.Topology.ControlPlane.Rollout = &v1alpha1.ControlPlaneRollout{Type: v1alpha1.RolloutInPlace}
	for i := range kc.Spec.Topology.Workers {
		kc.Spec.Topology.Workers[i].Template, kc.Spec.Topology.Workers[i].Rollout = "small", inPlace(0)
	}
	s.create(kc)
	s.awaitRunning("shop")
}

// setTemplate changes the template of the pool.
func (s *env) setTemplate(name string) {
	s.Helper()
	s.change("shop", func(kc *v1alpha1.KubernetesCluster) { kc.Spec.Topology.Workers[0].Template = name })
}

// machineUIDs returns the UIDs of the Machines of a cluster, by name.
func (s *env) machineUIDs(cluster string) map[string]string {
	s.Helper()
	uids := map[string]string{}
	for _, name := range s.machines(cluster) {
		uids[name] = string(s.machine(cluster + "-" + name).UID)
	}
	return uids
}

// boots watches the Nodes of a cluster.
type boots struct {
	mu sync.Mutex
	// ids has the boot IDs of each Node that was Ready, and uids its UIDs.
	ids, uids map[string]map[string]bool
	// away is the highest number of Nodes that were not Ready or cordoned at the same time.
	away int
}

// watchBoots watches the Nodes until the returned function is called. Answers of an API server that restarts
// are left out.
func (s *env) watchBoots(cluster string) func() *boots {
	s.Helper()
	b := &boots{ids: map[string]map[string]bool{}, uids: map[string]map[string]bool{}}
	nodes := s.workload(cluster).CoreV1().Nodes()
	stop, done := make(chan struct{}), make(chan struct{})
	look := func() {
		list, err := nodes.List(s.Context(), metav1.ListOptions{})
		if err != nil {
			return
		}
		b.mu.Lock()
		defer b.mu.Unlock()
		away := 0
		for _, n := range list.Items {
			if b.ids[n.Name] == nil {
				b.ids[n.Name], b.uids[n.Name] = map[string]bool{}, map[string]bool{}
			}
			isReady := slices.ContainsFunc(n.Status.Conditions, func(c corev1.NodeCondition) bool {
				return c.Type == corev1.NodeReady && c.Status == corev1.ConditionTrue
			})
			if isReady {
				b.ids[n.Name][n.Status.NodeInfo.BootID] = true
			}
			b.uids[n.Name][string(n.UID)] = true
			if !isReady || n.Spec.Unschedulable {
				away++
			}
		}
		b.away = max(b.away, away)
	}
	go func() {
		defer close(done)
		for {
			look()
			select {
			case <-stop:
				look()
				return
			case <-time.After(20 * time.Millisecond):
			}
		}
	}()
	return func() *boots {
		close(stop)
		<-done
		return b
	}
}

// requireOneRestart checks that each Node with a prefix is still the same and was booted once since the watch has begun.
func (b *boots) requireOneRestart(t *testing.T, prefix string) {
	t.Helper()
	for name, ids := range b.ids {
		want := 1
		if strings.HasPrefix(name, prefix) {
			want = 2
		}
		if len(ids) != want || len(b.uids[name]) != 1 {
			t.Errorf("Node %s has the boot IDs %v and the UIDs %v, want %d boots of one Node", name, ids, b.uids[name], want)
		}
	}
}

// awaitResized waits until the machines of a cluster with a prefix have a template, and the cluster is Ready.
func (s *env) awaitResized(prefix, template string) {
	s.Helper()
	feed.Until(s, "every "+prefix+" is "+template, func() (bool, string) {
		kc := s.get("shop")
		found := s.templates("shop")
		for name, has := range found {
			if strings.HasPrefix(name, prefix) && has != template {
				return false, fmt.Sprintf("%v: %s", found, kc.Status.Message)
			}
		}
		current := meta.IsStatusConditionTrue(kc.Status.Conditions, v1alpha1.ConditionMachinesCurrent)
		return isUpToDate(kc) && current && len(kc.Status.Resizes) == 0, kc.Status.Message
	})
}

func TestPoolIsResizedInPlace(t *testing.T) {
	t.Parallel()
	for name, tc := range map[string]struct {
		reason         string
		maxUnavailable int32
		away           int
	}{
		"Default": {"one at a time, although maxUnavailable is 0", 0, 1},
		"Two":     {"maxUnavailable at a time", 2, 2},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			s := newEnv(t, envOptions{})
			s.newSmallCluster(1, 3)
			before := s.machineUIDs("shop")
			result := s.watchBoots("shop")
			s.change("shop", func(kc *v1alpha1.KubernetesCluster) {
				kc.Spec.Topology.Workers[0].Template, kc.Spec.Topology.Workers[0].Rollout = "large", inPlace(tc.maxUnavailable)
			})
			s.awaitResized("pool-", "large")
			b := result()
			b.requireOneRestart(t, "shop-pool-")
			if b.away != tc.away {
				t.Errorf("%s: %d nodes were away at the same time, want %d", tc.reason, b.away, tc.away)
			}
			if after := s.machineUIDs("shop"); fmt.Sprint(after) != fmt.Sprint(before) {
				t.Errorf("the Machines were %v, and are %v", before, after)
			}
			s.requireSchedulable("shop")
			if m := s.machine("shop-pool-0"); m.Labels[v1alpha1.LabelMachineTemplate] != "large" {
				t.Errorf("Machine %s has the label of template %s", m.Name, m.Labels[v1alpha1.LabelMachineTemplate])
			}
		})
	}
}

// TestControlPlaneIsResizedInPlace resizes control planes, of which an only one takes its API with it.
func TestControlPlaneIsResizedInPlace(t *testing.T) {
	t.Parallel()
	for _, replicas := range []int32{1, 3} {
		t.Run(fmt.Sprint(replicas), func(t *testing.T) {
			t.Parallel()
			s := newEnv(t, envOptions{})
			s.newSmallCluster(replicas, 1)
			before := s.machineUIDs("shop")
			members := s.members("shop", "cp-0")
			result := s.watchBoots("shop")
			s.change("shop", func(kc *v1alpha1.KubernetesCluster) { kc.Spec.Topology.ControlPlane.Template = "medium" })
			s.awaitResized("cp-", "medium")
			b := result()
			b.requireOneRestart(t, "shop-cp-")
			if b.away > 1 {
				t.Errorf("%d nodes were away at the same time, want 1", b.away)
			}
			if after := s.machineUIDs("shop"); fmt.Sprint(after) != fmt.Sprint(before) {
				t.Errorf("the Machines were %v, and are %v", before, after)
			}
			if after := s.members("shop", "cp-0"); !slices.Equal(after, members) {
				t.Errorf("etcd had the members %v, and has %v", members, after)
			}
			s.requireSchedulable("shop")
		})
	}
}

// TestSmallerDiskIsReplaced shrinks a pool that resizes in place.
func TestSmallerDiskIsReplaced(t *testing.T) {
	t.Parallel()
	s := newEnv(t, envOptions{})
	kc := s.cluster("shop", 1, 1)
	kc.Spec.Topology.Workers[0].Rollout, kc.Spec.Upgrade = inPlace(0), &v1alpha1.UpgradeOptions{Paused: true}
	s.create(kc)
	s.awaitRunning("shop")
	before := s.machine("shop-pool-0").UID
	s.setTemplate("small")
	feed.Until(s, "MachinesCurrent says why the machine is replaced", func() (bool, string) {
		c := meta.FindStatusCondition(s.get("shop").Status.Conditions, v1alpha1.ConditionMachinesCurrent)
		return strings.Contains(c.Message, "1 machine still to be replaced, the first is shop-pool-0 (template medium instead of small, which is not possible in place: disk root would shrink from 40Gi to 20Gi)"), c.Message
	})
	s.change("shop", func(kc *v1alpha1.KubernetesCluster) { kc.Spec.Upgrade.Paused = false })
	s.awaitTemplates("shop", "small", 1)
	for _, uid := range s.machineUIDs("shop") {
		if uid == string(before) {
			t.Error("the machine was not replaced")
		}
	}
}

// blockDrain keeps a pod on the node of the first worker by a PodDisruptionBudget. The returned function removes the budget.
func (s *env) blockDrain() func() {
	s.Helper()
	api := s.workload("shop")
	labels := map[string]string{"app": "db"}
	_, err := api.CoreV1().Pods("default").Create(s.Context(), &corev1.Pod{
		ObjectMeta: metav1.ObjectMeta{Name: "db", Labels: labels},
		Spec:       corev1.PodSpec{NodeName: "shop-pool-0", Containers: []corev1.Container{{Name: "db", Image: "db:1"}}},
	}, metav1.CreateOptions{})
	if err != nil {
		s.Fatal(err)
	}
	one := intstr.FromInt32(1)
	_, err = api.PolicyV1().PodDisruptionBudgets("default").Create(s.Context(), &policyv1.PodDisruptionBudget{
		ObjectMeta: metav1.ObjectMeta{Name: "db"},
		Spec:       policyv1.PodDisruptionBudgetSpec{MinAvailable: &one, Selector: &metav1.LabelSelector{MatchLabels: labels}},
	}, metav1.CreateOptions{})
	if err != nil {
		s.Fatal(err)
	}
	return func() {
		s.Helper()
		if err := api.PolicyV1().PodDisruptionBudgets("default").Delete(s.Context(), "db", metav1.DeleteOptions{}); err != nil {
			s.Fatal(err)
		}
	}
}

// TestResizeRespectsBudgets has a PodDisruptionBudget keep a pod, takes the change back, and lets the drain time out.
func TestResizeRespectsBudgets(t *testing.T) {
	t.Parallel()
	s := newEnv(t, envOptions{})
	s.newSmallCluster(1, 2)
	unblock := s.blockDrain()
	result := s.watchBoots("shop")
	s.setTemplate("medium")
	s.awaitReason("shop", "ResizingMachines", "shop-pool-0 is drained to get template medium instead of small", "pod default/db may not be moved", "disruption budget")
	s.setTemplate("small")
	s.awaitRunning("shop", "cp-0", "pool-0", "pool-1")
	s.requireSchedulable("shop")
	result().requireOneRestart(t, "none") // no node has restarted

	s.change("shop", func(kc *v1alpha1.KubernetesCluster) {
		kc.Spec.Topology.Workers[0].Template = "medium"
		kc.Spec.Topology.Workers[0].DrainTimeout = &metav1.Duration{Duration: time.Second}
	})
	s.awaitReason("shop", "ResizeFailed", "shop-pool-0", "were not evicted within 1s", "pod default/db may not be moved", "drainTimeout")
	if template := s.machine("shop-pool-1").Spec.Template; template != "small" {
		t.Errorf("the rollout goes on after a failure: shop-pool-1 has template %s", template)
	}
	s.change("shop", func(kc *v1alpha1.KubernetesCluster) { kc.Spec.Topology.Workers[0].DrainTimeout = nil })
	s.awaitReason("shop", "ResizingMachines", "shop-pool-0 is drained")
	unblock()
	s.awaitResized("pool-", "medium")
	s.requireSchedulable("shop")
}

// TestResizeFails has a machine stay off at its restart, until the restart has timed out.
func TestResizeFails(t *testing.T) {
	t.Parallel()
	var skew atomic.Int64
	s := newEnv(t, envOptions{now: func() time.Time { return time.Now().Add(time.Duration(skew.Load())) }})
	s.newSmallCluster(1, 2)
	before := s.machineUIDs("shop")
	s.stopped.Store(true)
	s.setTemplate("medium")
	s.awaitReason("shop", "ResizingMachines", "shop-pool-0 restarts to get template medium instead of small")
	skew.Store(int64(25 * time.Minute))
	s.awaitReason("shop", "ResizeFailed", "the resize of Machine shop-pool-0 in place from template small to medium has stopped", "repair Machine shop-pool-0", "vitistack.io/remove=true")
	c := meta.FindStatusCondition(s.get("shop").Status.Conditions, v1alpha1.ConditionMachinesCurrent)
	if c == nil || c.Reason != "ResizeFailed" {
		t.Errorf("condition MachinesCurrent: %+v", c)
	}
	if template := s.machine("shop-pool-1").Spec.Template; template != "small" {
		t.Errorf("the rollout goes on after a failure: shop-pool-1 has template %s", template)
	}
	s.stopped.Store(false)
	s.annotate("shop-pool-0", "test", "start")
	s.awaitResized("pool-", "medium")
	if after := s.machineUIDs("shop"); fmt.Sprint(after) != fmt.Sprint(before) {
		t.Errorf("the Machines were %v, and are %v", before, after)
	}
	s.requireSchedulable("shop")
}

// TestResizeIsTakenBackAfterRestart has a machine stay off with its new size, and asks for the former one.
func TestResizeIsTakenBackAfterRestart(t *testing.T) {
	t.Parallel()
	var skew atomic.Int64
	s := newEnv(t, envOptions{now: func() time.Time { return time.Now().Add(time.Duration(skew.Load())) }})
	s.newSmallCluster(1, 1)
	before := s.machineUIDs("shop")
	s.stopped.Store(true)
	s.setTemplate("medium")
	s.awaitReason("shop", "ResizingMachines", "shop-pool-0 restarts")
	skew.Store(int64(25 * time.Minute))
	s.awaitReason("shop", "ResizeFailed", "shop-pool-0")
	s.stopped.Store(false)
	s.setTemplate("large")
	s.awaitResized("pool-", "large")
	if after := s.machineUIDs("shop"); fmt.Sprint(after) != fmt.Sprint(before) {
		t.Errorf("the Machines were %v, and are %v", before, after)
	}
	s.requireSchedulable("shop")
}

// TestResizePausesAndProtects pauses a rollout, and resizes a protected machine and one that a user has cordoned.
func TestResizePausesAndProtects(t *testing.T) {
	t.Parallel()
	s := newEnv(t, envOptions{})
	s.newSmallCluster(1, 1)
	s.change("shop", func(kc *v1alpha1.KubernetesCluster) {
		kc.Spec.Upgrade = &v1alpha1.UpgradeOptions{Paused: true}
		kc.Spec.Topology.Workers[0].Template = "medium"
	})
	feed.Until(s, "MachinesCurrent says that the rollout is paused", func() (bool, string) {
		kc := s.get("shop")
		c := meta.FindStatusCondition(kc.Status.Conditions, v1alpha1.ConditionMachinesCurrent)
		return isUpToDate(kc) && c.Reason == "ReplacementPaused" && strings.Contains(c.Message, "1 machine still to be resized in place, the first is shop-pool-0 (template small instead of medium)"), c.Message
	})
	m := s.machine("shop-pool-0")
	if err := s.kube.Merge(t.Context(), m, map[string]any{"spec": map[string]any{"protected": true}}); err != nil {
		t.Fatal(err)
	}
	nodes := s.workload("shop").CoreV1().Nodes()
	if _, err := nodes.Patch(t.Context(), "shop-pool-0", "application/merge-patch+json", []byte(`{"spec":{"unschedulable":true}}`), metav1.PatchOptions{}); err != nil {
		t.Fatal(err)
	}
	s.change("shop", func(kc *v1alpha1.KubernetesCluster) { kc.Spec.Upgrade.Paused = false })
	s.awaitResized("pool-", "medium")
	if after := s.machine("shop-pool-0"); after.UID != m.UID {
		t.Error("the protected machine was replaced")
	}
	n, err := nodes.Get(t.Context(), "shop-pool-0", metav1.GetOptions{})
	if err != nil {
		t.Fatal(err)
	}
	if !n.Spec.Unschedulable {
		t.Error("the Node that a user has cordoned was uncordoned")
	}
}

// TestKilledResize resizes machines while each delivery dies at its first write, and while nodes lose requests.
func TestKilledResize(t *testing.T) {
	t.Parallel()
	r := &reaper{}
	s := newEnv(t, envOptions{wrap: r.wrap, handle: r.handle})
	s.newSmallCluster(1, 1)
	s.plan.Seed(3)
	if err := s.plan.Set(faults.Rule{Operation: "workload", Error: "503", Rate: 0.05}, faults.Rule{Operation: "workload", Error: "500", After: true, Rate: 0.05}); err != nil {
		t.Fatal(err)
	}
	before := s.machineUIDs("shop")
	s.setTemplate("medium")
	s.awaitResized("pool-", "medium")
	if err := s.plan.Set(); err != nil {
		t.Fatal(err)
	}
	if after := s.machineUIDs("shop"); fmt.Sprint(after) != fmt.Sprint(before) {
		t.Errorf("the Machines were %v, and are %v", before, after)
	}
	if m := s.machine("shop-pool-0"); !strings.HasPrefix(m.Status.RestartToken, "resize-") {
		t.Errorf("Machine %s was not restarted: its token is %q", m.Name, m.Status.RestartToken)
	}
	s.requireSchedulable("shop")
	t.Logf("%d writes", r.writes.Load())
}
