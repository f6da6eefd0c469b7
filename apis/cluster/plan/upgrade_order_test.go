package plan

import (
	"slices"
	"testing"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/vitistack/stack/apis/v1alpha1"
)

func TestNextUpgradeStep(t *testing.T) {
	t.Parallel()
	now := time.Date(2026, 1, 2, 3, 4, 5, 0, time.UTC)
	ago := func(d time.Duration) *metav1.Time { at := metav1.NewTime(now.Add(-d)); return &at }
	node := func(talos, boot string, ready bool) UpgradeNode {
		return UpgradeNode{Node: Node{Name: "n", TalosVersion: talos, BootID: boot, Ready: ready}}
	}
	asked := func(since, last time.Duration) v1alpha1.NodeUpgrade {
		return v1alpha1.NodeUpgrade{Step: v1alpha1.UpgradeRequested, To: "1.13.9", BootID: "a", Since: *ago(since), Asked: ago(last)}
	}
	drains := v1alpha1.NodeUpgrade{Step: v1alpha1.UpgradeDraining, To: "1.13.9", Since: *ago(time.Hour)}
	failed := v1alpha1.NodeUpgrade{Step: v1alpha1.UpgradeFailed, To: "1.13.9", BootID: "a", Since: *ago(time.Hour)}
	cases := map[string]struct {
		reason string
		u      v1alpha1.NodeUpgrade
		o      UpgradeNode
		want   UpgradeStep
	}{
		"Done":        {"it runs the wanted version", asked(time.Minute, time.Minute), node("1.13.9", "b", true), UpgradeFinish},
		"NotReady":    {"it runs the wanted version, but is not Ready yet", asked(time.Minute, time.Second), node("1.13.9", "b", false), UpgradeWait},
		"Draining":    {"PodDisruptionBudgets decide how long a drain takes", drains, node("1.12.6", "a", true), UpgradeDrain},
		"Reverted":    {"the spec has the earlier version again", drains, node("1.13.9", "a", true), UpgradeFinish},
		"Requested":   {"the request was just sent", asked(time.Second, time.Second), node("1.12.6", "a", true), UpgradeWait},
		"Lost":        {"the request may be lost", asked(2*time.Minute, time.Minute), node("1.12.6", "a", true), UpgradeRequest},
		"Died":        {"a delivery died before it sent the request", v1alpha1.NodeUpgrade{Step: v1alpha1.UpgradeRequested, To: "1.13.9", BootID: "a", Since: *ago(time.Second)}, node("1.12.6", "a", true), UpgradeRequest},
		"RolledBack":  {"the new version did not start", asked(time.Minute, time.Minute), node("1.12.6", "b", true), UpgradeFail},
		"BackTooSoon": {"it has not booted for long enough", asked(time.Minute, time.Second), node("1.12.6", "b", false), UpgradeWait},
		"GivenUp":     {"the request had no effect", asked(NodeUpgradeTimeout, time.Minute), node("1.12.6", "a", false), UpgradeFail},
		"Failed":      {"a user has to act", failed, node("1.12.6", "b", true), UpgradeWait},
		"Recovered":   {"it runs the wanted version after all", failed, node("1.13.9", "b", true), UpgradeFinish},
	}
	for name, tc := range cases {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			if got := NextUpgradeStep(v1alpha1.UpgradeTalos, tc.u, tc.o, now); got != tc.want {
				t.Errorf("%s: got %s, want %s", tc.reason, got, tc.want)
			}
		})
	}
}

// fleetOf returns a plan with 3 control planes, pool a of 3 and pool b of 1. The nodes in old run the
// old versions.
func fleetOf(old ...string) (Plan, []UpgradeNode) {
	p := Plan{Versions: Versions{Kubernetes: "1.34.1", Talos: "1.13.9"}}
	var nodes []UpgradeNode
	for _, m := range []Member{
		{Name: "cp-0", Role: v1alpha1.RoleControlPlane, Pool: "cp"}, {Name: "cp-1", Role: v1alpha1.RoleControlPlane, Pool: "cp"},
		{Name: "cp-2", Role: v1alpha1.RoleControlPlane, Pool: "cp"}, {Name: "a-0", Role: v1alpha1.RoleWorker, Pool: "a"},
		{Name: "a-1", Role: v1alpha1.RoleWorker, Pool: "a"}, {Name: "a-2", Role: v1alpha1.RoleWorker, Pool: "a"}, {Name: "b-0", Role: v1alpha1.RoleWorker, Pool: "b"},
	} {
		m.Version = p.Kubernetes
		o := UpgradeNode{Member: m, Node: Node{Name: m.Name, Ready: true, Version: "v1.34.1", TalosVersion: "1.13.9"}}
		if m.Role == v1alpha1.RoleControlPlane {
			o.APIVersion = "1.34.1"
		}
		if slices.Contains(old, m.Name) {
			o.Node.TalosVersion, o.Node.Version = "1.12.6", "v1.33.4"
		}
		p.Members, nodes = append(p.Members, m), append(nodes, o)
	}
	return p, nodes
}

func TestNextNodesToUpgrade(t *testing.T) {
	t.Parallel()
	cases := map[string]struct {
		reason    string
		old, busy []string
		atOnce    map[string]int
		want      []string
	}{
		"Nothing":      {reason: "every node is upgraded"},
		"First":        {reason: "one control plane at a time, before any worker", old: []string{"cp-0", "cp-1", "cp-2", "a-0"}, atOnce: map[string]int{"a": 2}, want: []string{"cp-0"}},
		"Busy":         {reason: "a control plane is being upgraded", old: []string{"cp-1", "cp-2", "a-0"}, busy: []string{"cp-1"}},
		"Workers":      {reason: "a worker follows the control planes", old: []string{"a-0", "a-1", "b-0"}, want: []string{"a-0"}},
		"LastOfPlanes": {reason: "the last control plane is not upgraded", old: []string{"cp-2", "a-0"}, busy: []string{"cp-2"}},
		"Several":      {reason: "a pool may upgrade several nodes at once", old: []string{"a-0", "a-1", "a-2", "b-0"}, atOnce: map[string]int{"a": 2}, want: []string{"a-0", "a-1"}},
		"OneMore":      {reason: "one of two is being upgraded", old: []string{"a-0", "a-1", "a-2"}, busy: []string{"a-0"}, atOnce: map[string]int{"a": 2}, want: []string{"a-1"}},
		"NextPool":     {reason: "a node of the pool before is being upgraded", old: []string{"a-2", "b-0"}, busy: []string{"a-2"}, atOnce: map[string]int{"a": 2}},
	}
	for name, tc := range cases {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			p, nodes := fleetOf(tc.old...)
			var busy []v1alpha1.NodeUpgrade
			for _, n := range tc.busy {
				busy = append(busy, v1alpha1.NodeUpgrade{Name: n})
			}
			var got []string
			for _, o := range p.NextNodesToUpgrade(v1alpha1.UpgradeTalos, nodes, busy, tc.atOnce) {
				got = append(got, o.Name)
			}
			if !slices.Equal(got, tc.want) {
				t.Errorf("%s: got %v, want %v", tc.reason, got, tc.want)
			}
		})
	}
}

func TestNextUpgradeKind(t *testing.T) {
	t.Parallel()
	cases := map[string]struct {
		reason string
		change func(p *Plan, nodes []UpgradeNode)
		want   v1alpha1.UpgradeKind
	}{
		"Nothing": {"every node runs the wanted version", func(*Plan, []UpgradeNode) {}, ""},
		"Unknown": {"the version of a node is unknown", func(_ *Plan, nodes []UpgradeNode) { nodes[3].Node = Node{} }, ""},
		"TalosFirst": {"a newer Talos supports both", func(_ *Plan, nodes []UpgradeNode) {
			nodes[0].Node.TalosVersion, nodes[0].APIVersion = "1.12.6", "1.33.4"
		}, v1alpha1.UpgradeTalos},
		"ControlPlane": {"a kubelet must not be newer than its API server", func(_ *Plan, nodes []UpgradeNode) { nodes[2].APIVersion, nodes[3].Node.Version = "1.33.4", "v1.33.4" }, v1alpha1.UpgradeControlPlane},
		"Kubelet":      {"the API servers are upgraded", func(_ *Plan, nodes []UpgradeNode) { nodes[3].Node.Version = "v1.33.4" }, v1alpha1.UpgradeKubelet},
		"KubernetesFirst": {"the newer Talos does not support the present Kubernetes", func(_ *Plan, nodes []UpgradeNode) {
			nodes[0].Node.TalosVersion, nodes[0].Node.Version, nodes[0].APIVersion = "1.12.6", "v1.30.14", "1.30.14"
		}, v1alpha1.UpgradeControlPlane},
	}
	for name, tc := range cases {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			p, nodes := fleetOf()
			tc.change(&p, nodes)
			if got := p.NextUpgradeKind(nodes); got != tc.want {
				t.Errorf("%s: got %q, want %q", tc.reason, got, tc.want)
			}
		})
	}
}
