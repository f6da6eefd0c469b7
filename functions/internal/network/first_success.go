package network

import (
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/vitistack/stack/apis/v1alpha1"
)

// IsReportedByMachine reports whether the Events of a Machine already say that its own NetworkConfiguration
// is Ready, so that it gets none itself: create-vm continues with the Machine, and records that. before is the
// NetworkConfiguration before its status was written. An Event still says that it has recovered from a problem.
func IsReportedByMachine(before, after *v1alpha1.NetworkConfiguration) bool {
	owner := metav1.GetControllerOf(after)
	return owner != nil && owner.Kind == "Machine" &&
		meta.FindStatusCondition(before.Status.Conditions, v1alpha1.ConditionReady) == nil &&
		meta.IsStatusConditionTrue(after.Status.Conditions, v1alpha1.ConditionReady)
}
