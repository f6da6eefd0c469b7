package main

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/vitistack/stack/apis/cluster/plan"
	"github.com/vitistack/stack/apis/v1alpha1"
	"github.com/vitistack/stack/functions/bootstrap-talos/manifests"
	"github.com/vitistack/stack/functions/bootstrap-talos/talos"
	"github.com/vitistack/stack/functions/internal/kube"
	"github.com/vitistack/stack/functions/internal/reconcile"
)

// configUpdater has nodes run their rendered configurations after a change.
type configUpdater struct {
	kube      *kube.Client
	renderer  *configRenderer
	manifests *manifests.Store
	secrets   *secretStore
	status    *statusWriter
	now       func() time.Time
}

// updateConfigs has every node run its rendered configuration: without a reboot if Talos can,
// and otherwise as spec.talos.configChanges says. It reports the condition ConfigCurrent.
// Because it runs only while all nodes are Ready, they reboot one after the other. A control plane is
// changed once the others run what Talos has rendered from their configurations. ConfigCurrent is False until all do, and
// workers are changed after that, so that no later outcome replaces what the next delivery learns from ConfigCurrent.
func (u *configUpdater) updateConfigs(ctx context.Context, c *cluster) error {
	configs, files, err := u.renderer.renderConfigs(ctx, c, c.plan.Members)
	if err != nil {
		return err
	}
	if err := u.renderer.findNodeConfigs(ctx, c); err != nil {
		return err
	}
	save := sync.OnceValue(func() error { return u.manifests.Save(ctx, c.KubernetesCluster, files) })
	c.report.config = conditionReport{true, "ConfigCurrent", "every node runs its rendered configuration" + c.patchesRead()}
	_, restarting := conditionSince(c.KubernetesCluster, v1alpha1.ConditionConfigCurrent, reasonChangingNodes)
	var controlPlanes, workers []plan.Member
	for _, m := range c.plan.Members {
		switch machine := c.observed.machines[m.Name]; {
		case !plan.IsRunning(machine) || !plan.IsInstalled(machine):
		case m.Role == v1alpha1.RoleControlPlane:
			controlPlanes = append(controlPlanes, m)
		default:
			workers = append(workers, m)
		}
	}
	err = u.updateEach(ctx, c, controlPlanes, configs, save)
	if err == nil && (restarting || c.observed.controlPlaneChanged) {
		err = reportRestarting(c, awaitStaticPods(ctx, c, controlPlanes...))
	}
	if err == nil {
		err = u.updateEach(ctx, c, workers, configs, save)
	}
	return err
}

// updateEach has nodes run their configurations, until one of them reboots or does not answer. It continues after a control
// plane that waits for another one, because a node that follows may be the one that has to change first.
func (u *configUpdater) updateEach(ctx context.Context, c *cluster, members []plan.Member, configs map[string][]byte, save func() error) error {
	var waiting error
	for _, m := range members {
		isNext, err := u.updateConfig(ctx, c, m, configs[m.Name], save)
		if err != nil && isNext {
			waiting = err
			break
		}
		waiting = cmp.Or(waiting, err)
	}
	if waiting != nil && c.report.config.current {
		c.report.config = conditionReport{} // not every node has been compared
	}
	return waiting
}

// updateConfig has the node of a member run its configuration, and reports in ConfigCurrent what is left. isNext is false
// if another control plane has to run its configuration before.
func (u *configUpdater) updateConfig(ctx context.Context, c *cluster, m plan.Member, config []byte, save func() error) (isNext bool, err error) {
	machine := c.observed.machines[m.Name]
	isControlPlane := m.Role == v1alpha1.RoleControlPlane
	var refused error
	allow := func() error {
		if isControlPlane {
			refused = reportRestarting(c, awaitOtherControlPlanes(ctx, c, m))
		}
		if refused == nil { // a change of the spec may have been taken back, and nodes have rebooted for that already
			refused = u.kube.CheckSpecCurrent(ctx, c.KubernetesCluster)
		}
		if refused == nil {
			refused = save()
		}
		if refused == nil && isControlPlane {
			refused = u.recordChange(ctx, c)
		}
		return refused
	}
	result, err := talos.UpdateConfig(ctx, plan.Address(machine), c.connections.credentials, config, plan.ConfigChangesOf(c.KubernetesCluster), allow)
	switch {
	case errors.As(err, new(reconcile.WaitError)):
		return false, err
	case refused != nil:
		return true, refused
	case err != nil:
		return true, reconcile.WaitError{Reason: "WaitingForNode", Message: fmt.Sprintf("waiting for node %s, to compare its configuration", m.Name), Requeue: true}
	case result.Outcome == talos.ConfigChanged && isControlPlane:
		c.observed.controlPlaneChanged = true
	}
	if err = u.recordNodeConfig(ctx, c, machine, result); err != nil {
		return true, err
	}
	switch result.Outcome {
	case talos.ConfigUnchanged, talos.ConfigChanged:
		if result.Withheld != "" && c.report.config.current {
			c.report.config = c.withheldReport(m, result.Withheld)
		}
		return true, nil
	case talos.ConfigReboots:
		err = reconcile.WaitError{Reason: reasonChangingNodes, Message: fmt.Sprintf("rebooting node %s to apply its new configuration", m.Name), Requeue: true}
	}
	c.report.config = conditionReport{false, string(result.Outcome), fmt.Sprintf("node %s: %s", m.Name, result.Difference)}
	return true, err
}

// recordChange writes into ConfigCurrent that a control plane is about to be changed. If the delivery ends before it has seen the static pods run, the
// next one learns from ConfigCurrent that it has to look at them. A second call writes nothing.
func (u *configUpdater) recordChange(ctx context.Context, c *cluster) error {
	if _, isRecorded := conditionSince(c.KubernetesCluster, v1alpha1.ConditionConfigCurrent, reasonChangingNodes); isRecorded {
		return nil
	}
	kube.SetCondition(&c.Status.Conditions, c.Generation, v1alpha1.ConditionConfigCurrent, false, reasonChangingNodes, "the control plane gets its new configuration")
	return u.status.patch(ctx, c)
}

// reportPausedConfigs reports in ConfigCurrent that nodes do not get a changed configuration, or another endpoint, while their upgrade is paused: a
// rendered configuration has the versions of the upgrade.
func reportPausedConfigs(_ context.Context, c *cluster) error {
	c.report.config = conditionReport{false, reasonUpgradePaused, "an upgrade is paused, and nodes get changes of their configuration and of the endpoint after it: set spec.upgrade.paused to false, or write the versions that they run"}
	return nil
}

// reportRestarting reports in ConfigCurrent a control plane that does not run its static pods as rendered, from which the next
// delivery learns that it has to look again. It returns err.
func reportRestarting(c *cluster, err error) error {
	var wait reconcile.WaitError
	if errors.As(err, &wait) {
		c.report.config = conditionReport{false, reasonChangingNodes, wait.Message}
	}
	return err
}

// readAgain says when a ConfigMap is read again that has been applied. Nothing watches ConfigMaps of users.
const readAgain = "are read again every ten minutes, or at once with the annotation " + v1alpha1.AnnotationReconcile

// patchesRead says when the patches of the cluster are read again. It is empty without patches.
func (c *cluster) patchesRead() string {
	if len(c.observed.patches) == 0 {
		return ""
	}
	return "; the ConfigMaps with patches " + readAgain
}

// updateConfigsEarly gives the nodes of a cluster that is not Ready the changes that need no reboot, such as the registry mirror
// that a new node may wait for, or the correction of a patch for which its kubelet or API server does not start. It does so at each
// resync, and when a user asks for it. Nodes that do not answer in time are left to the next one. During an upgrade it changes only nodes
// whose upgrade has failed. It returns only a UserError.
func (u *configUpdater) updateConfigsEarly(ctx context.Context, c *cluster) error {
	if !c.full && !kube.ReconcileRequested(c) || !c.hasPolled(ctx) || c.connections.credentials == nil {
		return nil
	}
	if c.Status.Upgrade != nil && plan.FailedNode(c.Status.Upgrade) == nil {
		return nil
	}
	members := slices.DeleteFunc(slices.Clone(c.plan.Members), func(m plan.Member) bool { return !isChangedEarly(ctx, c, m) })
	configs, files, err := u.renderer.renderConfigs(ctx, c, members)
	if err != nil {
		return err
	}
	save := sync.OnceValue(func() error { return u.manifests.Save(ctx, c.KubernetesCluster, files) })
	for end := u.now().Add(nodePollTime); len(members) > 0 && u.now().Before(end); members = members[1:] {
		m := members[0]
		address := plan.Address(c.observed.machines[m.Name])
		if state, _ := talos.Probe(ctx, address, c.connections.credentials); state != talos.Configured {
			continue
		}
		config := configs[m.Name]
		if failed := plan.FailedKubernetesUpgrade(c.KubernetesCluster, m.Name); failed != nil {
			if config, err = talos.WithUpgrade(ctx, address, c.connections.credentials, config, c.Status.Upgrade.Kind, failed.To); err != nil {
				continue
			}
		}
		result, err := talos.UpdateConfig(ctx, address, c.connections.credentials, config, v1alpha1.ConfigNoReboot, save)
		if err == nil && result.Outcome == talos.ConfigNeedsReboot {
			c.report.config = conditionReport{false, string(result.Outcome), fmt.Sprintf("node %s: %s", m.Name, result.Difference)}
		}
	}
	return nil
}

// isChangedEarly reports whether updateConfigsEarly changes the node of a member: each node of a cluster that has never been
// Running, and afterwards one that its configuration may keep from being Ready. A rotation, an upgrade that has not failed and a
// change of size give their nodes configurations themselves.
func isChangedEarly(ctx context.Context, c *cluster, m plan.Member) bool {
	machine := c.observed.machines[m.Name]
	if !plan.IsRunning(machine) || !plan.IsInstalled(machine) {
		return false
	}
	if c.Status.Version == "" {
		return true
	}
	if c.observed.keys.Next != nil || plan.IsNodeResizing(c.KubernetesCluster, m.Name) {
		return false
	}
	node, _ := c.observed.node(m.Name)
	isNotReady := c.observed.apiAnswers && !node.Ready
	if c.Status.Upgrade != nil {
		return plan.FailedKubernetesUpgrade(c.KubernetesCluster, m.Name) != nil && (isNotReady || isAPIServerDown(ctx, c, m))
	}
	if !c.observed.apiAnswers {
		return isAPIServerDown(ctx, c, m)
	}
	return isNotReady && strings.TrimPrefix(node.Version, "v") == m.Version // a change of the version is an upgrade
}

// isAPIServerDown reports whether a member is a control plane whose API server does not answer.
func isAPIServerDown(ctx context.Context, c *cluster, m plan.Member) bool {
	return m.Role == v1alpha1.RoleControlPlane && c.connections.workload != nil && checkAPIServer(ctx, c, m.Name) != nil
}
