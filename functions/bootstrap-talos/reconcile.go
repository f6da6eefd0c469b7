package main

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"slices"
	"sync"
	"time"

	"github.com/cloudevents/sdk-go/v2/event"

	"github.com/vitistack/stack/apis/v1alpha1"
	"github.com/vitistack/stack/events"
	"github.com/vitistack/stack/functions/bootstrap-talos/manifests"
	"github.com/vitistack/stack/functions/bootstrap-talos/plan"
	"github.com/vitistack/stack/functions/bootstrap-talos/talos"
	"github.com/vitistack/stack/functions/internal/kube"
	"github.com/vitistack/stack/functions/internal/reconcile"
	"github.com/vitistack/stack/functions/internal/signature"
)

// runPhases brings a cluster as far as it goes: its machines, its keys, the
// configuration of each node that is up, etcd, and the kubeconfig. It returns a
// fault or waits where it goes no further.
func (f *function) runPhases(ctx context.Context, c *cluster) error {
	if err := f.readPlan(ctx, c); err != nil {
		return err
	}
	if err := f.runMachinePhases(ctx, c); err != nil {
		return err
	}
	members, configs, err := f.renderMissing(ctx, c)
	if err != nil {
		return err
	}
	late := poll(ctx, c.deadline, func(ctx context.Context) error {
		return f.reportWaiting(ctx, c, f.runNodePhases(ctx, c, members, configs))
	})
	if err := f.reconfigureResetNodes(ctx, c); err != nil {
		late = worstError([]error{err, late})
	}
	switch waiting := errors.As(late, new(reconcile.WaitError)); {
	case waiting && c.report.apiUnanswered:
		late = f.checkQuorumLost(ctx, c, late)
	case waiting && c.observed.apiAnswers && c.report.bootstrapped && c.report.etcd == "" && !c.isUpgrading():
		late = worstError([]error{late, f.checkEtcd(ctx, c)}) // what is missing may be no control plane
	}
	if c.observed.keys.Next != nil && c.observed.apiAnswers {
		return f.reconcileRotation(ctx, c, late)
	}
	return f.runChangePhases(ctx, c, late)
}

// runChangePhases brings the nodes of a cluster to what its spec says by now: their versions,
// labels, configuration and authorities. late is what the cluster waits for.
func (f *function) runChangePhases(ctx context.Context, c *cluster, late error) error {
	if !c.observed.apiAnswers || (late != nil && c.Status.Upgrade == nil) {
		return cmp.Or(f.updateConfigsEarly(ctx, c), c.withUnmetConditions(ctx, late))
	}
	err := worstError(slices.DeleteFunc([]error{f.upgrade(ctx, c), late}, func(err error) bool { return err == nil }))
	if err != nil || c.Status.Upgrade != nil {
		return err
	}
	if err := f.maintainNodes(ctx, c); err != nil {
		return err
	}
	return f.startRotation(ctx, c)
}

// readPlan reads a cluster's machines, lets those go that have left etcd, and makes the
// plan of the spec that the cluster follows.
func (f *function) readPlan(ctx context.Context, c *cluster) error {
	if err := f.readMachines(ctx, c); err != nil {
		return err
	}
	if err := f.releaseDeleted(ctx, c); err != nil {
		return err
	}
	var err error
	if c.plan, err = plan.Make(c.effectiveCluster(), c.observed.machines, f.talosVersion); err != nil {
		return err
	}
	c.observed.nodeStates = map[string]talos.State{}
	if c.Status.TalosVersion == "" {
		c.Status.TalosVersion = c.plan.Talos
	}
	return nil
}

// renderMissing returns the members whose nodes have not been seen with their
// configuration, and the configurations of those that have not been provided. There are
// none where the spec of a cluster with nodes has a fault that concerns configurations
// only.
func (f *function) renderMissing(ctx context.Context, c *cluster) ([]plan.Member, map[string][]byte, error) {
	members := c.unconfiguredMembers()
	configs, err := f.renderConfigs(ctx, c, c.membersWithoutConfig(members))
	if err != nil {
		return nil, configs, c.tolerateUserError(v1alpha1.ConditionConfigApplied, err)
	}
	return members, configs, nil
}

// runMachinePhases makes the machines that are missing, and everything that the
// configuration of their nodes needs. What a user has to change about that keeps a cluster
// with nodes only from what it concerns.
func (f *function) runMachinePhases(ctx context.Context, c *cluster) error {
	if err := c.tolerateUserError(v1alpha1.ConditionNetworkAvailable, f.checkNetwork(ctx, c)); err != nil {
		return err
	}
	for _, step := range []func(context.Context, *cluster) error{f.reserveEndpoint, f.checkProviders, f.ensureMachines, f.addEtcdFinalizers, f.ensureCredentials, f.ensureEndpoint} {
		if err := step(ctx, c); err != nil {
			return err
		}
	}
	return nil
}

// runNodePhases does what can be done with the nodes now. Who leaves does so whatever the
// others wait for.
func (f *function) runNodePhases(ctx context.Context, c *cluster, members []plan.Member, configs map[string][]byte) error {
	late := f.configureNodes(ctx, c, members, configs)
	refused := errors.As(late, new(reconcile.UserError))
	if !refused {
		late = f.ensureBootstrap(ctx, c)
	}
	if late == nil {
		late = f.readNodes(ctx, c)
		c.report.apiUnanswered = errors.As(late, new(reconcile.WaitError)) || errors.As(late, new(reconcile.UserError))
	}
	if err := f.scaleDown(ctx, c); err != nil && !refused {
		late = err
	}
	if late == nil {
		late = f.missingNodes(c)
	}
	if late == nil && !c.isUpgrading() {
		late = f.checkEtcd(ctx, c)
	}
	return late
}

// maintainNodes looks after a cluster whose nodes are all there: their labels and
// taints, and their configuration, which may have been made before the spec changed.
func (f *function) maintainNodes(ctx context.Context, c *cluster) error {
	if err := f.labelNodes(ctx, c); err != nil {
		return err
	}
	if err := f.fillScale(ctx, c); err != nil {
		return err
	}
	return f.moveEndpoint(ctx, c)
}

// reportWaiting writes into the status of a cluster that has been Ready that it is so no
// more, since people should not be told so for as long as a delivery waits.
func (f *function) reportWaiting(ctx context.Context, c *cluster, late error) error {
	if !errors.As(late, new(reconcile.WaitError)) || !isTrue(c.KubernetesCluster, v1alpha1.ConditionReady) {
		return late
	}
	told := setStatus(c, late)
	if err := f.writeStatus(ctx, c, told); err != nil {
		return err
	}
	return late
}

// patchStatus writes what has changed in the status since the object was read.
func (f *function) patchStatus(ctx context.Context, c *cluster) error {
	if _, err := f.kube.PatchStatus(ctx, c.before, c.KubernetesCluster); err != nil {
		return err
	}
	c.before = c.KubernetesCluster.DeepCopy()
	return nil
}

type function struct {
	kube      *kube.Client
	manifests *manifests.Store
	// talosVersion is the Talos version of clusters that name none.
	talosVersion string
	images       talos.Images
	now          func() time.Time
	// peopled are the namespaces that have had a cluster.
	peopled sync.Map
}

func (f *function) handle(ctx context.Context, in event.Event) (*event.Event, error) {
	if in.Type() == events.TypeWorkorderApproved || in.Type() == events.TypeWorkorderRejected {
		if err := signature.Verify(ctx, f.kube, in); err != nil {
			return nil, err
		}
		return nil, kube.OnConflict(func() error { return f.recordDecision(ctx, in) })
	}
	ref, err := events.RefOf(in)
	if err != nil {
		return nil, err
	}
	look := reconcileOptions{eventID: in.ID(), full: in.Type() == events.TypeResync, reportErrors: events.Age(in, f.now()) >= retryGracePeriod}
	switch ref.Kind {
	case "Machine":
		return nil, f.reconcileMachine(ctx, ref, look)
	case "NetworkNamespace":
		return nil, f.reconcileNetwork(ctx, ref, look)
	}
	var reply *event.Event
	look.pollTime, look.requeue, look.requestApproval = nodePollTime, true, func(e *event.Event) { reply = e }
	err = kube.OnConflict(func() error { return f.reconcileCluster(ctx, ref.Namespace, ref.Name, look) })
	return reply, err
}

// reconcileOptions is how closely a delivery looks at a cluster.
type reconcileOptions struct {
	// eventID is the one that is handled, which comes again if its delivery fails.
	eventID string
	// thorough looks also at a cluster that is as it should be.
	full bool
	// reportErrors is whether the event has failed for so long that people should know.
	reportErrors bool
	// pollTime is how long to wait for nodes, which tell nobody when they are ready.
	pollTime time.Duration
	// insist has the event delivered again while nodes are waited for.
	requeue bool
	// ask sends the request for an approval, nil where a delivery cannot.
	requestApproval func(*event.Event)
}

// retryGracePeriod is how long an event may fail before the status says so. Most errors of the API
// server are over by then; to tell each of them would cost two writes and a change of
// Ready.
const retryGracePeriod = 30 * time.Second

// nodePollTime stays far below the delivery's time limit.
const nodePollTime = 5 * time.Second

// reconcileCluster brings one KubernetesCluster further.
func (f *function) reconcileCluster(ctx context.Context, namespace, name string, look reconcileOptions) error {
	kc := &v1alpha1.KubernetesCluster{}
	if err := f.kube.Get(ctx, namespace, name, kc); err != nil {
		if kube.NotFound(err) {
			return nil
		}
		return err
	}
	if kc.DeletionTimestamp == nil && isUpToDate(kc) && !look.full && !kube.AskedFor(kc) {
		return nil
	}
	c := &cluster{KubernetesCluster: kc, before: kc.DeepCopy(), eventID: look.eventID, deadline: f.now().Add(look.pollTime), polls: look.pollTime > 0}
	defer func() { c.connections.close() }()
	if kc.DeletionTimestamp != nil {
		return f.reconcileDeletion(ctx, c)
	}
	if kube.AddFinalizer(kc, v1alpha1.FinalizerCluster) {
		if _, err := f.kube.Patch(ctx, c.before, kc); err != nil {
			return err
		}
		c.before = kc.DeepCopy()
	}
	if kc.Spec.Paused {
		if err := f.readMachines(ctx, c); err != nil {
			return err
		}
		if err := f.releaseDeleted(ctx, c); err != nil {
			return err
		}
		return f.writeStatus(ctx, c, setReady(c, "Paused", "nothing is changed while spec.paused is true", false))
	}
	return f.reconcileApproved(ctx, c, look)
}

// reconcileApproved brings the cluster as far as it goes, and says in its status how far.
func (f *function) reconcileApproved(ctx context.Context, c *cluster, look reconcileOptions) error {
	asked := plan.RequestedGeneration(c.Status.Approval)
	err := secretsError(f.reconcileWithinApproval(ctx, c))
	if kube.Conflict(err) {
		return err
	}
	if isUnexpected(c, err) && !look.reportErrors {
		return cmp.Or(f.patchStatus(ctx, c), clusterError(c, err))
	}
	told := setStatus(c, err)
	if c.report.apiUnanswered && (look.pollTime > 0 || plan.IsQuorumLost(err)) {
		setUnanswered(c, err)
	}
	if err := f.writeStatus(ctx, c, told); err != nil {
		return err
	}
	if look.requestApproval != nil && f.needsApprovalRequest(c, asked, look.full) {
		reply, err := approvalRequest(c.KubernetesCluster)
		if err != nil {
			return err
		}
		look.requestApproval(reply)
	}
	return requeueError(c, err, look)
}

// requeueError returns the error that has an event delivered again, nil where nothing is left to
// do or another event follows. A cluster whose authorities are rotated is Ready meanwhile.
func requeueError(c *cluster, err error, look reconcileOptions) error {
	if err == nil && plan.IsRotating(c.KubernetesCluster) && look.requeue {
		return clusterError(c, reconcile.WaitError{Reason: "Rotating", Message: c.report.authorities.message, Requeue: true})
	}
	if err == nil || errors.As(err, new(reconcile.UserError)) {
		return nil
	}
	if w := (reconcile.WaitError{}); errors.As(err, &w) && (!w.Requeue || !look.requeue) {
		return nil
	}
	return clusterError(c, err)
}

// secretsError returns a fault for a request for a Secret or a ConfigMap that RBAC refuses,
// and any other error as it is.
func secretsError(err error) error {
	if message, ok := kube.SecretsForbidden(err, plan.FunctionName); ok {
		return reconcile.UserError{Reason: "SecretsNotAllowed", Message: message}
	}
	return err
}

// clusterError says of which cluster an error is.
func clusterError(c *cluster, err error) error {
	return fmt.Errorf("settle cluster %s/%s: %w", c.Namespace, c.Name, err)
}

func isUpToDate(kc *v1alpha1.KubernetesCluster) bool {
	return isTrue(kc, v1alpha1.ConditionReady) && kc.Status.ObservedGeneration == kc.Generation && !plan.NeedsRotation(kc)
}

// writeStatus patches the status if it has changed, and tells people if the reason has.
func (f *function) writeStatus(ctx context.Context, c *cluster, told reconcile.Outcome) error {
	if err := f.patchStatus(ctx, c); err != nil {
		return err
	}
	if told.Changed {
		f.kube.Tell(ctx, c.KubernetesCluster, told.Warning, told.Reason, told.Message)
	}
	events.Report(ctx, string(c.Status.Phase), told.Message)
	return nil
}

// worstError is the error that most needs somebody's attention: a fault before anything
// that passes by itself.
func worstError(problems []error) error {
	for _, err := range problems {
		if errors.As(err, new(reconcile.UserError)) {
			return err
		}
	}
	if len(problems) > 0 {
		return problems[0]
	}
	return nil
}

// poll calls look until it waits for nothing more, or for something that tells
// when it is there, or until the time is over.
func poll(ctx context.Context, until time.Time, look func(context.Context) error) error {
	pause := firstPause
	for {
		err := look(ctx)
		var w reconcile.WaitError
		if !errors.As(err, &w) || !w.Requeue || time.Now().Add(pause).After(until) {
			return err
		}
		select {
		case <-ctx.Done():
			return err
		case <-time.After(pause):
		}
		pause = min(2*pause, longestPause)
	}
}

// Pauses between two looks at something that tells nobody when it is there.
const (
	firstPause   = 10 * time.Millisecond
	longestPause = 500 * time.Millisecond
)
