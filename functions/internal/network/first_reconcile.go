package network

import (
	"time"

	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/vitistack/stack/apis/v1alpha1"
	"github.com/vitistack/stack/apis/v1alpha2"
)

// AwaitsFirstReconcile reports whether an object of a network, by its creation time and conditions, was
// created after the network became Ready and has not been reconciled. Its own events will
// reconcile it. To requeue it at each change of the network too would double the work of a
// burst.
func AwaitsFirstReconcile(nn *v1alpha2.NetworkNamespace, created metav1.Time, conditions []metav1.Condition) bool {
	ready := meta.FindStatusCondition(nn.Status.Conditions, v1alpha1.ConditionReady)
	if ready == nil || ready.Status != metav1.ConditionTrue || meta.FindStatusCondition(conditions, v1alpha1.ConditionReady) != nil {
		return false
	}
	return created.After(ready.LastTransitionTime.Add(time.Second)) // times are of whole seconds
}
