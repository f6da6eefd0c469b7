package main

import (
	"fmt"
	"slices"
	"testing"

	"k8s.io/apimachinery/pkg/api/meta"

	"github.com/vitistack/stack/apis/v1alpha1"
	"github.com/vitistack/stack/tests/stand/feed"
)

// TestInvalidSpec makes the spec of a running cluster invalid. Only the condition of the error and
// Ready report that: nodes are still observed, and a lost one is replaced according to the last valid
// spec.
func TestInvalidSpec(t *testing.T) {
	t.Parallel()
	for name, tc := range map[string]struct {
		condition, reason string
		edit, fix         func(*v1alpha1.KubernetesCluster)
	}{
		"Downgrade": {v1alpha1.ConditionTopologyValid, "KubernetesDowngrade",
			func(kc *v1alpha1.KubernetesCluster) { kc.Spec.Topology.Version = "1.33" },
			func(kc *v1alpha1.KubernetesCluster) { kc.Spec.Topology.Version = "1.34" }},
		"Skew": {v1alpha1.ConditionTopologyValid, "VersionSkew",
			func(kc *v1alpha1.KubernetesCluster) { kc.Spec.Topology.Workers[0].Version = "1.35" },
			func(kc *v1alpha1.KubernetesCluster) { kc.Spec.Topology.Workers[0].Version = "" }},
		"Template": {v1alpha1.ConditionTopologyValid, "TemplateNotFound",
			func(kc *v1alpha1.KubernetesCluster) { kc.Spec.Topology.Workers[0].Template = "huge" },
			func(kc *v1alpha1.KubernetesCluster) { kc.Spec.Topology.Workers[0].Template = "" }},
		"Provider": {v1alpha1.ConditionMachinesCreated, "ProviderNotFound",
			func(kc *v1alpha1.KubernetesCluster) {
				kc.Spec.Topology.Workers = append(kc.Spec.Topology.Workers, v1alpha1.WorkerPool{Name: "other", Replicas: 1,
					MachineProperties: v1alpha1.MachineProperties{ProviderRef: &v1alpha1.ProviderReference{Name: "nowhere"}}})
			},
			func(kc *v1alpha1.KubernetesCluster) { kc.Spec.Topology.Workers = kc.Spec.Topology.Workers[:1] }},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			s := newEnv(t, envOptions{})
			s.create(s.cluster("shop", 1, 2))
			before := s.awaitRunning("shop")
			s.change("shop", tc.edit)
			s.awaitReason("shop", tc.reason)
			s.requireStatusAs(before, tc.condition)
			lost := s.machine("shop-pool-0")
			if err := s.kube.Delete(t.Context(), lost); err != nil {
				t.Fatal(err)
			}
			s.awaitReplacement(lost.UID)
			feed.Until(t, "the lost worker is replaced", func() (bool, string) {
				kc := s.get("shop")
				return kc.Status.WorkersReady == before.Status.WorkersReady || kc.Status.WorkersReady == "2/3", kc.Status.WorkersReady + " " + kc.Status.Message
			})
			s.awaitReason("shop", tc.reason)
			s.change("shop", tc.fix)
			s.awaitRunning("shop")
		})
	}
}

// requireStatusAs checks that a cluster's status is as before, except for the condition of an error and for
// Ready.
func (s *env) requireStatusAs(before *v1alpha1.KubernetesCluster, condition string) {
	s.Helper()
	feed.Until(s, "the status shows the nodes", func() (bool, string) {
		kc := s.get(before.Name)
		for _, c := range before.Status.Conditions {
			now := meta.FindStatusCondition(kc.Status.Conditions, c.Type)
			wrong := c.Type == condition || c.Type == v1alpha1.ConditionReady
			// the spec requests a pool without machines
			if counts := slices.Contains([]string{v1alpha1.ConditionMachinesRunning, v1alpha1.ConditionConfigApplied, v1alpha1.ConditionNodesReady, v1alpha1.ConditionVersionsCurrent}, c.Type); counts && condition == v1alpha1.ConditionMachinesCreated {
				continue
			}
			if now.Status != c.Status != wrong {
				return false, now.String()
			}
		}
		for _, n := range before.Status.Nodes {
			if !slices.Contains(kc.Status.Nodes, n) {
				return false, fmt.Sprintf("nodes %v, want %v", kc.Status.Nodes, before.Status.Nodes)
			}
		}
		return kc.Status.Phase == v1alpha1.ClusterRunning || condition != v1alpha1.ConditionTopologyValid, string(kc.Status.Phase)
	})
	kc := s.get(before.Name)
	if kc.Status.ControlPlaneReady != "1/1" || (condition == v1alpha1.ConditionTopologyValid && kc.Status.WorkersReady != "2/2") {
		s.Errorf("ready replicas of control planes %s and workers %s, want 1/1 and 2/2", kc.Status.ControlPlaneReady, kc.Status.WorkersReady)
	}
}
