package plan

import (
	"fmt"
	"time"

	"github.com/vitistack/stack/apis/v1alpha1"
)

// DefaultDrainTimeout is the drain timeout of a pool without drainTimeout.
const DefaultDrainTimeout = time.Hour

// DrainTimeout returns the maximum time to drain a machine of a pool. What follows a drain that has not ended then depends on
// what it is for:
//
//	removal, drainTimeout is set      the Machine is deleted with its remaining pods: NodeRemoval.Next
//	removal, drainTimeout is not set  the drain continues, and the condition names the pods (DrainBlocked)
//	upgrade                           it stops, and names the pods: UpgradeFail
//	resize                            it stops, and names the pods: the step ResizeFailed
func DrainTimeout(p v1alpha1.MachineProperties) time.Duration {
	if p.DrainTimeout != nil {
		return p.DrainTimeout.Duration
	}
	return DefaultDrainTimeout
}

// DrainTimeoutRemedy says how a user sets the drainTimeout of a pool. That of a pool which has left the spec has left with it.
func (p Plan) DrainTimeoutRemedy(pool string) string {
	if _, exists := p.findGroup(pool); exists {
		return "set drainTimeout of the pool"
	}
	return fmt.Sprintf("write pool %s into the spec again, with replicas 0 and a drainTimeout", pool)
}

// HasDrainTimedOut reports whether the DrainTimeout of a pool is over for a drain that began at since. A drain
// that has not begun has a zero since and does not time out.
func HasDrainTimedOut(p v1alpha1.MachineProperties, since, now time.Time) bool {
	return !since.IsZero() && now.Sub(since) > DrainTimeout(p)
}

// DrainFailure returns why a drain that began at since has failed, and an empty string before it has timed
// out. waitsFor is what the drain waits for, such as the pods that were not evicted.
func DrainFailure(p v1alpha1.MachineProperties, since, now time.Time, waitsFor string) string {
	if !HasDrainTimedOut(p, since, now) {
		return ""
	}
	return fmt.Sprintf("its pods were not evicted within %s: %s", DrainTimeout(p), waitsFor)
}
