package plan

import (
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/vitistack/stack/apis/v1alpha1"
)

func TestEffectiveTopology(t *testing.T) {
	t.Parallel()
	pool := func(replicas, low, high int32) v1alpha1.WorkerPool {
		return v1alpha1.WorkerPool{Replicas: replicas, Autoscaling: &v1alpha1.Autoscaling{Enabled: true, MinReplicas: low, MaxReplicas: high}}
	}
	n := func(n int32) *int32 { return &n }
	fixed := v1alpha1.WorkerPool{Replicas: 4}
	cases := map[string]struct {
		reason string
		scaled *int32
		pools  []v1alpha1.WorkerPool
		want   []int32
	}{
		"Fixed":   {"a pool without autoscaling keeps its replicas", n(9), []v1alpha1.WorkerPool{fixed}, []int32{4}},
		"Within":  {"replicas is the initial number", nil, []v1alpha1.WorkerPool{pool(2, 1, 3)}, []int32{2}},
		"Below":   {"a pool has at least its minimum", nil, []v1alpha1.WorkerPool{pool(0, 1, 3)}, []int32{1}},
		"Above":   {"a pool has at most its maximum", nil, []v1alpha1.WorkerPool{pool(9, 1, 3)}, []int32{3}},
		"Scaled":  {"the number of an autoscaler overrides replicas", n(3), []v1alpha1.WorkerPool{pool(1, 1, 5)}, []int32{3}},
		"Bounds":  {"the maximum limits an autoscaler", n(9), []v1alpha1.WorkerPool{pool(1, 1, 5)}, []int32{5}},
		"Zero":    {"the minimum limits an autoscaler", n(0), []v1alpha1.WorkerPool{pool(1, 2, 5)}, []int32{2}},
		"Several": {"pools are filled in their order", n(6), []v1alpha1.WorkerPool{pool(1, 1, 3), fixed, pool(1, 2, 9)}, []int32{3, 4, 3}},
	}
	for name, tc := range cases {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			once := EffectiveTopology(v1alpha1.ClusterTopology{Workers: tc.pools, ScaledWorkers: tc.scaled})
			var got []int32
			for _, p := range EffectiveTopology(once).Workers { // a second call changes nothing
				got = append(got, p.Replicas)
			}
			if diff := cmp.Diff(tc.want, got); diff != "" {
				t.Errorf("%s (-want +got):\n%s", tc.reason, diff)
			}
		})
	}
}

func TestNextScaledWorkers(t *testing.T) {
	t.Parallel()
	auto := func(name string, replicas int32) v1alpha1.WorkerPool {
		return v1alpha1.WorkerPool{Name: name, Replicas: replicas, Autoscaling: &v1alpha1.Autoscaling{Enabled: true, MinReplicas: 1, MaxReplicas: 30}}
	}
	fixed := func(name string, replicas int32) v1alpha1.WorkerPool {
		p := auto(name, replicas)
		p.Autoscaling.Enabled = false
		return p
	}
	topology := func(scaled int32, pools ...v1alpha1.WorkerPool) *v1alpha1.ClusterTopology {
		return &v1alpha1.ClusterTopology{ScaledWorkers: &scaled, Workers: pools}
	}
	for name, tc := range map[string]struct {
		reason     string
		last, spec *v1alpha1.ClusterTopology
		want       int32
	}{
		"First":     {"no spec was valid before", nil, topology(3, auto("a", 20)), 3},
		"Unchanged": {"the number counts the same pools", topology(3, auto("a", 1)), topology(3, auto("a", 1), fixed("b", 5)), 3},
		"Scaled":    {"an autoscaler has changed the number", topology(3, auto("a", 1)), topology(7, auto("a", 1)), 7},
		"Both":      {"the user has written the number for these pools", topology(10, auto("a", 1), fixed("b", 5)), topology(12, auto("a", 1), auto("b", 5)), 12},
		"Off":       {"the number has no effect without autoscaling", topology(3, auto("a", 1)), topology(3, fixed("a", 20)), 3},
		"OnAgain":   {"the pool has grown while it was not autoscaled", topology(3, fixed("a", 20)), topology(3, auto("a", 20)), 20},
		"Bounds":    {"a pool that becomes autoscaled stays within its bounds", topology(3, fixed("a", 50)), topology(3, auto("a", 50)), 30},
		"Another":   {"another pool brings its workers", topology(10, auto("a", 1), fixed("b", 5)), topology(10, auto("a", 1), auto("b", 5)), 15},
		"Fewer":     {"a pool that is not autoscaled any more takes its workers along", topology(15, auto("a", 1), auto("b", 5)), topology(15, auto("b", 5), fixed("a", 14)), 1},
		"New":       {"a new pool has its replicas", topology(10, auto("a", 1)), topology(10, auto("a", 1), auto("b", 2)), 12},
	} {
		kc := &v1alpha1.KubernetesCluster{}
		kc.Spec.Topology = *tc.spec
		if tc.last != nil {
			kc.Status.Accepted = &v1alpha1.AcceptedSpec{Topology: *tc.last}
		}
		before := kc.DeepCopy()
		if got := NextScaledWorkers(kc); *got != tc.want {
			t.Errorf("%s: %s: got %d, want %d", name, tc.reason, *got, tc.want)
		}
		if diff := cmp.Diff(before, kc); diff != "" {
			t.Errorf("%s: the cluster itself must not change (-want +got):\n%s", name, diff)
		}
	}
}
