package main

import (
	"cmp"
	"context"
	"errors"

	"k8s.io/apimachinery/pkg/api/meta"

	"github.com/cloudevents/sdk-go/v2/event"

	"github.com/vitistack/stack/apis/cluster/plan"
	"github.com/vitistack/stack/apis/v1alpha1"
	"github.com/vitistack/stack/functions/internal/kube"
	"github.com/vitistack/stack/functions/internal/reconcile"
)

// phase does one part of a reconcile. It reads what earlier phases have written into the cluster,
// and an error ends the list of phases.
type phase func(ctx context.Context, c *cluster) error

func runAll(ctx context.Context, c *cluster, phases ...phase) error {
	for _, run := range phases {
		if err := run(ctx, c); err != nil {
			return err
		}
	}
	return nil
}

// reconcileOnce reconciles one KubernetesCluster and writes its status. A cluster that does not
// exist or is up to date is left alone. It returns the event to answer with, nil for none, and what
// the cluster waits for or what has failed.
func (f *function) reconcileOnce(ctx context.Context, namespace, name string, options reconcileOptions) (*event.Event, error) {
	kc := &v1alpha1.KubernetesCluster{}
	if err := f.kube.Get(ctx, namespace, name, kc); err != nil {
		if kube.NotFound(err) {
			return nil, nil
		}
		return nil, err
	}
	if v1alpha1.IsPaused(kc) {
		return nil, f.status.reportPausedByAnnotation(ctx, kc)
	}
	if kc.DeletionTimestamp == nil && isUpToDate(kc) && !options.full && !options.reported && !kube.ReconcileRequested(kc) {
		return nil, nil
	}
	c := &cluster{KubernetesCluster: kc, before: kc.DeepCopy(), eventID: options.eventID, deadline: pollDeadline(options), polls: options.polls, full: options.full}
	start := c.before
	defer func() { c.connections.close() }()
	switch {
	case kc.DeletionTimestamp != nil:
		return nil, cmp.Or(f.deleter.reconcile(ctx, c), f.templates.rollOutAfter(ctx, c, nil))
	case kc.Spec.Paused:
		return nil, runAll(ctx, c, f.addFinalizer, f.machines.read, f.machines.releaseDeleted, f.status.reportPaused)
	}
	if err := f.addFinalizer(ctx, c); err != nil {
		return nil, err
	}
	if err := f.templates.fillFromTemplate(ctx, c); err != nil {
		return nil, err
	}
	requested := plan.RequestedGeneration(c.Status.Approval)
	err := runAll(ctx, c, f.planner.acceptSpec, f.approvals.limitToApproved, f.runPhases)
	err = reconcile.SecretsError(cmp.Or(err, c.report.approval), plan.FunctionName)
	reply, err := f.finish(ctx, c, err, requested, options)
	if failed := f.templates.rollOutAfter(ctx, c, start); failed != nil && !reconcile.Retried(err) {
		err = failed
	}
	return reply, err
}

// runPhases runs the phases in the order of a cluster's life: what the nodes need to start with
// their configurations, the nodes until all have joined, and then a rotation of the authorities
// that is under way, or other changes to the nodes.
func (f *function) runPhases(ctx context.Context, c *cluster) error {
	err := runAll(ctx, c,
		f.machines.readFirst,
		forgetRemoved,
		f.machines.releaseDeleted,
		f.remover.restartClocks,
		f.recoverer.recoverStatus,
		f.planner.makePlan,
		f.replacer.recreateUnstarted,
		f.resizer.readClasses,
		f.renderer.readNodeConfigs,
		f.replacer.cancelObsoleteReplacements,
		f.endpoints.findNetwork,
		f.endpoints.reserve,
		f.machines.checkProviders,
		f.machines.ensure,
		f.machines.addEtcdFinalizers,
		f.keys.ensure,
		f.rotator.read,
		f.endpoints.ensure,
		f.renderer.renderMissing,
	)
	if err != nil {
		return err
	}
	err = reconcile.Poll(ctx, c.deadline, func(ctx context.Context) error {
		return f.status.reportWaiting(ctx, c, f.awaitNodeEvent(ctx, c, f.runNodePhases(ctx, c)))
	})
	err = reconcile.MostUrgent(f.configurator.reconfigureResetNodes(ctx, c), err)
	err = f.checkWaitingCluster(ctx, c, err)
	if c.observed.keys.Next != nil && c.observed.apiAnswers {
		return f.rotator.reconcile(ctx, c, err)
	}
	return f.runChangePhases(ctx, c, err)
}

// runNodePhases brings the nodes as far as they can come now. Nodes are removed whatever the other
// nodes wait for, unless a user has to change a configuration first.
func (f *function) runNodePhases(ctx context.Context, c *cluster) error {
	err := f.configurator.configureNodes(ctx, c)
	_, refused := reconcile.AsUserError(err)
	if !refused {
		err = runAll(ctx, c, f.bootstrap.ensure, f.nodes.read, f.remover.cleanEarlierNodes, f.addons.applyAll)
	}
	if problem := f.replacer.replaceUnhealthy(ctx, c); problem != nil {
		return problem
	}
	if removal := f.remover.scaleDown(ctx, c); removal != nil && !refused {
		err = removal
	}
	if err == nil {
		err = explainMissingCNI(c, runAll(ctx, c, checkNodesReady, f.etcd.checkHealthy))
	}
	return err
}

// checkWaitingCluster finds out whether a cluster waits in vain, because etcd has lost its quorum or
// a member. It returns waiting if it does not.
func (f *function) checkWaitingCluster(ctx context.Context, c *cluster, waiting error) error {
	switch isWaiting := errors.As(waiting, new(reconcile.WaitError)); {
	case isWaiting && c.report.apiUnanswered:
		return checkQuorumLost(ctx, c, waiting)
	case isWaiting && c.observed.apiAnswers && c.report.bootstrapped && c.report.etcd == "":
		return reconcile.MostUrgent(waiting, f.etcd.checkHealthy(ctx, c)) // the missing node may be a worker
	default:
		return waiting
	}
}

// runChangePhases brings the nodes to the versions, labels, configuration and authorities of the
// spec. waiting is what the cluster waits for: only an upgrade or a resize that is under way continues then, and nodes get what they
// may lack to be Ready.
func (f *function) runChangePhases(ctx context.Context, c *cluster, waiting error) error {
	if len(c.Status.Resizes) > 0 {
		waiting = reconcile.MostUrgent(f.resizer.resume(ctx, c), waiting)
	}
	if !c.observed.apiAnswers && c.Status.Upgrade != nil {
		waiting = reconcile.MostUrgent(f.upgrader.resume(ctx, c), waiting)
	}
	if !c.observed.apiAnswers || (waiting != nil && c.Status.Upgrade == nil) {
		return cmp.Or(f.updater.updateConfigsEarly(ctx, c), checkReleases(ctx, c), withUnmetConditions(ctx, c, waiting))
	}
	err := reconcile.MostUrgent(f.upgrader.upgradeNodes(ctx, c), waiting)
	if err != nil {
		return cmp.Or(f.updater.updateConfigsEarly(ctx, c), err)
	}
	if c.Status.Upgrade != nil { // it is paused
		return runAll(ctx, c, labelNodes, f.planner.fillScale, reportPausedConfigs, checkAddonsApplied)
	}
	return runAll(ctx, c, labelNodes, f.planner.fillScale, f.updater.moveEndpoint, f.endpoints.releaseUnusedVIP, f.addons.applyTalosManifests, uncordonNodes, f.resizer.resizeOutdated, f.replacer.replaceOutdated, f.rotator.start, checkAddonsApplied)
}

// finish writes the status, and returns the request for an approval unless the generation requested
// before is still the one to approve. It returns err, or the error of its own requests. With a request it returns no WaitError, because
// a reply is only sent if the delivery succeeds: resync continues the wait. A cluster is
// Ready while its authorities are rotated, and waits for that.
func (f *function) finish(ctx context.Context, c *cluster, err error, requested int64, options reconcileOptions) (*event.Event, error) {
	if kube.Conflict(err) {
		return nil, err
	}
	if isUnexpected(c, err) && !options.reportErrors {
		return nil, cmp.Or(f.status.patch(ctx, c), err)
	}
	polled := c.hasPolled(ctx)
	c.report.unreachable = isUnreachable(c, err, polled)
	outcome := setStatus(c, err)
	if c.report.apiUnanswered && (polled || plan.IsQuorumLost(err)) {
		setUnanswered(c, err)
	}
	if failed := f.status.write(ctx, c, outcome); failed != nil {
		return nil, failed
	}
	if err == nil && plan.IsRotating(c.KubernetesCluster) {
		err = reconcile.WaitError{Reason: "Rotating", Message: c.report.authorities.message, Requeue: true}
	}
	if !f.approvals.needsRequest(c, requested, options.full) {
		return nil, err
	}
	if errors.As(err, new(reconcile.WaitError)) {
		err = nil
	}
	request, failed := f.approvals.request(c.KubernetesCluster)
	return request, cmp.Or(failed, err)
}

// isUpToDate reports whether a cluster needs no reconcile unless something outside of it changes.
func isUpToDate(kc *v1alpha1.KubernetesCluster) bool {
	return !kc.Spec.Paused && isTrue(kc, v1alpha1.ConditionReady) && kc.Status.ObservedGeneration == kc.Generation && !plan.NeedsRotation(kc)
}

// waitsForEvent reports whether a cluster in this state continues by the event of another object, so
// that a change of the cluster itself gives nothing to do.
func waitsForEvent(kc *v1alpha1.KubernetesCluster) bool {
	if kc.DeletionTimestamp != nil || kc.Spec.Paused || kc.Status.ObservedGeneration != kc.Generation || kube.ReconcileRequested(kc) {
		return false
	}
	ready := meta.FindStatusCondition(kc.Status.Conditions, v1alpha1.ConditionReady)
	return ready != nil && (ready.Reason == reasonWaitingForMachines || ready.Reason == reasonGenerating)
}
