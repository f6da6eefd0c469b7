package main

import (
	"context"
	"fmt"
	"time"

	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/vitistack/stack/apis/v1alpha1"
	"github.com/vitistack/stack/functions/create-vm/hypervisor"
	"github.com/vitistack/stack/functions/internal/kube"
)

const (
	// firstBackOff and longestBackOff bound the time between two attempts. It doubles
	// with each failure in a row.
	firstBackOff   = time.Second
	longestBackOff = time.Minute
	// requeueWithin is how long a delivery may be requeued at the Broker until a
	// back-off is over. Resync delivers again after a longer one.
	requeueWithin = 10 * time.Second
)

// backOff returns the time between the last of a number of failures in a row and the
// next attempt.
func backOff(failures int32) time.Duration {
	const doublings = 6
	return min(firstBackOff<<min(max(failures-1, 0), doublings), longestBackOff)
}

// recordFailure counts a failed attempt in m's status, and sets when the next one may
// be. A status has whole seconds, so the time is rounded up.
func recordFailure(m *v1alpha1.Machine, now time.Time) {
	m.Status.Failures++
	m.Status.NextCheckTime = &metav1.Time{Time: now.Add(backOff(m.Status.Failures) + time.Second - 1).Truncate(time.Second)}
}

// hasFailed reports whether the last attempt for m has failed.
func hasFailed(m *v1alpha1.Machine) bool { return m.Status.Failures > 0 }

// remainingBackOff returns how long m still has to wait for its next attempt. A spec that has
// changed since the last attempt does not wait, and its count of failures starts at zero.
func remainingBackOff(m *v1alpha1.Machine, now time.Time) time.Duration {
	if ready := meta.FindStatusCondition(m.Status.Conditions, v1alpha1.ConditionReady); ready == nil || ready.ObservedGeneration != m.Generation {
		m.Status.Failures = 0
	}
	if !hasFailed(m) || m.Status.NextCheckTime == nil {
		return 0
	}
	return max(m.Status.NextCheckTime.Sub(now), 0)
}

// isRepeated reports whether a provider has to do a task again that it had just done:
// either the task has failed, or its success has not changed anything.
func isRepeated(before, now *v1alpha1.ProviderTask) bool {
	if before == nil || now == nil || before.Action != now.Action {
		return false
	}
	return before.ID != now.ID || now.ID == hypervisor.UnnamedTask
}

// waitForBackOff reports whether a delivery has to wait until the back-off of m is over, and the
// error that requeues the delivery if that is soon. The annotation vitistack.io/reconcile
// ends the back-off; it is removed, so that it ends no later one as well.
func (f *function) waitForBackOff(ctx context.Context, m *v1alpha1.Machine) (waiting bool, err error) {
	left := remainingBackOff(m, f.now())
	switch {
	case left == 0:
		return false, nil
	case kube.ReconcileRequested(m):
		return false, f.endBackOff(ctx, m)
	case left > requeueWithin:
		return true, nil
	default:
		return true, fmt.Errorf("reconcile machine %s/%s: its last attempt has failed, the next one is in %s", m.Namespace, m.Name, left.Round(time.Second))
	}
}

// endBackOff ends the back-off of m in its status, and then removes the annotation that requests that: if the delivery ends in between, the next one
// finds the annotation, and if it ends afterwards, the next attempt still counts as the first.
func (f *function) endBackOff(ctx context.Context, m *v1alpha1.Machine) error {
	before := m.DeepCopy()
	m.Status.Failures, m.Status.NextCheckTime = 0, nil
	if _, err := f.kube.PatchStatus(ctx, before, m); err != nil {
		return err
	}
	return f.kube.EndReconcileRequest(ctx, m)
}
