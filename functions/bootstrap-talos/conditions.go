package main

import (
	"errors"
	"fmt"

	"github.com/vitistack/stack/apis/cluster/plan"
	"github.com/vitistack/stack/apis/v1alpha1"
	"github.com/vitistack/stack/functions/bootstrap-talos/talos"
	"github.com/vitistack/stack/functions/internal/kube"
	"github.com/vitistack/stack/functions/internal/reconcile"
)

// setConditions writes the conditions in the order of the phases, up to the one that the cluster
// has reached.
func setConditions(c *cluster, err error) {
	set := func(condition string, ok bool, reason, message string) {
		if problem, noted := c.report.userErrorOf(condition); noted {
			ok, reason, message = false, problem.Reason, problem.Message
		}
		kube.SetCondition(&c.Status.Conditions, c.Generation, condition, ok, reason, message)
	}
	var problem reconcile.UserError
	if errors.As(err, &problem) && len(c.plan.Members) == 0 {
		set(v1alpha1.ConditionTopologyValid, false, problem.Reason, problem.Message)
		return
	}
	if len(c.plan.Members) == 0 {
		return
	}
	set(v1alpha1.ConditionTopologyValid, true, "TopologyValid", fmt.Sprintf("Kubernetes %s on Talos %s", c.plan.Kubernetes, c.plan.Talos))
	if a := c.Status.Approval; a != nil {
		setApprovalCondition(&c.Status.Conditions, a, set)
	}
	if c.report.approval != nil && errors.Is(err, c.report.approval) && !c.report.machinesCreated {
		return
	}
	if _, noted := c.report.userErrorOf(v1alpha1.ConditionNetworkAvailable); c.observed.network == "" && !noted {
		if problem.Reason != "" {
			set(v1alpha1.ConditionNetworkAvailable, false, problem.Reason, problem.Message)
		}
		return
	}
	set(v1alpha1.ConditionNetworkAvailable, true, "NetworkAvailable", "the machines are in NetworkNamespace "+c.observed.network)
	if !c.report.machinesCreated {
		if problem.Reason != "" {
			set(v1alpha1.ConditionMachinesCreated, false, problem.Reason, problem.Message)
		}
		return
	}
	set(v1alpha1.ConditionMachinesCreated, true, "MachinesCreated", plan.Plural(len(c.observed.machines), "machine"))
	setCredentialsCondition(c, problem, set)
	setMemberConditions(c, set)
	setReportedConditions(c, set)
}

// setCredentialsCondition writes whether the keys are created. The condition stays if the
// delivery has not reached the keys.
func setCredentialsCondition(c *cluster, problem reconcile.UserError, set func(conditionType string, isTrue bool, reason, message string)) {
	_, begun := conditionSince(c.KubernetesCluster, conditionCredentials, reasonGenerating)
	switch {
	case c.report.keysCreated:
		set(conditionCredentials, true, "CredentialsCreated", "the cluster keys are generated")
	case problem.Reason != "":
		set(conditionCredentials, false, problem.Reason, problem.Message)
	case !begun && !isTrue(c.KubernetesCluster, conditionCredentials):
		set(conditionCredentials, false, reasonGenerating, c.keyGenerationMessage())
	}
}

// setMemberConditions writes the conditions that count machines and nodes.
func setMemberConditions(c *cluster, set func(conditionType string, isTrue bool, reason, message string)) {
	var up, configured, ready int
	for _, m := range c.plan.Members {
		machine := c.observed.machines[m.Name]
		if plan.IsRunning(machine) {
			up++
		}
		if machine != nil && stateOf(c, machine) == string(talos.Configured) {
			configured++
		}
		if n, _ := c.observed.node(m.Name); n.Ready {
			ready++
		}
	}
	total := len(c.plan.Members)
	setCount := func(conditionType string, n int, noun, waiting string) {
		reason := conditionType
		if n != total {
			reason = waiting
		}
		set(conditionType, n == total, reason, fmt.Sprintf("%d of %s", n, plan.Plural(total, noun)))
	}
	setCount(v1alpha1.ConditionMachinesRunning, up, "machine", reasonWaitingForMachines)
	setCount(v1alpha1.ConditionConfigApplied, configured, "node", "WaitingForNodes")
	if c.report.bootstrapped {
		set(v1alpha1.ConditionBootstrapped, true, "Bootstrapped", "etcd is bootstrapped on "+c.Status.BootstrapMachine)
	}
	switch {
	case !c.report.bootstrapped || !c.observed.apiAnswers:
	case c.report.etcd != "":
		set(v1alpha1.ConditionEtcdHealthy, true, "EtcdHealthy", c.report.etcd)
	default:
		set(v1alpha1.ConditionEtcdHealthy, false, "WaitingForEtcd", "not every control plane is known to be a member that votes")
	}
	if c.observed.apiAnswers {
		setCount(v1alpha1.ConditionNodesReady, ready, "node", "WaitingForNodes")
	}
}

// setReportedConditions writes the conditions that this delivery has reported. Others stay.
func setReportedConditions(c *cluster, set func(conditionType string, isTrue bool, reason, message string)) {
	machines := conditionReport{}
	if c.report.bootstrapped {
		r := plan.ReportMachines(c.KubernetesCluster, c.outdated(), c.observed.machines)
		machines = conditionReport{current: r.IsCurrent, reason: r.Reason, message: r.Message}
	}
	for _, of := range []struct {
		condition string
		conditionReport
	}{
		{v1alpha1.ConditionAddonsApplied, c.report.addons},
		{v1alpha1.ConditionAuthoritiesRotated, c.report.authorities},
		{v1alpha1.ConditionConfigCurrent, c.report.config},
		{v1alpha1.ConditionMachinesCurrent, machines},
		{v1alpha1.ConditionMachinesHealthy, c.report.health},
		{v1alpha1.ConditionVersionsCurrent, c.report.versions},
	} {
		if of.reason != "" {
			set(of.condition, of.current, of.reason, of.message)
		}
	}
}

// keyGenerationMessage names the event whose delivery generates the keys.
func (c *cluster) keyGenerationMessage() string {
	return "the cluster keys are being generated for event " + c.eventID
}

// stateOf returns the state of a node that the workload API does not list.
func stateOf(c *cluster, m *v1alpha1.Machine) string {
	if state, probed := c.observed.nodeStates[m.Name]; probed {
		return string(state)
	}
	if plan.IsInstalled(m) {
		return string(talos.Configured)
	}
	return "Waiting"
}

// A condition that only this function has, and reasons.
const (
	conditionCredentials = "CredentialsCreated"
	reasonGenerating     = "Generating"
	// reasonWaitingForMachines is of a cluster whose machines get addresses, are created or start.
	reasonWaitingForMachines = "WaitingForMachines"
	reasonPaused             = "Paused"
	reasonPausedByAnnotation = "PausedByAnnotation"
	reasonRunning            = "ClusterRunning"
	reasonWaitingForAPI      = "WaitingForAPI"
	reasonUnreachable        = "ClusterUnreachable"
)
