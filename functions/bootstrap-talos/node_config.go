package main

import (
	"context"
	"errors"
	"fmt"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/vitistack/stack/apis/cluster/nodeconfig"
	"github.com/vitistack/stack/apis/cluster/plan"
	"github.com/vitistack/stack/apis/v1alpha1"
	"github.com/vitistack/stack/functions/bootstrap-talos/talos"
	"github.com/vitistack/stack/functions/internal/kube"
	"github.com/vitistack/stack/functions/internal/reconcile"
)

// readNodeConfigs finds out which parts of the configurations only a new node gets, if machines may be replaced for
// them. Otherwise updateConfigs does, which reads the patches in any case.
func (r *configRenderer) readNodeConfigs(ctx context.Context, c *cluster) error {
	if isTrue(c.before, v1alpha1.ConditionMachinesCurrent) && c.Status.ObservedGeneration == c.Generation || !c.observed.hasNodes() {
		return nil
	}
	return r.findNodeConfigs(ctx, c)
}

// findNodeConfigs reads the patches of each pool, unless this delivery has. A pool with wrong patches is left out: rendering
// its configurations reports them.
func (r *configRenderer) findNodeConfigs(ctx context.Context, c *cluster) error {
	found := map[string]nodeconfig.Parts{}
	for _, g := range c.plan.Groups {
		patches, err := r.loadPatches(ctx, c, g.Role, g.Properties)
		if errors.As(err, new(reconcile.UserError)) {
			continue
		}
		if err != nil {
			return err
		}
		if parts, err := talos.PartsOfPatches(patches); err == nil {
			found[g.Pool] = parts
		}
	}
	c.observed.nodeConfigs = found
	return nil
}

// recordNodeConfig has a Machine say what its node was installed with, by the configuration that the node runs. It writes
// nothing that the Machine says already. A node may run a configuration with an encryption, a size or an argument of the
// kernel that it lacks: Talos accepts that, and ignores it. The node is therefore asked if the Machine says nothing yet, and
// about arguments of the kernel, which an earlier version has recorded unseen.
func (u *configUpdater) recordNodeConfig(ctx context.Context, c *cluster, m *v1alpha1.Machine, result talos.ConfigResult) error {
	parts := result.NodeConfig
	earlier, known := plan.NodeConfigOf(m)
	if known {
		parts = parts.WithInstalled(earlier)
	}
	if !known && len(parts) > 0 || parts.HasKernelArguments() {
		missing, err := result.MissingParts(ctx, plan.Address(m), c.connections.credentials)
		if err != nil {
			return reconcile.WaitError{Reason: "WaitingForNode", Message: fmt.Sprintf("waiting for node %s, to read what it was installed with", m.Name), Requeue: true}
		}
		parts = parts.Without(missing...)
	}
	if m.Annotations[v1alpha1.AnnotationNodeConfig] == parts.String() {
		return nil
	}
	before := m.DeepCopy()
	metav1.SetMetaDataAnnotation(&m.ObjectMeta, v1alpha1.AnnotationNodeConfig, parts.String())
	if _, err := u.kube.Patch(ctx, before, m); err != nil && !kube.NotFound(err) && !kube.Conflict(err) {
		return err
	}
	return nil
}

// withheldReport returns the condition ConfigCurrent of a cluster with a node that does not get a part of its
// configuration. MachinesCurrent says whether the machine is replaced; a difference of keys alone does not replace it.
func (c *cluster) withheldReport(m plan.Member, withheld string) conditionReport {
	message := fmt.Sprintf("node %s: only a new node gets %s", m.Name, withheld)
	if !c.outdated().Has(m.Name) {
		message += fmt.Sprintf("; set the annotation %s=true on Machine %s to have it replaced", v1alpha1.AnnotationRemove, m.Name)
	}
	return conditionReport{false, "NewNodeNeeded", message}
}
