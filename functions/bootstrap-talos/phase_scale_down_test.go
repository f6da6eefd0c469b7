package main

import (
	"slices"
	"strings"
	"testing"

	"github.com/vitistack/stack/apis/v1alpha1"
	"github.com/vitistack/stack/tests/stand/feed"
)

func replicas(controlPlanes int32, pools map[string]int32) func(*v1alpha1.KubernetesCluster) {
	return func(kc *v1alpha1.KubernetesCluster) {
		kc.Spec.Topology.ControlPlane.Replicas = controlPlanes
		kc.Spec.Topology.Workers = nil
		for _, name := range []string{"pool", "other"} {
			if n, ok := pools[name]; ok {
				kc.Spec.Topology.Workers = append(kc.Spec.Topology.Workers, v1alpha1.WorkerPool{Name: name, Replicas: n})
			}
		}
	}
}

func TestPoolsGrowAndShrink(t *testing.T) {
	t.Parallel()
	s := newEnv(t, envOptions{})
	s.create(s.cluster("shop", 1, 1))
	s.awaitRunning("shop", "cp-0", "pool-0")
	for _, step := range []struct {
		pools map[string]int32
		want  []string
	}{
		{map[string]int32{"pool": 3}, []string{"cp-0", "pool-0", "pool-1", "pool-2"}},
		{map[string]int32{"pool": 1, "other": 2}, []string{"cp-0", "other-0", "other-1", "pool-0"}},
		{map[string]int32{"other": 1}, []string{"cp-0", "other-0"}},
	} {
		s.change("shop", replicas(1, step.pools))
		s.awaitRunning("shop", step.want...)
		if ready, all := s.nodes("shop"); !slices.Equal(all, step.want) || !slices.Equal(ready, step.want) {
			t.Errorf("nodes %v, Ready are %v, want %v", all, ready, step.want)
		}
	}
}

func TestControlPlaneGrowsAndShrinks(t *testing.T) {
	t.Parallel()
	s := newEnv(t, envOptions{})
	s.create(s.cluster("shop", 1, 0))
	s.awaitRunning("shop", "cp-0")
	for _, step := range []struct {
		replicas int32
		want     []string
	}{
		{3, []string{"cp-0", "cp-1", "cp-2"}},
		{5, []string{"cp-0", "cp-1", "cp-2", "cp-3", "cp-4"}},
		{3, []string{"cp-0", "cp-1", "cp-2"}},
		{1, []string{"cp-0"}},
	} {
		s.change("shop", replicas(step.replicas, nil))
		s.awaitRunning("shop", step.want...)
		if got := s.members("shop", "cp-0"); !slices.Equal(got, step.want) {
			t.Errorf("etcd members: %v, want %v", got, step.want)
		}
		if _, all := s.nodes("shop"); !slices.Equal(all, step.want) {
			t.Errorf("nodes: %v, want %v", all, step.want)
		}
	}
}

// TestScaleDownTakenBack takes a scale-down back after a delivery has recorded the control plane to remove, and has crashed
// before it began the removal. A control plane can be replaced afterwards.
func TestScaleDownTakenBack(t *testing.T) {
	t.Parallel()
	s := newEnv(t, envOptions{})
	s.create(s.cluster("shop", 3, 0))
	kc := s.awaitRunning("shop")
	before := kc.DeepCopy()
	kc.Status.Removing = "shop-cp-2"
	if _, err := s.kube.PatchStatus(t.Context(), before, kc); err != nil {
		t.Fatal(err)
	}
	s.annotate("shop-cp-0", v1alpha1.AnnotationRemove, "true")
	s.awaitRunning("shop", "cp-1", "cp-2", "cp-3")
}

// TestSwitchedOffNode switches off the machine of a node. The cluster says what it waits for, and what to write.
func TestSwitchedOffNode(t *testing.T) {
	t.Parallel()
	s := newEnv(t, envOptions{})
	s.create(s.cluster("shop", 1, 1))
	s.awaitRunning("shop")
	power := func(state v1alpha1.PowerState) {
		t.Helper()
		m := s.machine("shop-pool-0")
		if err := s.kube.Merge(t.Context(), m, map[string]any{"spec": map[string]any{"powerState": state}}); err != nil {
			t.Fatal(err)
		}
	}
	power(v1alpha1.PowerStopped)
	feed.Until(t, "the cluster says which machine it waits for, and what to write", func() (bool, string) {
		s.reconcile("shop") // the Node is not Ready a while later
		message := s.get("shop").Status.Message
		return strings.Contains(message, "shop-pool-0: it is switched off by spec.powerState: write Running there, or have the cluster remove it with the annotation vitistack.io/remove=true"), message
	})
	power(v1alpha1.PowerRunning)
	s.awaitRunning("shop")
}
