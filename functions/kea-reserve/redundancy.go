package main

import (
	"time"

	"k8s.io/apimachinery/pkg/api/meta"

	"github.com/vitistack/stack/apis/v1alpha1"
	"github.com/vitistack/stack/functions/internal/kube"
	"github.com/vitistack/stack/functions/internal/reconcile"
)

// setRedundant writes the condition Redundant. It returns the value of status.status, and the
// Outcome to record if Ready has not changed.
func setRedundant(nc *v1alpha1.NetworkConfiguration, reserved result, servers int, now time.Time) (string, reconcile.Outcome) {
	s := &nc.Status
	if len(reserved.down) == 0 {
		s.NextCheckTime = nil
	}
	if servers < 2 {
		meta.RemoveStatusCondition(&s.Conditions, conditionRedundant)
		return "OK", reconcile.Outcome{}
	}
	if len(reserved.down) == 0 {
		const reason, message = "InStep", "every Kea server has the reservations"
		changed := kube.SetCondition(&s.Conditions, nc.Generation, conditionRedundant, true, reason, message)
		return "OK", reconcile.Outcome{Reason: reason, Message: message, Changed: changed}
	}
	scheduleCheck(nc, now, outageCheckInterval)
	reason, message := reserved.down.Reason(), reserved.down.Error()
	changed := kube.SetCondition(&s.Conditions, nc.Generation, conditionRedundant, false, reason, message)
	return "Degraded", reconcile.Outcome{Reason: reason, Message: message, Warning: true, Changed: changed}
}
