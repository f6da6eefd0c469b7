package main

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"
	"sync"

	"golang.org/x/sync/errgroup"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/vitistack/stack/apis/cluster/plan"
	"github.com/vitistack/stack/apis/v1alpha1"
	"github.com/vitistack/stack/functions/bootstrap-talos/talos"
	"github.com/vitistack/stack/functions/internal/kube"
	"github.com/vitistack/stack/functions/internal/reconcile"
)

// nodeConfigurator provides nodes with their machine configurations, and marks the Machines of nodes that
// run them.
type nodeConfigurator struct {
	kube    *kube.Client
	secrets *secretStore
	claims  *configClaims
}

// unconfiguredMembers returns the members whose Machines have addresses and whose nodes have not
// been seen with their configurations. A running control plane grows by one member at a time,
// and by none while another one leaves.
func (c *cluster) unconfiguredMembers() []plan.Member {
	busy := c.Status.Version != "" && c.isControlPlaneChanging()
	var found []plan.Member
	for _, m := range c.plan.Members {
		machine := c.observed.machines[m.Name]
		if !plan.HasAddress(machine) || plan.IsInstalled(machine) {
			continue
		}
		if m.Role == v1alpha1.RoleControlPlane && c.Status.Version != "" {
			if busy && !plan.HasMachineConfig(machine) {
				continue
			}
			busy = true
		}
		found = append(found, m)
	}
	return found
}

// isControlPlaneChanging reports whether a control plane is joining or leaving, by what the
// status says of the nodes.
func (c *cluster) isControlPlaneChanging() bool {
	if c.Status.Removing != "" {
		return true
	}
	for name, m := range c.observed.machines {
		if plan.PoolOf(m) != v1alpha1.ControlPlanePool || !(plan.IsInstalled(m) || plan.HasMachineConfig(m)) {
			continue
		}
		ready := slices.ContainsFunc(c.Status.Nodes, func(n v1alpha1.NodeStatus) bool { return n.Name == name && n.State == "Ready" })
		if plan.IsHeldByEtcd(m) {
			continue // etcd needs another member before this one can leave
		}
		if plan.IsLeaving(m) || ((plan.IsRunning(m) || !plan.IsInstalled(m)) && !ready && !plan.IsMarked(m)) {
			return true
		}
	}
	return false
}

// membersWithoutConfig returns the members whose configurations have to be provided, also those
// that create-vm does not find.
func (c *cluster) membersWithoutConfig(members []plan.Member) []plan.Member {
	var found []plan.Member
	for _, m := range members {
		machine := c.observed.machines[m.Name]
		if !plan.HasMachineConfig(machine) || (c.polls && plan.ReadyReason(machine) == plan.ReasonWaitingForMachineConfig) {
			found = append(found, m)
		}
	}
	return found
}

// configureNode does the next step of a node without its configuration: it provides that, waits
// until the machine has started with it, and marks the Machine when the node shows a certificate
// of the cluster. It returns the state of the node, if it has probed it.
func (n *nodeConfigurator) configureNode(ctx context.Context, c *cluster, m *v1alpha1.Machine, config []byte) (talos.State, error) {
	hasPlace := m.MachineConfigSecret() != "" // the talos-operator sends a configuration to the node instead
	if config != nil && hasPlace {
		if err := n.provideConfig(ctx, c, m, config); err != nil {
			n.claims.release(m.UID)
			return "", err
		}
	}
	if !plan.IsRunning(m) {
		return "", reconcile.WaitError{Reason: reasonWaitingForMachines, Message: "waiting for machine " + m.Name + plan.NotReadySuffix(m)}
	}
	state, shown := talos.Probe(ctx, plan.Address(m), c.connections.credentials)
	switch state {
	case talos.Configured:
		return state, n.markInstalled(ctx, m)
	case talos.Foreign:
		return state, reconcile.UserError{Reason: "ForeignNode", Message: fmt.Sprintf(
			"the node at %s has a configuration of another cluster: reset it, or delete Machine %s", plan.Address(m), m.Name)}
	case talos.ClockSkewed:
		return state, clockSkewError(m)
	case talos.Maintenance:
		if !hasPlace {
			return state, reconcile.UserError{Reason: "MachineOutdated", Message: fmt.Sprintf("Machine %s was created by an earlier version, without a Secret for a machine configuration: delete it, and the cluster creates a replacement", m.Name)}
		}
		return state, n.restartWithConfig(ctx, m, shown)
	default:
		return state, reconcile.WaitError{Reason: "WaitingForNode", Message: fmt.Sprintf("waiting for node %s to answer", m.Name), Requeue: true}
	}
}

// markInstalled marks the Machine of a node that has its configuration. create-vm then removes
// the configuration from the hypervisor and deletes its Secret.
func (n *nodeConfigurator) markInstalled(ctx context.Context, m *v1alpha1.Machine) error {
	before := m.DeepCopy()
	metav1.SetMetaDataAnnotation(&m.ObjectMeta, v1alpha1.AnnotationInstalled, "true")
	delete(m.Annotations, v1alpha1.AnnotationMachineConfig)
	if _, err := n.kube.Patch(ctx, before, m); err != nil && !kube.NotFound(err) && !kube.Conflict(err) {
		return err
	}
	return nil
}

// restartWithConfig restarts a machine that has started without its configuration, once the
// hypervisor has it: Talos reads its seed at each start. It restarts once for each Secret. A
// node that is another machine is a UserError.
func (n *nodeConfigurator) restartWithConfig(ctx context.Context, m *v1alpha1.Machine, shown talos.Fingerprint) error {
	nc := &v1alpha1.NetworkConfiguration{}
	if err := n.kube.Get(ctx, m.Namespace, m.Name, nc); err != nil && !kube.NotFound(err) {
		return err
	}
	if err := checkIdentity(ctx, m, talos.MACsOf(nc), shown); errors.As(err, new(reconcile.UserError)) {
		return err
	} else if err != nil {
		return reconcile.WaitError{Reason: "WaitingForNode", Message: fmt.Sprintf("waiting for node %s to answer", m.Name), Requeue: true}
	}
	if !m.HoldsMachineConfig() {
		return reconcile.WaitError{Reason: reasonWaitingForMachines, Message: fmt.Sprintf("waiting until the hypervisor of machine %s has its machine configuration", m.Name)}
	}
	secret := &corev1.Secret{}
	if err := n.kube.Get(ctx, m.Namespace, m.MachineConfigSecret(), secret); err != nil {
		return err
	}
	token := "machine-config-" + string(secret.UID)
	switch {
	case m.Spec.RestartToken != token:
		before := m.DeepCopy()
		m.Spec.RestartToken = token
		if _, err := n.kube.Patch(ctx, before, m); err != nil {
			return err
		}
		fallthrough
	case m.Status.RestartToken != token:
		return reconcile.WaitError{Reason: "WaitingForNode", Message: fmt.Sprintf("waiting for machine %s to restart with its machine configuration", m.Name)}
	default:
		return reconcile.WaitError{Reason: "WaitingForNode", Requeue: true, Message: fmt.Sprintf(
			"waiting for node %s to start with its machine configuration; if it stays in maintenance mode, look at the console of the virtual machine, or delete Machine %s", m.Name, m.Name)}
	}
}

// checkIdentity returns a UserError if a node in maintenance mode is another machine.
func checkIdentity(ctx context.Context, m *v1alpha1.Machine, macs []string, pinned talos.Fingerprint) error {
	id, err := talos.Identify(ctx, plan.Address(m), pinned)
	if err != nil {
		return err
	}
	if !id.Matches(string(m.UID), macs) {
		return reconcile.UserError{Reason: "WrongNode", Message: fmt.Sprintf(
			"the node at %s has %s, but Machine %s has UID %s and MAC addresses %s: two machines may have one address",
			plan.Address(m), id, m.Name, m.UID, strings.Join(macs, ", "))}
	}
	return nil
}

// configureNodes does the next step for each member whose node has not been seen with its
// configuration, some at the same time.
func (n *nodeConfigurator) configureNodes(ctx context.Context, c *cluster) error {
	var mu sync.Mutex
	var problems []error
	var group errgroup.Group
	group.SetLimit(plan.MaxConcurrentNodes)
	left := slices.DeleteFunc(slices.Clone(c.observed.unconfigured), func(m plan.Member) bool { return c.observed.nodeStates[m.Name] == talos.Configured })
	missing := maps.Clone(c.observed.configs)
	for _, m := range left {
		group.Go(func() error {
			machine := c.observed.machines[m.Name]
			state, err := n.configureNode(ctx, c, machine, missing[m.Name])
			mu.Lock()
			defer mu.Unlock()
			if plan.HasMachineConfig(machine) {
				delete(c.observed.configs, m.Name) // provide it once: another delivery may withdraw it before the next attempt
			}
			if state != "" {
				c.observed.nodeStates[m.Name] = state
			}
			if err != nil {
				problems = append(problems, err)
			}
			return nil
		})
	}
	_ = group.Wait()
	return reconcile.MostUrgent(problems...)
}

// clockSkewError is the UserError for a node whose certificate is not valid now.
func clockSkewError(m *v1alpha1.Machine) reconcile.UserError {
	return reconcile.UserError{Reason: "ClockSkew", Message: fmt.Sprintf(
		"node %s at %s is of this cluster, but its certificate is not valid at this time: let the node, or its hypervisor, reach a time server", m.Name, plan.Address(m))}
}
