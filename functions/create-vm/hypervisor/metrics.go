package hypervisor

import (
	"fmt"
	"time"

	"github.com/VictoriaMetrics/metrics"

	"github.com/vitistack/stack/apis/v1alpha1"
)

// slow are the upper bounds of what takes seconds or minutes.
var slow = []float64{.5, 1, 2.5, 5, 10, 30, 60, 120, 300, 600}

// CountProvisionedDisk counts how long it took to provision one disk.
func CountProvisionedDisk(kind v1alpha1.ProviderType, class string, took time.Duration) {
	metrics.GetOrCreatePrometheusHistogramExt(fmt.Sprintf(`%s_operator_storage_provisioning_duration_seconds{storage_class=%q}`, kind, class), slow).
		Update(took.Seconds())
}
