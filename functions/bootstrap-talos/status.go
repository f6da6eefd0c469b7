package main

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"

	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/vitistack/stack/apis/cluster/plan"
	"github.com/vitistack/stack/apis/v1alpha1"
	"github.com/vitistack/stack/functions/internal/kube"
	"github.com/vitistack/stack/functions/internal/reconcile"
)

// setUnanswered writes the conditions that only nodes can report, after they have not answered.
func setUnanswered(c *cluster, err error) {
	setUnknown(c, v1alpha1.ConditionNodesReady)
	var problem reconcile.UserError
	if plan.IsQuorumLost(err) && errors.As(err, &problem) {
		kube.SetCondition(&c.Status.Conditions, c.Generation, v1alpha1.ConditionEtcdHealthy, false, problem.Reason, problem.Message)
		return
	}
	setUnknown(c, v1alpha1.ConditionEtcdHealthy)
}

// setUnknown sets a condition to Unknown and keeps its last message. A condition that does not
// exist is not added.
func setUnknown(c *cluster, conditionType string) {
	last := meta.FindStatusCondition(c.Status.Conditions, conditionType)
	if last == nil {
		return
	}
	const seen = "last seen: "
	meta.SetStatusCondition(&c.Status.Conditions, metav1.Condition{
		Type: conditionType, Status: metav1.ConditionUnknown, ObservedGeneration: c.Generation,
		Reason: "StatusUnknown", Message: seen + strings.TrimPrefix(last.Message, seen),
	})
}

// setScale writes what autoscalers read.
func setScale(c *cluster) {
	c.Status.ScaledWorkers, c.Status.Selector = 0, ""
	for _, p := range c.Spec.Topology.Workers {
		if !plan.IsAutoscaled(p) {
			continue
		}
		c.Status.Selector = fmt.Sprintf("%s=%s,%s=%s", v1alpha1.LabelClusterName, c.Name, v1alpha1.LabelClusterRole, v1alpha1.RoleWorker)
		for _, m := range c.plan.Members {
			if m.Pool == p.Name && c.observed.machines[m.Name] != nil {
				c.Status.ScaledWorkers++
			}
		}
	}
}

// setStatus writes into the status how far the cluster is, and the error that stops it:
//
//	err         has been Running  phase                      Ready
//	approval    any               PendingApproval            False  its reason
//	nil         any               Running                    True   ClusterRunning
//	UserError   no                Pending, or Provisioning   False  its reason
//	WaitError   no                Provisioning               False  its reason
//	UserError   yes               Running                    False  its reason
//	WaitError   yes               Updating                   False  its reason
//	other       any               as before                  False  Retrying
//
// After another error everything that the delivery has not observed stays as it was.
//
// A UserError in the report keeps Ready False with its reason, whatever err is.
func setStatus(c *cluster, err error) reconcile.Outcome {
	s := &c.Status
	s.ObservedGeneration = c.Generation
	s.NextCheckTime = nil
	if plan.IsRotating(c.KubernetesCluster) {
		s.NextCheckTime = s.Authorities.Since // a cluster that is Ready goes on too
	}
	if !isUnexpected(c, err) {
		setConditions(c, err)
		setNodes(c)
	}
	outcome := setPhase(c, err)
	if len(c.report.userErrors) == 0 {
		return setReady(c, outcome.Reason, outcome.Message, outcome.Warning)
	}
	first := c.report.userErrors[0].UserError
	if outcome.Reason != reasonRunning && outcome.Reason != first.Reason {
		first.Message += "; meanwhile the cluster is kept as it was: " + outcome.Message
	}
	return setReady(c, first.Reason, first.Message, true)
}

// isUnexpected reports whether err is a failed request: no UserError, no WaitError, and not the
// approval.
func isUnexpected(c *cluster, err error) bool {
	return err != nil && !errors.As(err, new(reconcile.UserError)) && !errors.As(err, new(reconcile.WaitError)) && !(c.report.approval != nil && errors.Is(err, c.report.approval))
}

// setPhase writes the phase, and returns what Ready says of err.
func setPhase(c *cluster, err error) reconcile.Outcome {
	s := &c.Status
	var w reconcile.WaitError
	var problem reconcile.UserError
	switch {
	case c.report.approval != nil && errors.Is(err, c.report.approval):
		s.Phase = v1alpha1.ClusterPendingApproval
		if errors.As(err, &problem) {
			return reconcile.Outcome{Reason: problem.Reason, Message: problem.Message, Warning: true}
		}
		_ = errors.As(err, &w)
		return reconcile.Outcome{Reason: w.Reason, Message: w.Message}
	case err == nil:
		s.Phase = v1alpha1.ClusterRunning
		s.Secrets = &v1alpha1.ClusterSecrets{Kubeconfig: secretName(c.KubernetesCluster, kubeconfigSecret), Talosconfig: secretName(c.KubernetesCluster, talosconfigSecret)}
		return reconcile.Outcome{Reason: reasonRunning, Message: "every node is Ready"}
	case errors.As(err, &problem):
		if s.Phase == "" || s.Phase == v1alpha1.ClusterPendingApproval {
			s.Phase = v1alpha1.ClusterPending
		}
		return reconcile.Outcome{Reason: problem.Reason, Message: problem.Message, Warning: true}
	case errors.As(err, &w):
		s.Phase = v1alpha1.ClusterProvisioning
		if s.Version != "" {
			s.Phase = v1alpha1.ClusterUpdating
		}
		if c.report.unreachable {
			return reconcile.Outcome{Reason: reasonUnreachable, Message: unreachableMessage(c, w), Warning: true}
		}
		return reconcile.Outcome{Reason: w.Reason, Message: w.Message}
	default:
		if s.Phase == "" {
			s.Phase = v1alpha1.ClusterPending
		}
		return reconcile.Outcome{Reason: "Retrying", Message: "a request has failed and is retried; the log of bootstrap-talos has the error"}
	}
}

// isUnreachable reports whether a cluster that has been running does not answer: its workload API has not answered for as long as
// a delivery polls, or already was unreachable, and no upgrade or resize restarts it. An upgrade that is paused, drains or has failed restarts nothing.
// polled is whether the delivery has polled for that long.
func isUnreachable(c *cluster, err error, polled bool) bool {
	var w reconcile.WaitError
	if !errors.As(err, &w) || w.Reason != reasonWaitingForAPI || c.Status.Version == "" || plan.IsUpgradeRequested(c.KubernetesCluster) || c.isControlPlaneResizing() {
		return false
	}
	ready := meta.FindStatusCondition(c.before.Status.Conditions, v1alpha1.ConditionReady)
	return polled || (ready != nil && ready.Reason == reasonUnreachable)
}

// unreachableMessage says what to check, and what Talos says on the first node that is not Ready, if it answers.
func unreachableMessage(c *cluster, w reconcile.WaitError) string {
	message := fmt.Sprintf("the workload API at %s does not answer, although the cluster has been running: check its Machines, their hypervisor, "+
		"and the network to the endpoint. The cluster continues once the API answers", c.Status.Endpoint)
	if _, said, ok := strings.Cut(w.Message, "; "); ok {
		message += "; " + said
	}
	return message
}

// setReady writes the condition Ready and the message of the status.
func setReady(c *cluster, reason, message string, warning bool) reconcile.Outcome {
	c.Status.Message = message
	// A cluster that runs and is paused is in its desired state. One that was paused before it ran is not.
	ready := reason == reasonRunning || reason == reasonPaused && c.Status.Phase == v1alpha1.ClusterRunning
	outcome := reconcile.SetReady(&c.Status.Conditions, c.Generation, ready, reason, message)
	outcome.Warning = warning
	return outcome
}

// statusWriter writes the statuses of clusters.
type statusWriter struct {
	kube *kube.Client
}

// write writes the status, the Event and the log line of a delivery.
func (w *statusWriter) write(ctx context.Context, c *cluster, outcome reconcile.Outcome) error {
	if _, err := reconcile.PatchStatus(ctx, w.kube, c.before, c.KubernetesCluster, string(c.Status.Phase), outcome); err != nil {
		return err
	}
	c.before = c.KubernetesCluster.DeepCopy()
	return nil
}

// patch writes what a delivery is about to do into the status, before it does so.
func (w *statusWriter) patch(ctx context.Context, c *cluster) error {
	if _, err := w.kube.PatchStatus(ctx, c.before, c.KubernetesCluster); err != nil {
		return err
	}
	c.before = c.KubernetesCluster.DeepCopy()
	return nil
}

// reportWaiting writes a WaitError into the status of a cluster that is Ready, because the delivery
// may poll for some time. It returns err.
func (w *statusWriter) reportWaiting(ctx context.Context, c *cluster, err error) error {
	if !errors.As(err, new(reconcile.WaitError)) || !isTrue(c.KubernetesCluster, v1alpha1.ConditionReady) {
		return err
	}
	return cmp.Or(w.write(ctx, c, setStatus(c, err)), err)
}

// reportPaused writes into the status that the cluster is paused.
func (w *statusWriter) reportPaused(ctx context.Context, c *cluster) error {
	c.Status.ObservedGeneration = c.Generation
	return w.write(ctx, c, setReady(c, reasonPaused, "paused: nothing changes while spec.paused is true", false))
}

// reportPausedByAnnotation writes into the status of a cluster that is not Ready that nothing changes while it has the annotation
// vitistack.io/paused. The first delivery without the annotation reads that, and lets the time of drains begin again. A second call, and one
// for a cluster that is being deleted or is Ready, writes nothing.
func (w *statusWriter) reportPausedByAnnotation(ctx context.Context, kc *v1alpha1.KubernetesCluster) error {
	ready := meta.FindStatusCondition(kc.Status.Conditions, v1alpha1.ConditionReady)
	if kc.DeletionTimestamp != nil || ready == nil || ready.Status != metav1.ConditionFalse || ready.Reason == reasonPaused || ready.Reason == reasonPausedByAnnotation {
		return nil
	}
	c := &cluster{KubernetesCluster: kc, before: kc.DeepCopy()}
	return w.write(ctx, c, setReady(c, reasonPausedByAnnotation, "paused: nothing changes while the cluster has the annotation "+v1alpha1.AnnotationPaused, false))
}

// nodeState returns the state of a Node of the workload cluster.
func nodeState(c *cluster, n plan.Node) string {
	switch {
	case n.Ready:
		return "Ready"
	case plan.IsNodeUpgrading(c.KubernetesCluster, n.Name):
		return "Upgrading"
	case plan.IsNodeResizing(c.KubernetesCluster, n.Name):
		return "Resizing"
	default:
		return "NotReady"
	}
}

// setNodes writes the state of each node, and counts them. While the workload API does not answer, nodes keep the versions
// that were last seen, because the plan keeps a pool at the release that its nodes run.
func setNodes(c *cluster) {
	if len(c.plan.Members) == 0 {
		return
	}
	s := &c.Status
	last := s.Nodes
	s.Nodes, s.Pools = nil, nil
	ready := map[string]int32{}
	for _, m := range c.plan.Members {
		n := v1alpha1.NodeStatus{Name: m.Name, Role: m.Role, State: "Waiting"}
		if machine := c.observed.machines[m.Name]; machine != nil {
			n.State, n.Address = stateOf(c, machine), plan.Address(machine)
		}
		if node, ok := c.observed.node(m.Name); ok {
			n.Version, n.TalosVersion = node.Version, node.TalosVersion
			n.State = nodeState(c, node)
		} else if i := slices.IndexFunc(last, func(n v1alpha1.NodeStatus) bool { return n.Name == m.Name }); i >= 0 && !c.observed.apiAnswers {
			n.Version, n.TalosVersion = last[i].Version, last[i].TalosVersion
		}
		if n.State == "Ready" {
			ready[m.Pool]++
		}
		s.Nodes = append(s.Nodes, n)
	}
	slices.SortFunc(s.Nodes, func(a, b v1alpha1.NodeStatus) int { return strings.Compare(a.Name, b.Name) })
	workers := int32(0)
	for _, g := range c.plan.Groups {
		if g.Role == v1alpha1.RoleWorker {
			s.Pools = append(s.Pools, v1alpha1.PoolStatus{Name: g.Pool, Replicas: int32(g.Replicas), ReadyReplicas: ready[g.Pool]})
			workers += ready[g.Pool]
		}
	}
	setScale(c)
	s.ControlPlaneReady = fmt.Sprintf("%d/%d", ready[v1alpha1.ControlPlanePool], c.plan.CountRole(v1alpha1.RoleControlPlane))
	s.WorkersReady = fmt.Sprintf("%d/%d", workers, c.plan.CountRole(v1alpha1.RoleWorker))
}
