package main

import (
	"cmp"
	"context"
	"errors"
	"slices"

	"github.com/cloudevents/sdk-go/v2/event"

	"github.com/vitistack/stack/apis/cluster/plan"
	"github.com/vitistack/stack/apis/v1alpha1"
	"github.com/vitistack/stack/functions/internal/kube"
	"github.com/vitistack/stack/functions/internal/reconcile"
)

// configuration is the result of configuring Machines without a full reconcile of their cluster.
type configuration struct {
	// needsFull is whether only a full reconcile can continue, and controlPlanesNeedFull whether that holds for control planes.
	needsFull, controlPlanesNeedFull bool
	// skipped is whether nothing was done, because the Machine is a control plane that needs a full reconcile.
	skipped bool
	// read is whether the Machines of the cluster were read, and unconfigured are those that have no configuration, or have not shown it.
	read         bool
	unconfigured map[string]bool
	err          error
}

// configureMachine provides the configuration of one Machine, and marks the Machine once its node
// runs it. A UserError is left to a full reconcile of the cluster, which writes it into the status. Deliveries about new
// Machines of a cluster that arrive at the same time share a call, which provides the configurations of all of them.
func (f *function) configureMachine(ctx context.Context, name string, m *v1alpha1.Machine, options reconcileOptions) (*event.Event, error) {
	configure := func(ctx context.Context) configuration { return f.configure(ctx, name, m, options) }
	isControlPlane := m.Labels[v1alpha1.LabelClusterRole] == v1alpha1.RoleControlPlane
	var done configuration
	if plan.IsRunning(m) {
		done = configure(ctx) // it polls the node of this Machine
	} else if done = f.configurations.Do(ctx, m.Namespace+"/"+name, configure); done.skipped && !isControlPlane {
		done = configure(ctx)
	}
	isUnknown := done.read && !done.unconfigured[m.Name]
	if done.needsFull || (done.controlPlanesNeedFull && isControlPlane) || isUnknown {
		options.full = true
		return f.reconcileCluster(ctx, m.Namespace, name, options)
	}
	return nil, done.err
}

// configure configures a Machine that runs, or else all Machines of its cluster that do not.
func (f *function) configure(ctx context.Context, name string, m *v1alpha1.Machine, options reconcileOptions) (done configuration) {
	kc := &v1alpha1.KubernetesCluster{}
	if err := f.kube.Get(ctx, m.Namespace, name, kc); err != nil {
		if !kube.NotFound(err) {
			done.err = err
		}
		return done
	}
	c := &cluster{KubernetesCluster: kc, deadline: pollDeadline(options)}
	if kc.DeletionTimestamp != nil || kc.Spec.Paused || v1alpha1.IsPaused(kc) {
		return done
	}
	done.controlPlanesNeedFull = kc.Status.Endpoint == "" // other Machines may have waited for the address of a control plane
	if done.controlPlanesNeedFull && m.Labels[v1alpha1.LabelClusterRole] == v1alpha1.RoleControlPlane {
		done.skipped = true
		return done
	}
	ready, err := f.readForConfig(ctx, c)
	if err != nil || !ready {
		done.setError(err)
		return done
	}
	members := c.unconfiguredMembers()
	done.read, done.unconfigured = true, map[string]bool{}
	for _, p := range members {
		done.unconfigured[p.Name] = true
	}
	c.observed.unconfigured = slices.DeleteFunc(members, func(p plan.Member) bool {
		if plan.IsRunning(m) {
			return p.Name != m.Name
		}
		machine := c.observed.machines[p.Name]
		return plan.IsRunning(machine) || plan.HasMachineConfig(machine) // it has an event of its own
	})
	if len(c.observed.unconfigured) > 0 {
		done.setError(f.configureUnconfigured(ctx, c))
	}
	return done
}

// setError notes the error of an attempt. After a WaitError the next event of the Machine continues.
func (done *configuration) setError(err error) {
	if errors.As(reconcile.SecretsError(err, plan.FunctionName), new(reconcile.UserError)) {
		done.needsFull = true
	} else if reconcile.Retried(err) {
		done.err = err
	}
}

// configureUnconfigured provides the configurations that are missing, and polls the nodes of Machines that run.
func (f *function) configureUnconfigured(ctx context.Context, c *cluster) (err error) {
	if c.observed.configs, err = f.renderer.renderAndSave(ctx, c, c.membersWithoutConfig(c.observed.unconfigured)); err != nil {
		return err
	}
	return reconcile.Poll(ctx, c.deadline, func(ctx context.Context) error {
		return f.awaitNodeEvent(ctx, c, f.configurator.configureNodes(ctx, c))
	})
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
