package plan

import (
	"github.com/vitistack/stack/apis/v1alpha1"
)

// EffectiveTopology returns a topology with the replicas that autoscaling gives each pool, and
// without autoscaling. Autoscaled pools stay within their bounds, and share scaledWorkers in
// their order.
func EffectiveTopology(t v1alpha1.ClusterTopology) v1alpha1.ClusterTopology {
	t = *t.DeepCopy()
	left := int32(0)
	if t.ScaledWorkers != nil {
		left = *t.ScaledWorkers
		for _, p := range t.Workers {
			if IsAutoscaled(p) {
				left -= p.Autoscaling.MinReplicas
			}
		}
	}
	for i := range t.Workers {
		p := &t.Workers[i]
		if !IsAutoscaled(*p) {
			continue
		}
		low, high := p.Autoscaling.MinReplicas, p.Autoscaling.MaxReplicas
		if t.ScaledWorkers != nil {
			more := max(0, min(left, high-low))
			p.Replicas, left = low+more, left-more
		}
		p.Replicas, p.Autoscaling = max(low, min(p.Replicas, high)), nil
	}
	t.ScaledWorkers = nil
	return t
}

// IsAutoscaled reports whether a pool is autoscaled.
func IsAutoscaled(p v1alpha1.WorkerPool) bool { return p.Autoscaling != nil && p.Autoscaling.Enabled }

// CountScaledWorkers returns the number of workers of autoscaled pools, and whether there are
// such pools.
func CountScaledWorkers(t v1alpha1.ClusterTopology) (n int32, any bool) {
	for i, p := range EffectiveTopology(t).Workers {
		if IsAutoscaled(t.Workers[i]) {
			n, any = n+p.Replicas, true
		}
	}
	return n, any
}
