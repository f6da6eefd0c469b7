package main

import (
	"context"
	"errors"
	"fmt"
	"strconv"
	"time"

	"github.com/cloudevents/sdk-go/v2/event"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/vitistack/stack/apis/cluster/plan"
	"github.com/vitistack/stack/apis/v1alpha1"
	"github.com/vitistack/stack/events"
	"github.com/vitistack/stack/functions/internal/kube"
	"github.com/vitistack/stack/functions/internal/reconcile"
)

// approvalRequester decides what of a cluster is approved, and records the decisions of ticketing systems.
type approvalRequester struct {
	kube *kube.Client
	now  func() time.Time
}

// check returns a WaitError or a UserError unless the spec is approved. What was
// approved before stays approved.
func (ap *approvalRequester) check(ctx context.Context, c *cluster) error {
	policy, err := ap.policy(ctx, c)
	if err != nil {
		return err
	}
	if policy == "" {
		c.Status.Approval = nil
		return nil
	}
	c.Status.Approval = plan.NextApproval(plan.WithTemplates(c.Status.Approval, c.before.Status.Accepted), policy, c.Generation, c.Spec.Data.Workorder, plan.WantedPools(plan.EffectiveTopology(c.Spec.Topology)))
	a := c.Status.Approval
	switch a.State {
	case v1alpha1.ApprovalRequested:
		return reconcile.WaitError{Reason: "PendingApproval", Message: fmt.Sprintf("waiting for approval of %s, requested by an event of type %s for generation %d", plan.DescribePools(a), events.TypeWorkorderRequested, a.Generation)}
	case v1alpha1.ApprovalRejected:
		return reconcile.UserError{Reason: "ApprovalRejected", Message: fmt.Sprintf("%s rejected %s: %s. Change spec.topology or spec.data.workorder to request approval again", a.By, plan.DescribePools(a), a.Comment)}
	default:
		return nil
	}
}

// hasNewDecision reports whether the function has recorded a decision that no reconcile has followed
// yet.
func hasNewDecision(kc *v1alpha1.KubernetesCluster) bool {
	_, pending := conditionSince(kc, v1alpha1.ConditionApproved, "PendingApproval")
	return pending && kc.Status.Approval != nil && kc.Status.Approval.State != v1alpha1.ApprovalRequested
}

// policy returns the policy that applies to the cluster, and records what a cluster had before it applied.
func (ap *approvalRequester) policy(ctx context.Context, c *cluster) (v1alpha1.ApprovalPolicy, error) {
	if plan.IsOlderThanPolicy(c.KubernetesCluster) {
		return "", nil
	}
	ns := &corev1.Namespace{}
	if err := ap.kube.Get(ctx, "", c.Namespace, ns); err != nil {
		return "", err
	}
	policy, err := plan.ApprovalPolicyOf(c.Spec, ns)
	if policy != "" && c.Status.Approval == nil && c.Status.Version != "" {
		c.Status.Approval = plan.ApprovalOfPresent(c.Status)
	}
	return policy, err
}

// requestInterval is the least time between two requests for the same approval.
const requestInterval = time.Minute

// request returns the event that requests the approval of a cluster. A second request within requestInterval is the same event.
func (ap *approvalRequester) request(kc *v1alpha1.KubernetesCluster) (*event.Event, error) {
	a := kc.Status.Approval
	planes, workers := plan.CountMachines(a.Requested)
	e := event.New()
	e.SetType(events.TypeWorkorderRequested)
	e.SetSource("/functions/" + plan.FunctionName)
	e.SetID(events.RequestID(fmt.Sprintf("%s.workorder.%d", kc.UID, a.Generation), ap.now(), requestInterval))
	ref := events.Ref{APIVersion: v1alpha1.GroupVersion.String(), Kind: "KubernetesCluster", Namespace: kc.Namespace, Name: kc.Name}
	ref.Set(&e, string(kc.UID))
	err := e.SetData(event.ApplicationJSON, events.WorkorderRequested{
		Object:    events.Object{UID: string(kc.UID), Namespace: kc.Namespace, Name: kc.Name},
		Workorder: a.Workorder, Generation: a.Generation, ClusterID: plan.ClusterID(kc),
		Environment: kc.Spec.Data.Environment, Project: kc.Spec.Data.Project, Workspace: kc.Spec.Data.Workspace,
		Version: string(kc.Spec.Topology.Version), ControlPlanes: planes, Workers: workers,
	})
	if err != nil {
		return nil, fmt.Errorf("write event %s: %w", e.ID(), err)
	}
	return &e, nil
}

// Maximum lengths of the texts of a decision, which are those of its schema.
const (
	maxBy      = 253
	maxComment = 1024
)

// needsRequest reports whether a delivery sends the request: the one that has recorded
// it, and, because the event may be lost, a full reconcile in the first minutes and then every
// hour. requested is the generation that was requested before this delivery.
func (ap *approvalRequester) needsRequest(c *cluster, requested int64, full bool) bool {
	now := plan.RequestedGeneration(c.Status.Approval)
	if now == 0 || now != requested {
		return now != 0
	}
	since, _ := conditionSince(c.KubernetesCluster, v1alpha1.ConditionApproved, "PendingApproval")
	age := ap.now().Sub(since)
	return full && (age < 5*time.Minute || age%time.Hour < requestInterval)
}

// limitToApproved limits the spec that the cluster follows to what has been approved. An invalid
// spec requests no approval: the last valid one is limited. It returns an error while nothing has
// been approved, and otherwise keeps it for the status.
func (ap *approvalRequester) limitToApproved(ctx context.Context, c *cluster) error {
	if _, invalid := c.report.userErrorOf(v1alpha1.ConditionTopologyValid); invalid {
		switch a := c.Status.Approval; {
		case a != nil && len(a.Approved) == 0:
			return c.report.userErrors[0].UserError
		case a != nil:
			c.accepted = plan.LimitToApproved(c.accepted, a.Approved)
		}
		return nil
	}
	c.report.approval = ap.check(ctx, c)
	if c.report.approval == nil {
		return nil
	}
	a := c.Status.Approval
	known := errors.As(c.report.approval, new(reconcile.WaitError)) || errors.As(c.report.approval, new(reconcile.UserError))
	if !known || a == nil || len(a.Approved) == 0 {
		return c.report.approval
	}
	limited := c.DeepCopy()
	kept := plan.KeptPools(c.before.Status.Accepted, c.Spec.Topology, a.Approved)
	limited.Spec.Topology.Workers = append(limited.Spec.Topology.Workers, kept...)
	c.Status.Accepted = c.Status.Accepted.DeepCopy()
	c.Status.Accepted.Topology.Workers = append(c.Status.Accepted.Topology.Workers, kept...) // the next delivery keeps them too
	c.accepted = plan.LimitToApproved(limited, a.Approved)
	return nil
}

// setApprovalCondition writes the condition Approved among conditions. While a decision is pending, its lastTransitionTime is the time of the request
// for the generation, from which needsRequest repeats the request.
func setApprovalCondition(conditions *[]metav1.Condition, a *v1alpha1.ApprovalStatus, set func(conditionType string, isTrue bool, reason, message string)) {
	switch a.State {
	case v1alpha1.ApprovalApproved:
		by := "the machines existed before approval was required"
		if a.By != "" {
			by = "approved by " + a.By
		}
		set(v1alpha1.ConditionApproved, true, "Approved", by)
	case v1alpha1.ApprovalRejected:
		set(v1alpha1.ConditionApproved, false, "ApprovalRejected", "rejected by "+a.By+": "+a.Comment)
	default:
		message := "generation " + strconv.FormatInt(a.Generation, 10) + " waits for a decision"
		if last := meta.FindStatusCondition(*conditions, v1alpha1.ConditionApproved); last != nil && last.Message != message {
			meta.RemoveStatusCondition(conditions, v1alpha1.ConditionApproved) // of an earlier request, or a rejection of it
		}
		set(v1alpha1.ConditionApproved, false, "PendingApproval", message)
	}
}
