package workload

import (
	"fmt"
	"net/http"

	corev1 "k8s.io/api/core/v1"
	policyv1 "k8s.io/api/policy/v1"
	"k8s.io/apimachinery/pkg/api/equality"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/util/intstr"
)

// evict deletes a pod unless a PodDisruptionBudget forbids it (429). A pod that is being deleted, has
// finished, or is not ready yet may always be evicted.
func (c *Cluster) evict(namespace, name string, options metav1.DeleteOptions) error {
	c.mu.Lock()
	defer c.mu.Unlock()
	obj, err := c.store.get(podKind, namespace, name)
	if err != nil {
		return err
	}
	pod := obj.(*corev1.Pod)
	if err := c.mayEvict(pod); err != nil {
		return err
	}
	if err := holds(podKind, pod, options.Preconditions); err != nil {
		return err
	}
	if len(options.DryRun) == 0 {
		pod = pod.DeepCopy()
		target := setPodCondition(pod, corev1.DisruptionTarget, corev1.ConditionTrue, c.store.now())
		target.Reason, target.Message = "EvictionByEvictionAPI", "Eviction API: evicting"
		if err := c.store.put(podKind, pod); err != nil {
			return err
		}
		options.Preconditions = nil // they apply to the pod before it got the condition
	}
	_, err = c.removeLocked(&request{kind: podKind, namespace: namespace, name: name}, options)
	return err
}

func (c *Cluster) mayEvict(pod *corev1.Pod) error {
	if pod.DeletionTimestamp != nil || finished(pod) || pod.Status.Phase == corev1.PodPending {
		return nil
	}
	var budgets []*policyv1.PodDisruptionBudget
	for _, obj := range c.store.list(budgetKind, pod.Namespace) {
		if budget := obj.(*policyv1.PodDisruptionBudget); selects(budget, pod) {
			budgets = append(budgets, budget)
		}
	}
	if len(budgets) > 1 {
		return &apierrors.StatusError{ErrStatus: metav1.Status{
			Status: metav1.StatusFailure, Code: http.StatusInternalServerError,
			Message: "This pod has more than one PodDisruptionBudget, which the eviction subresource does not support.",
		}}
	}
	if len(budgets) == 0 || budgets[0].Status.DisruptionsAllowed > 0 || mayGoUnready(budgets[0], pod) {
		return nil
	}
	b := budgets[0]
	refusal := apierrors.NewTooManyRequests("Cannot evict pod as it would violate the pod's disruption budget.", 0)
	refusal.ErrStatus.Details.Causes = append(refusal.ErrStatus.Details.Causes, metav1.StatusCause{
		Type: policyv1.DisruptionBudgetCause,
		Message: fmt.Sprintf("The disruption budget %s needs %d healthy pods and has %d currently",
			b.Name, b.Status.DesiredHealthy, b.Status.CurrentHealthy),
	})
	return refusal
}

// mayGoUnready reports whether an unhealthy pod may be evicted although its budget allows no
// disruption.
func mayGoUnready(budget *policyv1.PodDisruptionBudget, pod *corev1.Pod) bool {
	if podReady(pod) {
		return false
	}
	if policy := budget.Spec.UnhealthyPodEvictionPolicy; policy != nil && *policy == policyv1.AlwaysAllow {
		return true
	}
	return budget.Status.DesiredHealthy > 0 && budget.Status.CurrentHealthy >= budget.Status.DesiredHealthy
}

// reconcileBudgets writes each budget's status as the disruption controller would.
func (c *Cluster) reconcileBudgets() error {
	for _, obj := range c.store.list(budgetKind, "") {
		budget := obj.(*policyv1.PodDisruptionBudget)
		var pods []*corev1.Pod
		for _, p := range c.pods() {
			if p.Namespace == budget.Namespace && selects(budget, p) && !finished(p) {
				pods = append(pods, p)
			}
		}
		status := allowance(budget, pods, c.replicasOf(pods))
		status.Conditions = budget.Status.Conditions
		if equality.Semantic.DeepEqual(status, budget.Status) {
			continue
		}
		next := budget.DeepCopy()
		next.Status = status
		if err := c.store.put(budgetKind, next); err != nil {
			return err
		}
	}
	return nil
}

// allowance returns how many pods of a budget may be evicted. A percentage and a maxUnavailable refer
// to the replicas that the controllers want. replicas is negative if a pod has no controller, and then
// no pod may be evicted.
func allowance(budget *policyv1.PodDisruptionBudget, pods []*corev1.Pod, replicas int) policyv1.PodDisruptionBudgetStatus {
	expected, healthy := len(pods), 0
	least := budget.Spec.MinAvailable
	if relative := budget.Spec.MaxUnavailable != nil || (least != nil && least.Type == intstr.String); relative {
		if replicas < 0 {
			return policyv1.PodDisruptionBudgetStatus{ObservedGeneration: budget.Generation}
		}
		expected = replicas
	}
	for _, p := range pods {
		if p.DeletionTimestamp == nil && podReady(p) {
			healthy++
		}
	}
	desired := 0
	switch spec := budget.Spec; {
	case spec.MaxUnavailable != nil:
		out, err := intstr.GetScaledValueFromIntOrPercent(spec.MaxUnavailable, expected, true)
		if err != nil {
			out = 0
		}
		desired = max(expected-out, 0)
	case spec.MinAvailable != nil:
		least, err := intstr.GetScaledValueFromIntOrPercent(spec.MinAvailable, expected, true)
		if err != nil {
			least = expected
		}
		desired = least
	}
	return policyv1.PodDisruptionBudgetStatus{
		ObservedGeneration: budget.Generation,
		DisruptionsAllowed: int32(max(healthy-desired, 0)),
		CurrentHealthy:     int32(healthy),
		DesiredHealthy:     int32(desired),
		ExpectedPods:       int32(expected),
	}
}

func selects(budget *policyv1.PodDisruptionBudget, pod *corev1.Pod) bool {
	selector, err := metav1.LabelSelectorAsSelector(budget.Spec.Selector)
	return err == nil && selector.Matches(labels.Set(pod.Labels))
}

func finished(p *corev1.Pod) bool {
	return p.Status.Phase == corev1.PodSucceeded || p.Status.Phase == corev1.PodFailed
}

func podReady(p *corev1.Pod) bool {
	for _, condition := range p.Status.Conditions {
		if condition.Type == corev1.PodReady {
			return condition.Status == corev1.ConditionTrue
		}
	}
	return false
}
