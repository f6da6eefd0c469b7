package main

import (
	"context"
	"fmt"
	"maps"
	"slices"
	"time"

	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/vitistack/stack/apis/cluster/plan"
	"github.com/vitistack/stack/apis/v1alpha1"
	"github.com/vitistack/stack/functions/bootstrap-talos/talos"
	"github.com/vitistack/stack/functions/internal/reconcile"
)

// removeNode does the next step of a removal, and returns what that waits for.
func (r *remover) removeNode(ctx context.Context, c *cluster, m *v1alpha1.Machine) error {
	d := r.nodeRemovalOf(c, m)
	view, member, err := readMembership(ctx, c, m, &d)
	if err != nil {
		return err
	}
	s := removalStep{machine: m, view: view, member: member, why: d.Objection}
	if d.Next() == plan.RemovalDrain {
		if d.Drained, s.why, err = r.drainRemoved(ctx, c, m); err != nil {
			return err
		}
	}
	s.step = d.Next()
	return r.doStep(ctx, c, s)
}

// removalStep is a step of the removal of a machine, with its member of etcd as the members report it.
type removalStep struct {
	step    plan.RemovalStep
	machine *v1alpha1.Machine
	view    plan.EtcdView
	member  plan.EtcdMember
	// why says what the step waits for.
	why string
}

// drainRemoved evicts the pods of the node of a machine that is being removed. It returns whether none is left to evict,
// and otherwise what the drain waits for, and a UserError once the drain has timed out.
func (r *remover) drainRemoved(ctx context.Context, c *cluster, m *v1alpha1.Machine) (isDrained bool, message string, err error) {
	pods, err := c.connections.workload.Drain(ctx, m.Name)
	if err == nil && pods.IsDone() {
		return true, "", nil
	}
	message = pods.WaitsFor()
	if err != nil {
		message = err.Error()
	}
	if failure := plan.DrainFailure(c.plan.PropertiesOf(plan.PoolOf(m)), removalStart(m), r.now(), message); failure != "" {
		return false, "", reconcile.UserError{Reason: "DrainBlocked", Message: fmt.Sprintf(
			"cannot drain node %s: %s; fix their PodDisruptionBudget, %s, or set the annotation %s=true on Machine %s",
			m.Name, failure, c.plan.DrainTimeoutRemedy(plan.PoolOf(m)), v1alpha1.AnnotationForce, m.Name)}
	}
	if err != nil {
		return false, "", reconcile.WaitError{Reason: "WaitingForAPI", Message: "waiting for the workload API, to move pods from " + m.Name, Requeue: true}
	}
	return false, message, nil
}

// startClock lets the time of a removal begin now: a drain has its whole time, however long the removal waited for it.
func (r *remover) startClock(ctx context.Context, m *v1alpha1.Machine) error {
	before := m.DeepCopy()
	metav1.SetMetaDataAnnotation(&m.ObjectMeta, v1alpha1.AnnotationRemoving, r.now().UTC().Format(time.RFC3339))
	_, err := r.kube.Patch(ctx, before, m)
	return err
}

// cordon cordons the node of a machine that is being removed. Its drain begins with that.
func (r *remover) cordon(ctx context.Context, c *cluster, m *v1alpha1.Machine) error {
	if err := r.startClock(ctx, m); err != nil {
		return err
	}
	return c.connections.workload.CordonForRemoval(ctx, m.Name, string(m.UID))
}

// restartClocks lets the time of drains and upgrades begin again in the first delivery after a pause or a move to another management
// cluster, because nothing was evicted or requested meanwhile.
func (r *remover) restartClocks(ctx context.Context, c *cluster) error {
	ready := meta.FindStatusCondition(c.before.Status.Conditions, v1alpha1.ConditionReady)
	if ready == nil || !slices.Contains([]string{reasonPaused, reasonPausedByAnnotation, v1alpha1.ReasonMoved}, ready.Reason) {
		return nil
	}
	now := metav1.NewTime(r.now())
	if c.Status.Upgrade != nil {
		for i := range c.Status.Upgrade.Nodes {
			c.Status.Upgrade.Nodes[i].Since = now
		}
	}
	for i := range c.Status.Resizes {
		if c.Status.Resizes[i].Step == v1alpha1.ResizeDraining { // a restart is named by its time
			c.Status.Resizes[i].Since = now
		}
	}
	for _, name := range slices.Sorted(maps.Keys(c.observed.machines)) {
		if m := c.observed.machines[name]; m.Annotations[v1alpha1.AnnotationRemoving] != "" {
			if err := r.startClock(ctx, m); err != nil {
				return err
			}
		}
	}
	return nil
}

// removalStart returns when the removal of a machine, or then its drain, began, and the zero time for one whose annotation is missing or wrong.
func removalStart(m *v1alpha1.Machine) time.Time {
	began, _ := time.Parse(time.RFC3339, m.Annotations[v1alpha1.AnnotationRemoving])
	return began
}

// nodeRemovalOf returns what is known of a removal without asking etcd.
func (r *remover) nodeRemovalOf(c *cluster, m *v1alpha1.Machine) plan.NodeRemoval {
	n, ok := c.observed.node(m.Name)
	properties := c.plan.PropertiesOf(plan.PoolOf(m))
	return plan.NodeRemoval{
		Deleted: m.DeletionTimestamp != nil, Forced: m.Annotations[v1alpha1.AnnotationForce] == "true",
		APIAnswers: c.observed.apiAnswers, HasNode: ok, Ready: n.Ready, Cordoned: n.Cordoned, MembersAgree: true,
		DrainExpired: properties.DrainTimeout != nil && plan.HasDrainTimedOut(properties, removalStart(m), r.now()),
	}
}

// readMembership completes d with what etcd reports of a machine. A worker has no member, and a
// cluster for which no machine was chosen to bootstrap has no etcd.
func readMembership(ctx context.Context, c *cluster, m *v1alpha1.Machine, d *plan.NodeRemoval) (plan.EtcdView, plan.EtcdMember, error) {
	if plan.PoolOf(m) != v1alpha1.ControlPlanePool || (!c.report.bootstrapped && c.Status.BootstrapMachine == "") || d.Forced {
		return plan.EtcdView{}, plan.EtcdMember{}, nil
	}
	view, err := talos.ReadEtcd(ctx, c.observed.controlPlanes(), c.connections.credentials)
	if err != nil && (!c.report.bootstrapped || (d.Deleted && !plan.HasEtcdFinalizer(m))) {
		return view, plan.EtcdMember{}, nil // nothing can be asked, and nothing holds it up
	}
	if err != nil {
		return view, plan.EtcdMember{}, reconcile.UserError{Reason: "EtcdUnavailable", Message: fmt.Sprintf(
			"control plane %s cannot leave: no member of etcd answers; bring one back, or set the annotation %s=true on Machine %s to remove it without its member", m.Name, v1alpha1.AnnotationForce, m.Name)}
	}
	member, listed := view.Member(m.Name, plan.Address(m))
	if d.IsMember = listed; listed {
		d.Objection = plan.RemovalObjection(view, member)
	}
	_, d.MemberAnswers = view.MemberIDs[m.Name]
	d.MembersAgree = view.IsAgreed()
	return view, member, nil
}

// doStep does one step of a removal.
func (r *remover) doStep(ctx context.Context, c *cluster, s removalStep) error {
	m := s.machine
	removing := func(message string, requeue bool) error {
		return reconcile.WaitError{Reason: "RemovingNodes", Message: fmt.Sprintf("removing node %s: %s", m.Name, message), Requeue: requeue}
	}
	var err error
	switch s.step {
	case plan.RemovalBlocked:
		message := fmt.Sprintf("control plane %s cannot leave: %s; the annotation %s=true on Machine %s removes it without its member", m.Name, s.why, v1alpha1.AnnotationForce, m.Name)
		if plan.IsHeldByEtcd(m) {
			return reconcile.WaitError{Reason: plan.ReasonQuorumAtRisk, Message: message, Requeue: true} // its substitute may be joining
		}
		return reconcile.UserError{Reason: plan.ReasonQuorumAtRisk, Message: message}
	case plan.RemovalWaitsForAPI:
		return reconcile.WaitError{Reason: "WaitingForAPI", Message: fmt.Sprintf("waiting for the workload API at %s, to move pods from %s", c.Status.Endpoint, m.Name), Requeue: true}
	case plan.RemovalDrain:
		return removing(s.why, true)
	case plan.RemovalCordon:
		if err = r.cordon(ctx, c, m); err == nil {
			return removing("it is cordoned", true)
		}
	case plan.RemovalLeaveEtcd:
		if err = talos.LeaveEtcd(ctx, c.observed.controlPlanes()[m.Name], c.connections.credentials, s.view.Leaders[m.Name]); err == nil {
			return removing("has left etcd", true)
		}
	case plan.RemovalRemoveMember:
		if err = talos.RemoveEtcdMember(ctx, c.observed.controlPlanes(), c.connections.credentials, s.view, s.member); err == nil {
			return removing("is removed from etcd", true)
		}
	case plan.RemovalWaitsForMembers:
		return removing("waiting for all members of etcd to have the same member list", true)
	case plan.RemovalDeleteMachine:
		if err = r.machines.removeEtcdFinalizer(ctx, m); err != nil {
			return err
		}
		if err := refusedDeletion(r.kube.Delete(ctx, m)); err != nil {
			return err
		}
		return removing("waiting for its machine to be deleted", false)
	case plan.RemovalReleaseMachine:
		if err = r.machines.removeEtcdFinalizer(ctx, m); err != nil {
			return err
		}
		return removing("waiting for its machine to be deleted"+plan.NotReadySuffix(m), false)
	}
	return reconcile.WaitError{Reason: "RemovingNodes", Message: fmt.Sprintf("removing node %s: a request has failed and is retried", m.Name), Requeue: true}
}
