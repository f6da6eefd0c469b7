package plan

import (
	"testing"

	"github.com/google/go-cmp/cmp"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/vitistack/stack/apis/v1alpha1"
)

func TestMachineNames(t *testing.T) {
	t.Parallel()
	cases := map[string]struct {
		reason  string
		wanted  int
		present []PoolMachine
		adding  []string
		want    []string
	}{
		"New":       {"ordinals start at zero", 2, nil, nil, []string{"p-0", "p-1"}},
		"Grows":     {"existing machines are kept", 3, []PoolMachine{{name: "p-0", ordinal: 0}}, nil, []string{"p-0", "p-1", "p-2"}},
		"Gap":       {"the lowest free ordinal is used first", 3, []PoolMachine{{name: "p-1", ordinal: 1}, {name: "p-2", ordinal: 2}}, nil, []string{"p-1", "p-2", "p-0"}},
		"Order":     {"names are ordered by number, so 10 follows 2", 2, []PoolMachine{{name: "p-10", ordinal: 10}, {name: "p-2", ordinal: 2}}, nil, []string{"p-2", "p-10"}},
		"Shrinks":   {"the removal is decided later, when the nodes are known", 1, []PoolMachine{{name: "p-0"}, {name: "p-1", ordinal: 1}}, nil, []string{"p-0", "p-1"}},
		"Leaving":   {"the name of a machine in removal is not free yet", 1, []PoolMachine{{name: "p-0", Leaving: true}}, nil, []string{"p-1"}},
		"Marked":    {"a marked machine gets a replacement", 2, []PoolMachine{{name: "p-0", Marked: true}, {name: "p-1", ordinal: 1}}, nil, []string{"p-1", "p-2"}},
		"Protected": {"a protected machine that is marked stays, and gets no replacement", 2, []PoolMachine{{name: "p-0", Marked: true, Protected: true}, {name: "p-1", ordinal: 1}}, nil, []string{"p-0", "p-1"}},
		"Outdated":  {"an outdated machine gets a replacement", 2, []PoolMachine{{name: "p-0", Replace: v1alpha1.ReplaceOutdated}, {name: "p-1", ordinal: 1}}, nil, []string{"p-1", "p-2"}},
		"Surge":     {"the pool has at most one machine above its replicas, so the second replacement waits", 2, []PoolMachine{{name: "p-0", Replace: v1alpha1.ReplaceOutdated}, {name: "p-1", ordinal: 1, Replace: v1alpha1.ReplaceOutdated}}, nil, []string{"p-2"}},
		"Unhealthy": {"an unhealthy machine is replaced at once, whatever the surge", 2, []PoolMachine{{name: "p-0", Replace: v1alpha1.ReplaceUnhealthy}, {name: "p-1", ordinal: 1, Replace: v1alpha1.ReplaceUnhealthy}}, nil, []string{"p-2", "p-3"}},
		"Adding":    {"another delivery has recorded the addition, and saw that p-0 is being removed", 2, []PoolMachine{{name: "p-1", ordinal: 1}}, []string{"p-2"}, []string{"p-1", "p-2"}},
		"Added":     {"the added machine exists", 2, []PoolMachine{{name: "p-1", ordinal: 1}, {name: "p-2", ordinal: 2}}, []string{"p-2"}, []string{"p-1", "p-2"}},
		"TooMany":   {"fewer machines are wanted now", 1, []PoolMachine{{name: "p-1", ordinal: 1}}, []string{"p-2"}, []string{"p-1"}},
		"Others":    {"machines of other pools are ignored", 1, nil, []string{"q-0", "p-x-0"}, []string{"p-0"}},
		"None":      {"a pool may be empty", 0, nil, nil, nil},
	}
	for name, tc := range cases {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			if diff := cmp.Diff(tc.want, machineNames("p-", tc.wanted, tc.present, tc.adding, RolloutLimits{MaxSurge: 1})); diff != "" {
				t.Errorf("%s (-want +got):\n%s", tc.reason, diff)
			}
		})
	}
}

func TestPoolMachines(t *testing.T) {
	t.Parallel()
	worker := func(pool string) *v1alpha1.Machine {
		return &v1alpha1.Machine{ObjectMeta: metav1.ObjectMeta{Labels: map[string]string{v1alpha1.LabelClusterRole: v1alpha1.RoleWorker, v1alpha1.LabelWorkerGroup: pool}}}
	}
	machines := map[string]*v1alpha1.Machine{"shop-web-3": worker("web"), "shop-x1-wrk12": worker("web"), "alone": worker("web"), "shop-web-4": worker("other")}
	ordinals := map[string]int{}
	for _, m := range PoolMachines(machines, "web", NamePrefix("shop", "web"), assumeHealthy) {
		ordinals[m.name] = m.ordinal
	}
	if diff := cmp.Diff(map[string]int{"shop-web-3": 3, "shop-x1-wrk12": 12, "alone": 0}, ordinals); diff != "" {
		t.Errorf("the pool has the machines with its label, also adopted ones with other names (-want +got):\n%s", diff)
	}
}

func TestOrphanedNodes(t *testing.T) {
	t.Parallel()
	nodes := []Node{{Name: "shop-pool-1"}, {Name: "shop-cp-0"}, {Name: "bare-metal-1"}, {Name: "shop-front-door"}, {Name: "shop-pool-9"},
		{Name: "shop-x1-wrk0"}, {Name: "shop-x1-ctp2"}, {Name: "shop-x1-wrk1"}, {Name: "shop-x2-wrk0"}, {Name: "shop-x1-wrka"}, {Name: "shop-x1-db0"}}
	kc := &v1alpha1.KubernetesCluster{}
	kc.Name, kc.Spec.Data.ClusterID = "shop", "shop-x1"
	got := OrphanedNodes(kc, nodes, func(name string) bool { return name == "shop-cp-0" || name == "shop-x1-wrk1" })
	if diff := cmp.Diff([]Node{{Name: "shop-pool-1"}, {Name: "shop-pool-9"}, {Name: "shop-x1-ctp2"}, {Name: "shop-x1-wrk0"}}, got); diff != "" {
		t.Errorf("only orphaned nodes with the names of machines are deleted (-want +got):\n%s", diff)
	}
}
