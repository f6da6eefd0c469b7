package main

import (
	"fmt"
	"slices"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/vitistack/stack/apis/v1alpha1"
	"github.com/vitistack/stack/functions/internal/kube"
	"github.com/vitistack/stack/tests/stand/feed"
)

// watchMachines counts the Machines of a cluster, and of those the workers that are not in removal,
// until the returned function is called. It returns the highest and the lowest numbers seen.
func (s *env) watchMachines(cluster string) func() (most, fewest int) {
	most, fewest := 0, 1000
	stop, done := make(chan struct{}), make(chan struct{})
	go func() {
		defer close(done)
		for {
			select {
			case <-stop:
				return
			case <-time.After(20 * time.Millisecond):
			}
			list := &v1alpha1.MachineList{}
			if s.kube.List(s.Context(), s.namespace, v1alpha1.LabelClusterName+"="+cluster, list) != nil {
				continue
			}
			staying := 0
			for _, m := range list.Items {
				if m.Annotations[v1alpha1.AnnotationRemoving] == "" && m.DeletionTimestamp == nil {
					staying++
				}
			}
			most, fewest = max(most, len(list.Items)), min(fewest, staying)
		}
	}()
	return func() (int, int) {
		close(stop)
		<-done
		return most, fewest
	}
}

// templates returns the templates of a cluster's Machines, by their names without the cluster's.
func (s *env) templates(cluster string) map[string]string {
	s.Helper()
	list := &v1alpha1.MachineList{}
	if err := s.kube.List(s.Context(), s.namespace, v1alpha1.LabelClusterName+"="+cluster, list); err != nil {
		s.Fatal(err)
	}
	found := map[string]string{}
	for _, m := range list.Items {
		found[strings.TrimPrefix(m.Name, cluster+"-")] = m.Spec.Template
	}
	return found
}

// awaitTemplates waits until a cluster is Running and each of its workers has a template.
func (s *env) awaitTemplates(cluster, template string, workers int) {
	s.Helper()
	feed.Until(s, "every worker is "+template, func() (bool, string) {
		kc := s.get(cluster)
		fitting := 0
		found := s.templates(cluster)
		for name, has := range found {
			if strings.HasPrefix(name, "pool-") && has == template {
				fitting++
			}
		}
		current := meta.IsStatusConditionTrue(kc.Status.Conditions, v1alpha1.ConditionMachinesCurrent)
		return isUpToDate(kc) && current && fitting == workers && len(found) == workers+1, kc.Status.Message
	})
}

func TestPoolIsReplaced(t *testing.T) {
	t.Parallel()
	zero, two := int32(0), int32(2)
	cases := map[string]struct {
		reason       string
		rollout      *v1alpha1.Rollout
		most, fewest int
	}{
		"Default":    {"one machine more, and none missing", nil, 4, 3},
		"NoSurge":    {"no machine more, and one missing", &v1alpha1.Rollout{MaxSurge: &zero, MaxUnavailable: 1}, 3, 2},
		"SurgeOfTwo": {"two machines more, and none missing", &v1alpha1.Rollout{MaxSurge: &two}, 5, 3},
		"Both":       {"one more, and one missing", &v1alpha1.Rollout{MaxUnavailable: 1}, 4, 2},
		"AllAtOnce":  {"no machine more, and two missing", &v1alpha1.Rollout{MaxSurge: &zero, MaxUnavailable: 2}, 3, 1},
	}
	for name, tc := range cases {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			s := newEnv(t, envOptions{})
			s.create(s.cluster("shop", 1, 2))
			s.awaitRunning("shop", "cp-0", "pool-0", "pool-1")
			result := s.watchMachines("shop")
			s.change("shop", func(kc *v1alpha1.KubernetesCluster) {
				kc.Spec.Topology.Workers[0].Template, kc.Spec.Topology.Workers[0].Rollout = "small", tc.rollout
			})
			s.awaitTemplates("shop", "small", 2)
			if most, fewest := result(); most > tc.most || fewest < tc.fewest {
				t.Errorf("%s: between %d and %d machines, want between %d and %d", tc.reason, fewest, most, tc.fewest, tc.most)
			}
			if _, all := s.nodes("shop"); len(all) != 3 {
				t.Errorf("nodes of replaced machines are left: %v", all)
			}
			s.requireSchedulable("shop")
		})
	}
}

// requireSchedulable checks that no Node is cordoned: a machine with the name of a replaced one would
// take over its Node with the cordon of its drain.
func (s *env) requireSchedulable(cluster string) {
	s.Helper()
	list, err := s.workload(cluster).CoreV1().Nodes().List(s.Context(), metav1.ListOptions{})
	if err != nil {
		s.Fatal(err)
	}
	for _, n := range list.Items {
		if n.Spec.Unschedulable {
			s.Errorf("Node %s is cordoned, although its machine is not being removed", n.Name)
		}
	}
}

func TestControlPlaneIsReplaced(t *testing.T) {
	t.Parallel()
	s := newEnv(t, envOptions{})
	s.create(s.cluster("shop", 3, 0))
	s.awaitRunning("shop", "cp-0", "cp-1", "cp-2")
	result := s.watchMachines("shop")
	s.change("shop", func(kc *v1alpha1.KubernetesCluster) { kc.Spec.Topology.ControlPlane.Template = "medium" })
	feed.Until(s, "every control plane is medium", func() (bool, string) {
		kc := s.get("shop")
		templates := s.templates("shop")
		for _, template := range templates {
			if template != "medium" {
				return false, kc.Status.Message
			}
		}
		return isUpToDate(kc) && len(templates) == 3, kc.Status.Message
	})
	if most, fewest := result(); most > 4 || fewest < 3 {
		t.Errorf("between %d and %d control planes, want 3 or 4", fewest, most)
	}
	names := s.machines("shop")
	if got := s.members("shop", names[0]); !slices.Equal(got, names) {
		t.Errorf("members of etcd: %v, want %v", got, names)
	}
}

// TestTakenOverNodeIsUncordoned has a Node with the cordon of the removal of an earlier Machine.
func TestTakenOverNodeIsUncordoned(t *testing.T) {
	t.Parallel()
	s := newEnv(t, envOptions{})
	s.create(s.cluster("shop", 1, 1))
	s.awaitRunning("shop", "cp-0", "pool-0")
	nodes := s.workload("shop").CoreV1().Nodes()
	cordon := fmt.Sprintf(`{"metadata": {"annotations": {%q: "earlier"}}, "spec": {"unschedulable": true}}`, v1alpha1.AnnotationRemoving)
	if _, err := nodes.Patch(t.Context(), "shop-pool-0", types.MergePatchType, []byte(cordon), metav1.PatchOptions{}); err != nil {
		t.Fatal(err)
	}
	feed.Until(s, "the Node is uncordoned", func() (bool, string) {
		s.reconcile("shop")
		n, err := nodes.Get(t.Context(), "shop-pool-0", metav1.GetOptions{})
		if err != nil {
			return false, err.Error()
		}
		return !n.Spec.Unschedulable && n.Annotations[v1alpha1.AnnotationRemoving] == "", fmt.Sprint(n.Spec.Unschedulable, n.Annotations)
	})
}

// TestReplacementStops changes a template while replacements are paused, takes the change back, and
// protects a machine.
func TestReplacementStops(t *testing.T) {
	t.Parallel()
	s := newEnv(t, envOptions{})
	kc := s.cluster("shop", 1, 1)
	kc.Spec.Upgrade = &v1alpha1.UpgradeOptions{Paused: true}
	s.create(kc)
	s.awaitRunning("shop", "cp-0", "pool-0")
	before := s.machine("shop-pool-0").UID
	template := func(name string) {
		s.change("shop", func(kc *v1alpha1.KubernetesCluster) { kc.Spec.Topology.Workers[0].Template = name })
	}
	awaitCurrent := func(reason string) {
		t.Helper()
		feed.Until(s, "MachinesCurrent has reason "+reason, func() (bool, string) {
			kc := s.get("shop")
			c := meta.FindStatusCondition(kc.Status.Conditions, v1alpha1.ConditionMachinesCurrent)
			return isUpToDate(kc) && c != nil && c.Reason == reason, kc.Status.Message
		})
	}
	template("small")
	awaitCurrent("ReplacementPaused")
	template("medium")
	awaitCurrent("MachinesCurrent")
	m := s.machine("shop-pool-0")
	if err := s.kube.Merge(t.Context(), m, map[string]any{"spec": map[string]any{"protected": true}}); err != nil {
		t.Fatal(err)
	}
	s.change("shop", func(kc *v1alpha1.KubernetesCluster) {
		kc.Spec.Upgrade.Paused = false
		kc.Spec.Topology.Workers[0].Template = "large"
	})
	awaitCurrent("MachineProtected")
	if after := s.machine("shop-pool-0").UID; after != before {
		t.Error("the machine was replaced, although replacements were paused, taken back, or forbidden")
	}
}

// TestReplacementIsTakenBack asks for machines that get no addresses, and takes that back.
func TestReplacementIsTakenBack(t *testing.T) {
	t.Parallel()
	s := newEnv(t, envOptions{})
	s.create(s.cluster("shop", 1, 2))
	s.awaitRunning("shop", "cp-0", "pool-0", "pool-1")
	s.closed.Store(true)
	template := func(name string) {
		s.change("shop", func(kc *v1alpha1.KubernetesCluster) { kc.Spec.Topology.Workers[0].Template = name })
	}
	template("small")
	feed.Until(s, "a replacement is created", func() (bool, string) {
		return len(s.machines("shop")) == 4, s.get("shop").Status.Message
	})
	template("medium")
	s.awaitRunning("shop", "cp-0", "pool-0", "pool-1")
	for _, name := range []string{"shop-pool-0", "shop-pool-1"} {
		if reason := s.machine(name).Annotations[v1alpha1.AnnotationReplace]; reason != "" {
			t.Errorf("Machine %s is still annotated to be replaced: %s", name, reason)
		}
	}
}

// TestUnhealthyMachineIsReplaced cuts the power of a worker, and lets hours pass.
func TestUnhealthyMachineIsReplaced(t *testing.T) {
	t.Parallel()
	var skew atomic.Int64
	s := newEnv(t, envOptions{now: func() time.Time { return time.Now().Add(time.Duration(skew.Load())) }})
	s.create(s.cluster("shop", 1, 2))
	s.awaitRunning("shop", "cp-0", "pool-0", "pool-1")
	old := s.machine("shop-pool-0")
	if err := s.fleet.PowerOff(string(old.UID)); err != nil {
		t.Fatal(err)
	}
	feed.Until(s, "MachinesHealthy says why none is replaced", func() (bool, string) {
		s.reconcile("shop")
		c := meta.FindStatusCondition(s.get("shop").Status.Conditions, v1alpha1.ConditionMachinesHealthy)
		return c != nil && strings.Contains(c.Message, "10m0s"), s.get("shop").Status.Message
	})
	skew.Store(int64(time.Hour))
	s.awaitReplaced("shop", old)
}

// TestLostHost replaces two machines of a host that is away. Their Machines cannot be deleted before it is back, and
// the first one does not keep the second one from being replaced.
func TestLostHost(t *testing.T) {
	t.Parallel()
	var skew atomic.Int64
	s := newEnv(t, envOptions{now: func() time.Time { return time.Now().Add(time.Duration(skew.Load())) }})
	kc := s.cluster("shop", 1, 3)
	kc.Spec.Topology.Workers[0].HealthCheck = &v1alpha1.HealthCheck{MaxUnhealthy: 2}
	s.create(kc)
	s.awaitRunning("shop")
	lost := []string{"shop-pool-0", "shop-pool-1"}
	for _, name := range lost {
		m := s.machine(name)
		if err := s.kube.Merge(t.Context(), m, map[string]any{"metadata": map[string]any{"finalizers": append(m.Finalizers, "example.com/host-is-away")}}); err != nil {
			t.Fatal(err)
		}
		if err := s.fleet.PowerOff(string(m.UID)); err != nil {
			t.Fatal(err)
		}
	}
	skew.Store(int64(time.Hour))
	feed.Until(s, "both machines have replacements", func() (bool, string) {
		s.reconcile("shop")
		ready, _ := s.nodes("shop")
		healthy := meta.FindStatusCondition(s.get("shop").Status.Conditions, v1alpha1.ConditionMachinesHealthy)
		stillReady := slices.ContainsFunc(lost, func(name string) bool { return slices.Contains(ready, name) }) // their kubelets were alive a moment ago
		return len(ready) == 4 && !stillReady, fmt.Sprintf("Ready are %v: %v", ready, healthy)
	})
	for _, name := range lost {
		if s.machine(name).DeletionTimestamp == nil {
			t.Errorf("Machine %s is not deleted", name)
		}
	}
}

// awaitReplaced waits until a Machine is gone, and the cluster has three Ready nodes. The new Machine has the name of the
// old one if that was gone before.
func (s *env) awaitReplaced(cluster string, old *v1alpha1.Machine) {
	s.Helper()
	feed.Until(s, "Machine "+old.Name+" is replaced", func() (bool, string) {
		now := &v1alpha1.Machine{}
		if err := s.kube.Get(s.Context(), old.Namespace, old.Name, now); err != nil && !kube.NotFound(err) {
			return false, err.Error()
		}
		ready, all := s.nodes(cluster)
		healthy := meta.FindStatusCondition(s.get(cluster).Status.Conditions, v1alpha1.ConditionMachinesHealthy)
		return now.UID != old.UID && len(ready) == 3 && len(all) == 3, fmt.Sprintf("Machine %s: %s, Ready %v of %v: %v", now.Name, now.UID, ready, all, healthy)
	})
}
