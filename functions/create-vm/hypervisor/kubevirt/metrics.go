package kubevirt

import (
	"fmt"
	"time"

	"github.com/VictoriaMetrics/metrics"
	corev1 "k8s.io/api/core/v1"

	"github.com/vitistack/stack/apis/v1alpha1"
)

// buckets are the upper bounds, in seconds, of what takes up to minutes.
var buckets = []float64{.5, 1, 2.5, 5, 10, 30, 60, 120, 300, 600}

// countProvisionedDisks counts how long it took to provision disks that are bound now.
func countProvisionedDisks(claims []corev1.PersistentVolumeClaim, now time.Time) {
	for _, c := range claims {
		class := ""
		if c.Spec.StorageClassName != nil {
			class = *c.Spec.StorageClassName
		}
		metrics.GetOrCreatePrometheusHistogramExt(fmt.Sprintf(`%s_operator_storage_provisioning_duration_seconds{storage_class=%q}`, v1alpha1.ProviderKubeVirt, class), buckets).
			Update(now.Sub(c.CreationTimestamp.Time).Seconds())
	}
}
