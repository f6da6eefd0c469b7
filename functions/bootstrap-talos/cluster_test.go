package main

import (
	"testing"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/vitistack/stack/apis/cluster/plan"
	"github.com/vitistack/stack/apis/v1alpha1"
)

func TestObserveNodes(t *testing.T) {
	t.Parallel()
	configured := &v1alpha1.Machine{ObjectMeta: metav1.ObjectMeta{Annotations: map[string]string{v1alpha1.AnnotationInstalled: "true"}}}
	cases := map[string]struct {
		reason, node string
		current      bool
	}{
		"Configured": {"the Node belongs to the Machine", "old", true},
		"Replaced":   {"a Machine without a configuration has no kubelet, so the Node belongs to its predecessor", "new", false},
		"Orphaned":   {"an orphaned Node has to be known in order to be deleted", "gone", true},
	}
	for name, tc := range cases {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			c := &cluster{observed: observed{machines: map[string]*v1alpha1.Machine{"old": configured, "new": {}}}}
			c.observed.recordNodes([]plan.Node{{Name: tc.node, Ready: true}})
			if got := len(c.observed.nodes) == 1; got != tc.current || (len(c.observed.earlierNodes) == 0) != tc.current {
				t.Errorf("%s: current %t, earlier %v", tc.reason, got, c.observed.earlierNodes)
			}
		})
	}
}

// TestVersionsAreKept writes the nodes while the workload API does not answer, and after it has.
func TestVersionsAreKept(t *testing.T) {
	t.Parallel()
	c := &cluster{KubernetesCluster: &v1alpha1.KubernetesCluster{}}
	c.plan.Members = []plan.Member{{Name: "shop-pool-0", Role: v1alpha1.RoleWorker, Pool: "pool"}}
	c.Status.Nodes = []v1alpha1.NodeStatus{{Name: "shop-pool-0", Version: "v1.33.4", TalosVersion: "1.13.9"}}
	setNodes(c)
	if n := c.Status.Nodes[0]; n.Version != "v1.33.4" || n.TalosVersion != "1.13.9" {
		t.Errorf("a pool without known versions would be upgraded: got %+v", n)
	}
	c.observed.apiAnswers = true
	setNodes(c)
	if n := c.Status.Nodes[0]; n.Version != "" {
		t.Errorf("a node that is not listed runs no version: got %+v", n)
	}
}
