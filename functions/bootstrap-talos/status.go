package main

import (
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/vitistack/stack/apis/v1alpha1"
	"github.com/vitistack/stack/functions/internal/kube"
)

// conditionCredentials tells whether the keys of a cluster are made.
const (
	conditionCredentials = "CredentialsCreated"
	reasonGenerating     = "Generating"
	reasonRunning        = "ClusterRunning"
)

// story is what people are told about a decision.
type story struct {
	reason, message string
	warning         bool
	// news is whether it has not been told before.
	news bool
}

// summarise writes into the status how far the cluster has come, and what stops
// it:
//
//	err     has been Running  phase         Ready
//	held    any               PendingApproval  False  its reason
//	nil     any               Running       True   ClusterRunning
//	fault   no                Pending, or   False  its reason
//	                          Provisioning
//	waits   no                Provisioning  False  its reason
//	fault   yes               Running       False  its reason
//	waits   yes               Updating      False  its reason
//	other   any               as before     False  Retrying
//
// After any other error all that the delivery has not seen stays as it was last seen.
//
// A user's mistake that has not stopped the delivery keeps Ready False with its reason,
// whatever err is.
func summarise(c *cluster, err error) story {
	s := &c.Status
	s.ObservedGeneration = c.Generation
	s.NextCheckTime = nil
	if isRotating(c.KubernetesCluster) {
		s.NextCheckTime = s.Authorities.Since // a cluster that is Ready goes on too
	}
	if !unexpected(c, err) {
		describeConditions(c, err)
		describeNodes(c)
	}
	told := describeProgress(c, err)
	if len(c.faults) == 0 {
		return tell(c, told.reason, told.message, told.warning)
	}
	first := c.faults[0].fault
	if told.reason != reasonRunning && told.reason != first.reason {
		first.message += "; meanwhile the cluster is kept as it was: " + told.message
	}
	return tell(c, first.reason, first.message, true)
}

// unexpected tells whether err is neither a mistake of users nor something that is
// waited for, but a request that failed.
func unexpected(c *cluster, err error) bool {
	return err != nil && !errors.As(err, new(fault)) && !errors.As(err, new(waits)) && !(c.held != nil && errors.Is(err, c.held))
}

// describeProgress writes the phase, and returns what Ready says of err.
func describeProgress(c *cluster, err error) story {
	s := &c.Status
	var w waits
	var flt fault
	switch {
	case c.held != nil && errors.Is(err, c.held):
		s.Phase = v1alpha1.ClusterPendingApproval
		if errors.As(err, &flt) {
			return story{reason: flt.reason, message: flt.message, warning: true}
		}
		_ = errors.As(err, &w)
		return story{reason: w.reason, message: w.message}
	case err == nil:
		s.Phase = v1alpha1.ClusterRunning
		s.Secrets = &v1alpha1.ClusterSecrets{Kubeconfig: secretName(c.KubernetesCluster, kubeconfigSecret), Talosconfig: secretName(c.KubernetesCluster, talosconfigSecret)}
		return story{reason: reasonRunning, message: "every node is Ready"}
	case errors.As(err, &flt):
		if s.Phase == "" || s.Phase == v1alpha1.ClusterPendingApproval {
			s.Phase = v1alpha1.ClusterPending
		}
		return story{reason: flt.reason, message: flt.message, warning: true}
	case errors.As(err, &w):
		s.Phase = v1alpha1.ClusterProvisioning
		if s.Version != "" {
			s.Phase = v1alpha1.ClusterUpdating
		}
		return story{reason: w.reason, message: w.message}
	default:
		if s.Phase == "" {
			s.Phase = v1alpha1.ClusterPending
		}
		return story{reason: "Retrying", message: "something did not answer as it should, and is asked again; the log of bootstrap-talos says what"}
	}
}

func tell(c *cluster, reason, message string, warning bool) story {
	c.Status.Message = message
	news := kube.SetReady(&c.Status.Conditions, c.Generation, reason == reasonRunning, reason, message)
	return story{reason: reason, message: message, warning: warning, news: news}
}

// describeConditions writes the conditions in the order of a cluster's life, up to
// where it has come.
func describeConditions(c *cluster, err error) {
	set := func(condition string, ok bool, reason, message string) {
		if flt, noted := c.faultOf(condition); noted {
			ok, reason, message = false, flt.reason, flt.message
		}
		kube.SetCondition(&c.Status.Conditions, c.Generation, condition, ok, reason, message)
	}
	var flt fault
	if errors.As(err, &flt) && len(c.plan.members) == 0 {
		set(v1alpha1.ConditionTopologyValid, false, flt.reason, flt.message)
		return
	}
	if len(c.plan.members) == 0 {
		return
	}
	set(v1alpha1.ConditionTopologyValid, true, "TopologyValid", fmt.Sprintf("Kubernetes %s on Talos %s", c.plan.kubernetes, c.plan.talos))
	if a := c.Status.Approval; a != nil {
		describeApproval(a, set)
	}
	if c.held != nil && errors.Is(err, c.held) && !c.created {
		return
	}
	if _, noted := c.faultOf(v1alpha1.ConditionNetworkAvailable); c.network == "" && !noted {
		if flt.reason != "" {
			set(v1alpha1.ConditionNetworkAvailable, false, flt.reason, flt.message)
		}
		return
	}
	set(v1alpha1.ConditionNetworkAvailable, true, "NetworkAvailable", "the machines are in NetworkNamespace "+c.network)
	if !c.created {
		if flt.reason != "" {
			set(v1alpha1.ConditionMachinesCreated, false, flt.reason, flt.message)
		}
		return
	}
	set(v1alpha1.ConditionMachinesCreated, true, "MachinesCreated", count(len(c.machines), "machine"))
	describeCredentials(c, flt, set)
	describeMembers(c, set)
}

// describeCredentials writes whether the keys are made. Keys that a delivery has not come to
// stay as they were last seen.
func describeCredentials(c *cluster, flt fault, set func(condition string, ok bool, reason, message string)) {
	_, begun := conditionSince(c.KubernetesCluster, conditionCredentials, reasonGenerating)
	switch {
	case c.credentials:
		set(conditionCredentials, true, "CredentialsCreated", "the cluster's keys are made")
	case flt.reason != "":
		set(conditionCredentials, false, flt.reason, flt.message)
	case !begun && !isTrue(c.KubernetesCluster, conditionCredentials):
		set(conditionCredentials, false, reasonGenerating, c.making())
	}
}

// describeMembers writes the conditions that count machines and nodes.
func describeMembers(c *cluster, set func(condition string, ok bool, reason, message string)) {
	var up, configured, ready int
	for _, m := range c.plan.members {
		machine := c.machines[m.name]
		if running(machine) {
			up++
		}
		if machine != nil && stateOf(c, machine) == string(stateOurs) {
			configured++
		}
		if slices.ContainsFunc(c.nodes, func(n workloadNode) bool { return n.name == m.name && n.ready }) {
			ready++
		}
	}
	total := len(c.plan.members)
	set(v1alpha1.ConditionMachinesRunning, up == total, pick(up == total, "MachinesRunning", "WaitingForMachines"), fmt.Sprintf("%d of %s", up, count(total, "machine")))
	set(v1alpha1.ConditionConfigApplied, configured == total, pick(configured == total, "ConfigApplied", "WaitingForNodes"), fmt.Sprintf("%d of %s", configured, count(total, "node")))
	if c.bootstrapped {
		set(v1alpha1.ConditionBootstrapped, true, "Bootstrapped", "etcd has begun on "+c.Status.BootstrapMachine)
	}
	if c.versions.reason != "" {
		defer set(v1alpha1.ConditionVersionsCurrent, c.versions.current, c.versions.reason, c.versions.message)
	}
	if c.config.reason != "" {
		defer set(v1alpha1.ConditionConfigCurrent, c.config.current, c.config.reason, c.config.message)
	}
	if c.authorities.reason != "" {
		defer set(v1alpha1.ConditionAuthoritiesRotated, c.authorities.current, c.authorities.reason, c.authorities.message)
	}
	if c.bootstrapped && c.reachable {
		set(v1alpha1.ConditionEtcdHealthy, c.etcd != "", pick(c.etcd != "", "EtcdHealthy", "WaitingForEtcd"), pick(c.etcd != "", c.etcd, "not every control plane is known to be a member that votes"))
	}
	if c.reachable {
		set(v1alpha1.ConditionNodesReady, ready == total, pick(ready == total, "NodesReady", "WaitingForNodes"), fmt.Sprintf("%d of %s", ready, count(total, "node")))
	}
}

func pick[T any](ok bool, yes, no T) T {
	if ok {
		return yes
	}
	return no
}

// describeNodes writes each node with its state, and counts them.
func describeNodes(c *cluster) {
	if len(c.plan.members) == 0 {
		return
	}
	s := &c.Status
	s.Nodes, s.Pools = nil, nil
	ready := map[string]int32{}
	for _, m := range c.plan.members {
		n := v1alpha1.NodeStatus{Name: m.name, Role: m.role, State: "Waiting"}
		if machine := c.machines[m.name]; machine != nil {
			n.State, n.Address = stateOf(c, machine), firstAddress(machine)
		}
		i := slices.IndexFunc(c.nodes, func(w workloadNode) bool { return w.name == m.name })
		if i >= 0 {
			n.Version, n.TalosVersion = c.nodes[i].version, c.nodes[i].talos
			n.State = pick(c.nodes[i].ready, "Ready", pick(c.upgrading(m.name), "Upgrading", "NotReady"))
		}
		if n.State == "Ready" {
			ready[m.pool]++
		}
		s.Nodes = append(s.Nodes, n)
	}
	slices.SortFunc(s.Nodes, func(a, b v1alpha1.NodeStatus) int { return strings.Compare(a.Name, b.Name) })
	workers := int32(0)
	for _, g := range c.plan.groups {
		if g.role == v1alpha1.RoleWorker {
			s.Pools = append(s.Pools, v1alpha1.PoolStatus{Name: g.pool, Replicas: int32(g.replicas), ReadyReplicas: ready[g.pool]})
			workers += ready[g.pool]
		}
	}
	describeScale(c)
	s.ControlPlaneReady = fmt.Sprintf("%d/%d", ready[controlPlanePool], c.plan.count(v1alpha1.RoleControlPlane))
	s.WorkersReady = fmt.Sprintf("%d/%d", workers, c.plan.count(v1alpha1.RoleWorker))
}

// stateOf is what is known of a node before it is seen in the workload API.
func stateOf(c *cluster, m *v1alpha1.Machine) string {
	if state, probed := c.states[m.Name]; probed {
		return string(state)
	}
	return pick(installed(m), string(stateOurs), "Waiting")
}

func firstAddress(m *v1alpha1.Machine) string {
	if len(m.Status.IPAddresses) == 0 {
		return ""
	}
	return addressOf(m)
}

// whyNotReady is what a machine itself says about what it waits for.
func whyNotReady(m *v1alpha1.Machine) string {
	c := meta.FindStatusCondition(m.Status.Conditions, v1alpha1.ConditionReady)
	if c == nil || c.Status == metav1.ConditionTrue {
		return ""
	}
	return ": " + c.Message
}

func count(n int, noun string) string {
	if n == 1 {
		return "1 " + noun
	}
	return fmt.Sprintf("%d %ss", n, noun)
}

func isTrue(kc *v1alpha1.KubernetesCluster, condition string) bool {
	return meta.IsStatusConditionTrue(kc.Status.Conditions, condition)
}

// conditionSince is since when a condition has had a reason.
func conditionSince(kc *v1alpha1.KubernetesCluster, condition, reason string) (time.Time, bool) {
	c := meta.FindStatusCondition(kc.Status.Conditions, condition)
	if c == nil || c.Reason != reason {
		return time.Time{}, false
	}
	return c.LastTransitionTime.Time, true
}
