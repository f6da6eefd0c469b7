package main

import (
	"fmt"
	"time"

	"github.com/VictoriaMetrics/metrics"
	corev1 "k8s.io/api/core/v1"
)

// provisioned counts how long disks that are there now were waited for.
func provisioned(claims []corev1.PersistentVolumeClaim, now time.Time) {
	for _, c := range claims {
		class := ""
		if c.Spec.StorageClassName != nil {
			class = *c.Spec.StorageClassName
		}
		metrics.GetOrCreateHistogram(fmt.Sprintf(`kubevirt_operator_storage_provisioning_duration_seconds{storage_class=%q}`, class)).
			Update(now.Sub(c.CreationTimestamp.Time).Seconds())
	}
}
