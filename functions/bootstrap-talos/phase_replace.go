package main

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/vitistack/stack/apis/cluster/plan"
	"github.com/vitistack/stack/apis/v1alpha1"
	"github.com/vitistack/stack/functions/internal/kube"
	"github.com/vitistack/stack/functions/internal/reconcile"
)

// replacer replaces machines that are unhealthy, or that are not as their pool describes them.
type replacer struct {
	kube     *kube.Client
	planner  *planner
	machines *machineStore
	now      func() time.Time
}

// replaceUnhealthy has the health checks of all groups replace machines whose nodes are unhealthy, and
// reports the condition MachinesHealthy. It decides nothing while the workload API does not answer
// or nodes are being upgraded or resized.
func (r *replacer) replaceUnhealthy(ctx context.Context, c *cluster) error {
	if !c.observed.apiAnswers || plan.IsUpgradeActive(c.KubernetesCluster) || plan.IsResizeActive(c.KubernetesCluster) {
		return nil
	}
	var messages []string
	for _, g := range c.plan.Groups {
		message, err := r.replaceUnhealthyOf(ctx, c, g)
		if err != nil {
			return err
		}
		if message != "" {
			messages = append(messages, message)
		}
	}
	c.report.health = conditionReport{true, "MachinesHealthy", "no machine is unhealthy"}
	if len(messages) > 0 {
		c.report.health = conditionReport{false, "MachinesUnhealthy", strings.Join(messages, "; ")}
	}
	return nil
}

// replaceUnhealthyOf replaces at most one machine of a group. It returns what the condition says of
// the group, an empty string if no machine is unhealthy.
func (r *replacer) replaceUnhealthyOf(ctx context.Context, c *cluster, g plan.Group) (string, error) {
	var unhealthy []plan.UnhealthyMachine
	var replaced []string
	gone, joining, inProgress := 0, 0, 0
	for name, m := range c.observed.machines {
		if plan.PoolOf(m) != g.Pool {
			continue
		}
		var node *plan.Node
		if n, ok := c.observed.node(name); ok {
			node = &n
		}
		isReady := node != nil && node.Ready
		if m.Annotations[v1alpha1.AnnotationReplace] == string(v1alpha1.ReplaceUnhealthy) {
			replaced = append(replaced, name)
		}
		since := plan.UnhealthySince(m, node)
		switch {
		case m.DeletionTimestamp != nil && !isReady:
			gone++
		case plan.IsLeaving(m) || plan.IsMarked(m):
			inProgress++
		case !since.IsZero():
			unhealthy = append(unhealthy, plan.UnhealthyMachine{Name: name, Since: since, Created: m.CreationTimestamp.Time, Protected: m.Spec.Protected})
		case !isReady && m.Spec.PowerState != v1alpha1.PowerStopped:
			joining++
		}
	}
	if gone > 0 {
		inProgress += joining // the machine that takes its place
	}
	check := plan.HealthCheckOf(g)
	name, why := plan.SelectUnhealthy(check, unhealthy, gone, inProgress, r.now())
	if name != "" {
		message := fmt.Sprintf("replacing Machine %s of pool %s: its node has been unhealthy for longer than %s", name, g.Pool, check.Timeout)
		if err := r.markReplaced(ctx, c, c.observed.machines[name], v1alpha1.ReplaceUnhealthy, message); err != nil {
			return "", err
		}
		replaced = append(replaced, name)
	}
	return plan.DescribeUnhealthy(g.Pool, replaced, len(unhealthy), why), nil
}

// replaceOutdated begins to replace machines whose template or provider is not that of their pool, and
// that are not resized in place, as many as the rollout of the pool permits. It runs while the whole cluster is Ready, and returns a
// WaitError until every machine is replaced.
func (r *replacer) replaceOutdated(ctx context.Context, c *cluster) error {
	all := c.outdated()
	outdated := all.Replaced
	if len(outdated) == 0 || plan.IsUpgradePaused(c.KubernetesCluster) {
		return nil
	}
	inProgress := false
	for _, g := range c.plan.Groups {
		present := plan.PoolMachines(c.observed.machines, g.Pool, plan.NamePrefix(c.Name, g.Pool), c.observed.isWorking)
		for _, name := range plan.SelectOutdated(present, g.Rollout, outdated) {
			message := fmt.Sprintf("replacing Machine %s of pool %s: it has %s", name, g.Pool, outdated[name])
			if err := r.markReplaced(ctx, c, c.observed.machines[name], v1alpha1.ReplaceOutdated, message); err != nil {
				return err
			}
		}
		inProgress = inProgress || slices.ContainsFunc(present, func(s plan.PoolMachine) bool { return !s.Protected && outdated[s.Name()] != "" })
		if inProgress {
			break // one group after the other
		}
	}
	if !inProgress {
		return nil // only protected machines are left, and MachinesCurrent names them
	}
	return reconcile.WaitError{Reason: "ReplacingMachines", Message: "replacing machines: " + all.Describe(), Requeue: true}
}

// markReplaced records on a Machine that it is replaced, and in an Event why. Later deliveries create
// its replacement, and then remove it. It returns a conflict if the spec is not current: ConfigMaps with patches and MachineClasses
// are read after it, so that they may have changes that a user made only after spec.upgrade.paused.
func (r *replacer) markReplaced(ctx context.Context, c *cluster, m *v1alpha1.Machine, reason v1alpha1.ReplaceReason, message string) error {
	if err := r.kube.CheckSpecCurrent(ctx, c.KubernetesCluster); err != nil {
		return err
	}
	before := m.DeepCopy()
	metav1.SetMetaDataAnnotation(&m.ObjectMeta, v1alpha1.AnnotationReplace, string(reason))
	if _, err := r.kube.Patch(ctx, before, m); err != nil {
		return err
	}
	r.kube.RecordEvent(ctx, c.KubernetesCluster, reason == v1alpha1.ReplaceUnhealthy, "ReplacingMachines", message)
	return nil
}

// cancelObsoleteReplacements takes back the replacement of machines that fit their pools again, or that are resized
// in place now, because a user has changed the spec before their removal has begun.
func (r *replacer) cancelObsoleteReplacements(ctx context.Context, c *cluster) error {
	outdated := c.outdated().Replaced
	changed := false
	for name, m := range c.observed.machines {
		if m.Annotations[v1alpha1.AnnotationReplace] != string(v1alpha1.ReplaceOutdated) || plan.IsLeaving(m) || outdated[name] != "" {
			continue
		}
		before := m.DeepCopy()
		delete(m.Annotations, v1alpha1.AnnotationReplace)
		if _, err := r.kube.Patch(ctx, before, m); err != nil {
			return err
		}
		changed = true
	}
	if !changed {
		return nil
	}
	return r.planner.makePlan(ctx, c)
}
