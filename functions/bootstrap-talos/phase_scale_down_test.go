package main

import (
	"slices"
	"testing"

	"github.com/vitistack/stack/apis/v1alpha1"
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
