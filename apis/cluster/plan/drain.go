package plan

import (
	"time"

	"github.com/vitistack/stack/apis/v1alpha1"
)

// DefaultDrainTimeout is the drain timeout of a pool without spec.drainTimeout.
const DefaultDrainTimeout = time.Hour

// DrainTimeout returns the maximum time to drain a machine of a pool.
func DrainTimeout(p v1alpha1.MachineProperties) time.Duration {
	if p.DrainTimeout != nil {
		return p.DrainTimeout.Duration
	}
	return DefaultDrainTimeout
}
