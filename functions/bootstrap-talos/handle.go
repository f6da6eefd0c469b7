package main

import (
	"cmp"
	"context"
	"errors"
	"slices"
	"strings"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/cloudevents/sdk-go/v2/event"

	"github.com/vitistack/stack/apis/cluster/plan"
	"github.com/vitistack/stack/apis/cluster/template"
	machineplan "github.com/vitistack/stack/apis/machine/plan"
	"github.com/vitistack/stack/apis/v1alpha1"
	"github.com/vitistack/stack/events"
	"github.com/vitistack/stack/functions/internal/gatewaysignature"
	"github.com/vitistack/stack/functions/internal/kube"
	"github.com/vitistack/stack/functions/internal/network"
	"github.com/vitistack/stack/functions/internal/reconcile"
)

// handle reconciles what an event is about, and returns the event that it answers with, nil for
// none. The event is a hint: everything that decides is read from the API server.
func (f *function) handle(ctx context.Context, in event.Event) (*event.Event, error) {
	age := events.Age(in, f.now())
	reported := in.Source() == events.SourceNodeEvents
	options := reconcileOptions{
		eventID: in.ID(), changed: (events.IsChange(in.Type()) || reported) && age < time.Second, full: in.Type() == events.TypeResync && !reported, reported: reported,
		polls: true, reportErrors: age >= retryGracePeriod,
	}
	if in.Type() == events.TypeWorkorderApproved || in.Type() == events.TypeWorkorderRejected {
		if err := gatewaysignature.Verify(ctx, f.kube, in); err != nil {
			return nil, err
		}
		return nil, kube.OnConflict(func() error { return f.approvals.recordDecision(ctx, in) })
	}
	ref, err := events.RefOf(in)
	if err != nil {
		return nil, err
	}
	switch ref.Kind {
	case "Machine":
		return f.reconcileMachine(ctx, in, ref, options)
	case "NetworkNamespace":
		return f.reconcileNetwork(ctx, ref, options)
	case "MachineClass":
		return f.reconcileMachineClass(ctx, options)
	case "ClusterTemplate":
		return f.reconcileTemplate(ctx, ref, options)
	}
	if kc := (v1alpha1.KubernetesCluster{}); events.ObjectFrom(in, &kc) && isOwnWrite(&kc) && !hasNewDecision(&kc) {
		return nil, nil
	}
	return f.reconcileCluster(ctx, ref.Namespace, ref.Name, options)
}

// isOwnWrite reports whether the last change of a cluster gives nothing to do, because the function has made it: its status, or
// the finalizer of a new cluster. The delivery that adds the finalizer reconciles the cluster after that and writes the first
// conditions. If it ends before, its event is redelivered.
func isOwnWrite(kc *v1alpha1.KubernetesCluster) bool {
	if len(kc.Status.Conditions) == 0 && !kube.ReconcileRequested(kc) && kube.IsOwnFirstWrite(kc, plan.FunctionName) {
		return true
	}
	return kube.IsOwnStatusWrite(kc, plan.FunctionName, waitsForEvent(kc))
}

// reconcileMachine reconciles the cluster of a Machine. A Machine that has just got its addresses
// only gets its configuration, so that a hundred new Machines do not repeat each other's work. What
// the event carries of the Machine is enough to find out what to read.
func (f *function) reconcileMachine(ctx context.Context, in event.Event, ref events.Ref, options reconcileOptions) (*event.Event, error) {
	m := &v1alpha1.Machine{}
	if isCarried := events.ObjectFrom(in, m); !isCarried || isHeld(m) || (m.DeletionTimestamp != nil && needsReconcile(m)) {
		err := f.kube.Get(ctx, ref.Namespace, ref.Name, m)
		if kube.NotFound(err) {
			return f.reconcileDeletedMachine(ctx, ref, options)
		}
		if err != nil {
			return nil, err
		}
	}
	if orphan, err := f.machines.releaseOrphan(ctx, m); err != nil || orphan {
		return nil, err
	}
	if !needsReconcile(m) {
		return nil, nil
	}
	owner := clusterOf(m)
	if plan.NeedsConfig(m) {
		return f.configureMachine(ctx, owner.Name, m, options)
	}
	isChanging := events.IsDelete(in.Type()) || !plan.IsRunning(m) || plan.IsLeaving(m) || plan.IsMarked(m)
	if in.Type() == events.TypeResync && !isChanging {
		return nil, nil // the round sends an event for the cluster too
	}
	options.full = options.full || isChanging
	return f.reconcileCluster(ctx, ref.Namespace, owner.Name, options)
}

// needsReconcile reports whether a Machine belongs to a cluster that has something to do for it.
func needsReconcile(m *v1alpha1.Machine) bool {
	return clusterOf(m) != nil && !plan.IsProgressing(m)
}

// reconcileDeletedMachine reconciles the clusters that a deleted Machine may have belonged to.
func (f *function) reconcileDeletedMachine(ctx context.Context, ref events.Ref, options reconcileOptions) (*event.Event, error) {
	options.full = true
	return f.reconcileEach(ctx, ref.Namespace, options, func(kc *v1alpha1.KubernetesCluster) bool {
		return strings.HasPrefix(ref.Name, kc.Name+"-")
	})
}

// reconcileNetwork reconciles the clusters that wait for a NetworkNamespace.
func (f *function) reconcileNetwork(ctx context.Context, ref events.Ref, options reconcileOptions) (*event.Event, error) {
	options.full = false
	return f.reconcileEach(ctx, ref.Namespace, options, func(kc *v1alpha1.KubernetesCluster) bool {
		return network.IsMissing(kc.Status.Conditions)
	})
}

// reconcileMachineClass reconciles the clusters of all namespaces that wait for a MachineClass.
func (f *function) reconcileMachineClass(ctx context.Context, options reconcileOptions) (*event.Event, error) {
	options.full = true
	return f.reconcileEach(ctx, "", options, func(kc *v1alpha1.KubernetesCluster) bool {
		return slices.ContainsFunc(kc.Status.Conditions, func(c metav1.Condition) bool { return c.Reason == machineplan.ReasonTemplateNotFound })
	})
}

// reconcileTemplate continues the rollout of a ClusterTemplate, and reconciles the clusters of all namespaces that
// wait for it.
func (f *function) reconcileTemplate(ctx context.Context, ref events.Ref, options reconcileOptions) (*event.Event, error) {
	if err := f.templates.rollOut(ctx, ref.Name); err != nil {
		return nil, err
	}
	clusters, err := f.templates.clustersOf(ctx, ref.Name)
	if err != nil {
		return nil, err
	}
	options.full = true
	return f.reconcileAffected(ctx, clusters, options, func(kc *v1alpha1.KubernetesCluster) bool { return template.NextStep(kc) == template.Adopt })
}

// reconcileEach reconciles the clusters of a namespace, or of all, for which isAffected is true,
// without polling nodes. It returns one reply: resync repeats the requests of others.
func (f *function) reconcileEach(ctx context.Context, namespace string, options reconcileOptions, isAffected func(*v1alpha1.KubernetesCluster) bool) (*event.Event, error) {
	list := &v1alpha1.KubernetesClusterList{}
	if err := f.kube.List(ctx, namespace, "", list); err != nil {
		return nil, err
	}
	return f.reconcileAffected(ctx, list.Items, options, isAffected)
}

// reconcileAffected is reconcileEach for given clusters.
func (f *function) reconcileAffected(ctx context.Context, clusters []v1alpha1.KubernetesCluster, options reconcileOptions, isAffected func(*v1alpha1.KubernetesCluster) bool) (*event.Event, error) {
	var reply *event.Event
	var failed []error
	options.polls = false
	for i := range clusters {
		if !isAffected(&clusters[i]) {
			continue
		}
		r, err := f.reconcileCluster(ctx, clusters[i].Namespace, clusters[i].Name, options)
		reply, failed = cmp.Or(reply, r), append(failed, err)
	}
	return reply, errors.Join(failed...)
}

// configureMachine provides the configuration of one Machine, and marks the Machine once its node
// runs it. It reconciles the whole cluster if that has to do more, or has to report a UserError in its status.
func (f *function) configureMachine(ctx context.Context, name string, m *v1alpha1.Machine, options reconcileOptions) (*event.Event, error) {
	kc := &v1alpha1.KubernetesCluster{}
	if err := f.kube.Get(ctx, m.Namespace, name, kc); err != nil {
		if kube.NotFound(err) {
			return nil, nil
		}
		return nil, err
	}
	if kc.DeletionTimestamp != nil || kc.Spec.Paused || v1alpha1.IsPaused(kc) {
		return nil, nil
	}
	c := &cluster{KubernetesCluster: kc, before: kc.DeepCopy(), deadline: pollDeadline(options)}
	hasMore, err := f.configureOnly(ctx, c, m)
	if err != nil || !hasMore {
		return nil, err
	}
	options.full = true
	return f.reconcileCluster(ctx, m.Namespace, name, options)
}

// configureOnly is configureMachine without the rest of the cluster. It reports whether that has to be reconciled too. A configuration
// has the endpoint, which the control plane's address becomes before the status of the cluster says so, unless another control plane
// may give it: other Machines may have waited for that address.
func (f *function) configureOnly(ctx context.Context, c *cluster, m *v1alpha1.Machine) (hasMore bool, err error) {
	isUserError := func(err error) bool {
		return errors.As(reconcile.SecretsError(err, plan.FunctionName), new(reconcile.UserError))
	}
	givesEndpoint := c.Status.Endpoint == "" && m.Labels[v1alpha1.LabelClusterRole] == v1alpha1.RoleControlPlane
	ready, err := f.readForConfig(ctx, c)
	switch {
	case isUserError(err):
		return true, nil
	case err != nil:
		return false, err
	case !ready || (givesEndpoint && len(c.plan.ControlPlanes()) > 1):
		return givesEndpoint, nil
	}
	members := slices.DeleteFunc(c.unconfiguredMembers(), func(p plan.Member) bool { return p.Name != m.Name })
	if len(members) == 0 {
		return true, nil
	}
	c.observed.unconfigured = members
	if c.observed.configs, err = f.renderer.renderAndSave(ctx, c, c.membersWithoutConfig(members)); err == nil {
		err = reconcile.Poll(ctx, c.deadline, func(ctx context.Context) error {
			return f.awaitNodeEvent(ctx, c, f.configurator.configureNodes(ctx, c))
		})
	}
	switch {
	case givesEndpoint || isUserError(err):
		return true, nil
	case reconcile.Retried(err):
		return false, err
	}
	return false, nil // the next event of the Machine continues
}

// readForConfig reads what the configuration of a node needs, and reports whether all of it
// exists.
func (f *function) readForConfig(ctx context.Context, c *cluster) (bool, error) {
	var err error
	if err := f.machines.read(ctx, c); err != nil {
		return false, err
	}
	if err := runAll(ctx, c, f.planner.acceptSpec, f.planner.makePlan); err != nil {
		return false, nil // the cluster's own event reports it
	}
	c.observed.network = cmp.Or(c.Status.NetworkNamespaceName, c.Spec.NetworkNamespaceName)
	if c.observed.keys, err = f.secrets.readKeys(ctx, c.KubernetesCluster); err != nil || c.observed.keys == nil {
		return false, err
	}
	if c.connections.credentials, err = c.observed.keys.Credentials(); err != nil {
		return false, err
	}
	err = f.endpoints.ensure(ctx, c)
	if errors.As(err, new(reconcile.WaitError)) || errors.As(err, new(reconcile.UserError)) {
		return false, nil
	}
	return err == nil, err
}
