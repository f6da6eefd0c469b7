package main

import (
	"context"
	"errors"
	"slices"
	"strings"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/vitistack/stack/apis/v1alpha1"
	"github.com/vitistack/stack/events"
	"github.com/vitistack/stack/functions/bootstrap-talos/plan"
	"github.com/vitistack/stack/functions/bootstrap-talos/talos"
	"github.com/vitistack/stack/functions/internal/kube"
	"github.com/vitistack/stack/functions/internal/network"
	"github.com/vitistack/stack/functions/internal/reconcile"
)

// reconcileMachine does what a Machine needs of layer 4. A machine that has just come
// up gets its configuration, and nothing else is touched, so that a hundred of them
// don't do each other's work.
func (f *function) reconcileMachine(ctx context.Context, ref events.Ref, look reconcileOptions) error {
	if none, err := f.hasNoCluster(ctx, ref.Namespace); err != nil || none {
		return err
	}
	m := &v1alpha1.Machine{}
	err := f.kube.Get(ctx, ref.Namespace, ref.Name, m)
	if kube.NotFound(err) {
		return f.reconcileDeletedMachine(ctx, ref, look)
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
	look.full = look.full || !plan.IsRunning(m) || plan.IsLeaving(m) || m.Annotations[v1alpha1.AnnotationRemove] == "true"
	if look.requeue = plan.IsInstalled(m) && controlPlane; look.requeue {
		look.pollTime = nodePollTime
	}
	return kube.OnConflict(func() error { return f.reconcileCluster(ctx, ref.Namespace, owner.Name, look) })
}

// hasNoCluster tells whether a namespace has no cluster that a Machine of it could be of.
// Many Machines are asked about at once, so that this is fewer requests than to read
// each of them. That there was a cluster is remembered: it only means to look closer.
func (f *function) hasNoCluster(ctx context.Context, namespace string) (bool, error) {
	if _, had := f.peopled.Load(namespace); had {
		return false, nil
	}
	list := &v1alpha1.KubernetesClusterList{}
	if err := f.kube.ListPage(ctx, namespace, metav1.ListOptions{Limit: 1}, list); err != nil {
		return false, err
	}
	if len(list.Items) == 0 {
		return true, nil
	}
	f.peopled.Store(namespace, true)
	return false, nil
}

// reconcileDeletedMachine looks at the clusters that a machine may have been of.
func (f *function) reconcileDeletedMachine(ctx context.Context, ref events.Ref, look reconcileOptions) error {
	look.full = true
	return f.reconcileEach(ctx, ref.Namespace, look, func(kc *v1alpha1.KubernetesCluster) bool {
		return strings.HasPrefix(ref.Name, kc.Name+"-")
	})
}

// reconcileNetwork looks at the clusters for which there was no network.
func (f *function) reconcileNetwork(ctx context.Context, ref events.Ref, look reconcileOptions) error {
	look.full = false
	return f.reconcileEach(ctx, ref.Namespace, look, func(kc *v1alpha1.KubernetesCluster) bool {
		return network.Missing(kc.Status.Conditions)
	})
}

// reconcileEach brings the clusters of a namespace further that are concerned.
func (f *function) reconcileEach(ctx context.Context, namespace string, look reconcileOptions, concerned func(*v1alpha1.KubernetesCluster) bool) error {
	list := &v1alpha1.KubernetesClusterList{}
	if err := f.kube.List(ctx, namespace, "", list); err != nil {
		return err
	}
	for i := range list.Items {
		if !concerned(&list.Items[i]) {
			continue
		}
		if err := kube.OnConflict(func() error { return f.reconcileCluster(ctx, namespace, list.Items[i].Name, look) }); err != nil {
			return err
		}
	}
	return nil
}

// configureMachine brings one machine closer to a node with its configuration. A cluster
// that is not ready for that does it later itself.
func (f *function) configureMachine(ctx context.Context, name string, m *v1alpha1.Machine) error {
	kc := &v1alpha1.KubernetesCluster{}
	if err := f.kube.Get(ctx, m.Namespace, name, kc); err != nil {
		if kube.NotFound(err) {
			return nil
		}
		return err
	}
	c := &cluster{KubernetesCluster: kc, observed: observed{nodeStates: map[string]talos.State{}}, deadline: f.now().Add(nodePollTime)}
	if kc.DeletionTimestamp != nil || kc.Spec.Paused {
		return nil
	}
	ready, err := f.readForConfig(ctx, c)
	if errors.As(secretsError(err), new(reconcile.UserError)) {
		return kube.OnConflict(func() error { return f.reconcileCluster(ctx, m.Namespace, name, reconcileOptions{full: true}) })
	}
	if err != nil || !ready {
		return err
	}
	members := slices.DeleteFunc(c.unconfiguredMembers(), func(p plan.Member) bool { return p.Name != m.Name })
	if len(members) == 0 {
		return kube.OnConflict(func() error { return f.reconcileCluster(ctx, m.Namespace, name, reconcileOptions{full: true}) })
	}
	configs, err := f.renderConfigs(ctx, c, c.membersWithoutConfig(members))
	if err == nil {
		err = poll(ctx, c.deadline, func(ctx context.Context) error { return f.configureNodes(ctx, c, members, configs) })
	}
	if errors.As(secretsError(err), new(reconcile.UserError)) {
		return kube.OnConflict(func() error { return f.reconcileCluster(ctx, m.Namespace, name, reconcileOptions{full: true}) })
	}
	if w := (reconcile.WaitError{}); errors.As(err, &w) && !w.Requeue {
		return nil // the event of the Machine tells
	}
	return err
}

// readForConfig learns what the configuration of a node needs, and reports whether it is
// all there.
func (f *function) readForConfig(ctx context.Context, c *cluster) (bool, error) {
	var err error
	if err := f.readMachines(ctx, c); err != nil {
		return false, err
	}
	if err = f.acceptSpec(c); err == nil {
		c.plan, err = plan.Make(c.effectiveCluster(), c.observed.machines, f.talosVersion)
	}
	if err != nil {
		return false, nil // the cluster's own event tells
	}
	c.observed.network = c.Spec.NetworkNamespaceName
	if c.observed.keys, err = f.readKeys(ctx, c.KubernetesCluster); err != nil || c.observed.keys == nil {
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
