package main

import (
	"context"
	"errors"
	"slices"
	"strings"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/cloudevents/sdk-go/v2/event"

	"github.com/vitistack/stack/apis/cluster/plan"
	machineplan "github.com/vitistack/stack/apis/machine/plan"
	"github.com/vitistack/stack/apis/v1alpha1"
	"github.com/vitistack/stack/events"
	"github.com/vitistack/stack/functions/internal/kube"
	"github.com/vitistack/stack/functions/internal/network"
	"github.com/vitistack/stack/functions/internal/reconcile"
	"github.com/vitistack/stack/functions/internal/signature"
)

// handle reconciles what an event is about, and returns the event that it answers with, nil for
// none. The event is a hint: everything that decides is read from the API server.
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
	options := reconcileOptions{eventID: in.ID(), full: in.Type() == events.TypeResync, reportErrors: events.Age(in, f.now()) >= retryGracePeriod}
	switch ref.Kind {
	case "Machine":
		return nil, f.reconcileMachine(ctx, ref, options)
	case "NetworkNamespace":
		return nil, f.reconcileNetwork(ctx, ref, options)
	case "MachineClass":
		return nil, f.reconcileMachineClass(ctx, options)
	}
	var reply *event.Event
	options.pollTime, options.requeue, options.requestApproval = nodePollTime, true, func(e *event.Event) { reply = e }
	err = kube.OnConflict(func() error { return f.reconcileCluster(ctx, ref.Namespace, ref.Name, options) })
	return reply, err
}

// reconcileMachine reconciles the cluster of a Machine. A Machine that has just got its addresses
// only gets its configuration, so that a hundred new Machines do not repeat each other's work.
func (f *function) reconcileMachine(ctx context.Context, ref events.Ref, options reconcileOptions) error {
	m := &v1alpha1.Machine{}
	err := f.kube.Get(ctx, ref.Namespace, ref.Name, m)
	if kube.NotFound(err) {
		return f.reconcileDeletedMachine(ctx, ref, options)
	}
	owner := metav1.GetControllerOf(m)
	if err != nil || owner == nil || owner.Kind != "KubernetesCluster" || plan.IsProgressing(m) {
		return err
	}
	if orphan, err := f.releaseOrphan(ctx, m, owner); err != nil || orphan {
		return err
	}
	if plan.NeedsConfig(m) {
		return f.configureMachine(ctx, owner.Name, m)
	}
	controlPlane := m.Labels[v1alpha1.LabelClusterRole] == v1alpha1.RoleControlPlane
	options.full = options.full || !plan.IsRunning(m) || plan.IsLeaving(m) || plan.IsMarked(m)
	if options.requeue = plan.IsInstalled(m) && controlPlane; options.requeue {
		options.pollTime = nodePollTime
	}
	return kube.OnConflict(func() error { return f.reconcileCluster(ctx, ref.Namespace, owner.Name, options) })
}

// reconcileDeletedMachine reconciles the clusters that a deleted Machine may have belonged to.
func (f *function) reconcileDeletedMachine(ctx context.Context, ref events.Ref, options reconcileOptions) error {
	options.full = true
	return f.reconcileEach(ctx, ref.Namespace, options, func(kc *v1alpha1.KubernetesCluster) bool {
		return strings.HasPrefix(ref.Name, kc.Name+"-")
	})
}

// reconcileNetwork reconciles the clusters that wait for a NetworkNamespace.
func (f *function) reconcileNetwork(ctx context.Context, ref events.Ref, options reconcileOptions) error {
	options.full = false
	return f.reconcileEach(ctx, ref.Namespace, options, func(kc *v1alpha1.KubernetesCluster) bool {
		return network.IsMissing(kc.Status.Conditions)
	})
}

// reconcileMachineClass reconciles the clusters of all namespaces that wait for a MachineClass.
func (f *function) reconcileMachineClass(ctx context.Context, options reconcileOptions) error {
	options.full = true
	return f.reconcileEach(ctx, "", options, func(kc *v1alpha1.KubernetesCluster) bool {
		return slices.ContainsFunc(kc.Status.Conditions, func(c metav1.Condition) bool { return c.Reason == machineplan.ReasonTemplateNotFound })
	})
}

// reconcileEach reconciles the clusters of a namespace, or of all, for which isAffected is true.
func (f *function) reconcileEach(ctx context.Context, namespace string, options reconcileOptions, isAffected func(*v1alpha1.KubernetesCluster) bool) error {
	list := &v1alpha1.KubernetesClusterList{}
	if err := f.kube.List(ctx, namespace, "", list); err != nil {
		return err
	}
	for i := range list.Items {
		if !isAffected(&list.Items[i]) {
			continue
		}
		if err := kube.OnConflict(func() error { return f.reconcileCluster(ctx, list.Items[i].Namespace, list.Items[i].Name, options) }); err != nil {
			return err
		}
	}
	return nil
}

// configureMachine provides the configuration of one Machine, and marks the Machine once its node
// runs it. A UserError is left to a full reconcile of the cluster, which writes it into the status.
func (f *function) configureMachine(ctx context.Context, name string, m *v1alpha1.Machine) error {
	kc := &v1alpha1.KubernetesCluster{}
	if err := f.kube.Get(ctx, m.Namespace, name, kc); err != nil {
		if kube.NotFound(err) {
			return nil
		}
		return err
	}
	c := &cluster{KubernetesCluster: kc, deadline: time.Now().Add(nodePollTime)}
	if kc.DeletionTimestamp != nil || kc.Spec.Paused {
		return nil
	}
	full := func() error {
		return kube.OnConflict(func() error { return f.reconcileCluster(ctx, m.Namespace, name, reconcileOptions{full: true}) })
	}
	ready, err := f.readForConfig(ctx, c)
	if errors.As(reconcile.SecretsError(err, plan.FunctionName), new(reconcile.UserError)) {
		return full()
	}
	if err != nil || !ready {
		return err
	}
	members := slices.DeleteFunc(c.unconfiguredMembers(), func(p plan.Member) bool { return p.Name != m.Name })
	if len(members) == 0 {
		return full()
	}
	c.observed.unconfigured = members
	if c.observed.configs, err = f.renderConfigs(ctx, c, c.membersWithoutConfig(members)); err == nil {
		err = reconcile.Poll(ctx, c.deadline, func(ctx context.Context) error { return f.configureNodes(ctx, c) })
	}
	if errors.As(reconcile.SecretsError(err, plan.FunctionName), new(reconcile.UserError)) {
		return full()
	}
	if !reconcile.Retried(err) {
		return nil // the next event of the Machine continues
	}
	return err
}

// readForConfig reads what the configuration of a node needs, and reports whether all of it
// exists.
func (f *function) readForConfig(ctx context.Context, c *cluster) (bool, error) {
	var err error
	if err := f.readMachines(ctx, c); err != nil {
		return false, err
	}
	if err := runAll(ctx, c, f.acceptSpec, f.makePlan); err != nil {
		return false, nil // the cluster's own event reports it
	}
	c.observed.network = c.Spec.NetworkNamespaceName
	if c.observed.keys, err = f.secrets.readKeys(ctx, c.KubernetesCluster); err != nil || c.observed.keys == nil {
		return false, err
	}
	if c.connections.credentials, err = c.observed.keys.Credentials(); err != nil {
		return false, err
	}
	err = f.ensureEndpoint(ctx, c)
	if errors.As(err, new(reconcile.WaitError)) || errors.As(err, new(reconcile.UserError)) {
		return false, nil
	}
	return err == nil, err
}
