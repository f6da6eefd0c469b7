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
