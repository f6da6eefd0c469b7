package main

import (
	"time"

	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/vitistack/stack/apis/segment"
	"github.com/vitistack/stack/apis/v1alpha1"
	"github.com/vitistack/stack/apis/v1alpha2"
)

// clearSegment removes the segment and its usage from the status.
func clearSegment(nn *v1alpha2.NetworkNamespace) {
	segment.SetStatus(nn, segment.Segment{})
	nn.Status.IPAllocationSummary = nil
}

// readyCondition returns the condition Ready, which is empty if there is none.
func readyCondition(nn *v1alpha2.NetworkNamespace) metav1.Condition {
	if c := meta.FindStatusCondition(nn.Status.Conditions, v1alpha1.ConditionReady); c != nil {
		return *c
	}
	return metav1.Condition{}
}

// failingFor returns for how long the condition Ready has been False for the present spec.
func failingFor(nn *v1alpha2.NetworkNamespace, now time.Time) time.Duration {
	c := readyCondition(nn)
	if c.Status != metav1.ConditionFalse || c.ObservedGeneration != nn.Generation {
		return 0
	}
	return now.Sub(c.LastTransitionTime.Time)
}

// checkTime returns the time of an API object after a delay, in whole seconds.
func checkTime(now time.Time, delay time.Duration) *metav1.Time {
	t := metav1.NewTime(now.Add(delay).Truncate(time.Second).Add(time.Second))
	return &t
}

// nextCheck returns status.nextCheckTime, or the zero time.
func nextCheck(nn *v1alpha2.NetworkNamespace) time.Time {
	if nn.Status.NextCheckTime == nil {
		return time.Time{}
	}
	return nn.Status.NextCheckTime.Time
}

// isReady reports whether machines may be in the network.
func isReady(nn *v1alpha2.NetworkNamespace) bool {
	return nn.Status.ProvisioningPhase == v1alpha2.ProvisioningReady
}

// isProvisioned reports whether a network has what its present spec asks for.
func isProvisioned(nn *v1alpha2.NetworkNamespace) bool {
	return isReady(nn) && nn.Status.ObservedGeneration == nn.Generation && readyCondition(nn).Status == metav1.ConditionTrue
}
