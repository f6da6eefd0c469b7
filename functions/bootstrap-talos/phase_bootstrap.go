package main

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/vitistack/stack/apis/cluster/plan"
	"github.com/vitistack/stack/apis/v1alpha1"
	"github.com/vitistack/stack/functions/bootstrap-talos/talos"
	"github.com/vitistack/stack/functions/internal/reconcile"
)

// bootstrapper bootstraps the etcd of clusters.
type bootstrapper struct {
	status *statusWriter
	now    func() time.Time
}

// ensure bootstraps etcd on one control plane, which is recorded with its UID before the
// request: another Machine of its name would bootstrap a second etcd. The condition Bootstrapped stays
// once a control plane has answered. Before that the machine is asked each time, because it may
// have lost the request.
func (b *bootstrapper) ensure(ctx context.Context, c *cluster) error {
	begun := isTrue(c.KubernetesCluster, v1alpha1.ConditionBootstrapped)
	state := c.bootstrapState()
	if c.report.bootstrapped || (begun && (c.Status.Version != "" || state.Lost || !state.IsReady)) {
		c.report.bootstrapped = true
		return nil
	}
	if state.Lost {
		askOtherMembers(ctx, c, &state)
	}
	switch state.Next() {
	case plan.BootstrapDone:
		c.report.bootstrapped = true
		return nil
	case plan.BootstrapWait:
		if len(state.Unanswered) > 0 {
			return waitForEtcdAnswers(state.Unanswered, "since Machine "+c.Status.BootstrapMachine+", which was to bootstrap etcd, does not exist")
		}
		return waitForMachines(c)
	case plan.BootstrapChooseMachine:
		m := c.observed.machines[c.bootstrapCandidate()]
		c.Status.BootstrapMachine, c.Status.BootstrapUID, c.Status.BootstrapRequest = m.Name, m.UID, nil // written with the request
	case plan.BootstrapAskMachine:
	}
	return b.bootstrapMachine(ctx, c, c.observed.machines[c.Status.BootstrapMachine], begun)
}

// waitForEtcdAnswers returns a WaitError for control planes that may have data of etcd.
func waitForEtcdAnswers(silent []string, why string) error {
	slices.Sort(silent)
	return reconcile.WaitError{Reason: "WaitingForNode", Message: fmt.Sprintf(
		"waiting for %s to report whether it has data of etcd, %s; if it does not come back, delete Machine %s", strings.Join(silent, ", "), why, silent[0]), Requeue: true}
}

// bootstrapState returns what is known without asking nodes.
func (c *cluster) bootstrapState() plan.BootstrapState {
	b := plan.BootstrapState{Chosen: c.Status.BootstrapMachine != ""}
	m := c.observed.machines[c.Status.BootstrapMachine]
	if b.Chosen && (m == nil || (c.Status.BootstrapUID != "" && m.UID != c.Status.BootstrapUID)) {
		b.Lost = true
	}
	if b.Chosen && !b.Lost {
		b.IsReady = plan.IsRunning(m)
		return b
	}
	b.IsReady = c.bootstrapCandidate() != ""
	return b
}

// bootstrapCandidate returns the first control plane that has its configuration.
func (c *cluster) bootstrapCandidate() string {
	for _, m := range c.plan.ControlPlanes() {
		if machine := c.observed.machines[m.Name]; plan.IsRunning(machine) && plan.IsInstalled(machine) {
			return m.Name
		}
	}
	return ""
}

// askOtherMembers asks the control planes other than the chosen one whether they have data of
// etcd.
func askOtherMembers(ctx context.Context, c *cluster, b *plan.BootstrapState) {
	b.HasOtherMembers, b.Unanswered = false, nil
	for name, address := range c.observed.controlPlanes() {
		if name == c.Status.BootstrapMachine && !b.Lost {
			continue
		}
		service, err := talos.ReadEtcdService(ctx, address, c.connections.credentials)
		switch {
		case err != nil:
			b.Unanswered = append(b.Unanswered, name)
		case service.HasData():
			b.HasOtherMembers = true
		}
	}
}

// bootstrapMachine has the chosen machine bootstrap etcd, and waits until it has. begun is
// whether etcd has been seen on it before.
func (b *bootstrapper) bootstrapMachine(ctx context.Context, c *cluster, m *v1alpha1.Machine, begun bool) error {
	state, _ := talos.Probe(ctx, plan.Address(m), c.connections.credentials)
	var service plan.EtcdService
	err := errNotOurs
	if state == talos.Configured {
		service, err = talos.ReadEtcdService(ctx, plan.Address(m), c.connections.credentials)
	}
	switch {
	case err != nil && begun:
		c.report.bootstrapped = true
		return nil
	case err != nil:
		return b.waitForNode(c, m, state)
	}
	last := c.Status.BootstrapRequest
	step := plan.NextBootstrapRequest(service, last, b.now())
	if step == plan.RequestSend && (begun || last != nil) {
		var others plan.BootstrapState
		if askOtherMembers(ctx, c, &others); others.HasOtherMembers {
			step = plan.RequestDone
		} else if len(others.Unanswered) > 0 {
			return waitForEtcdAnswers(others.Unanswered, "since node "+m.Name+" has lost the bootstrap request")
		}
	}
	switch {
	case step == plan.RequestDone:
		c.report.bootstrapped, c.Status.BootstrapRequest = true, nil
		return nil
	case step == plan.RequestSend && !c.report.bootstrapSent:
		if err := b.sendRequest(ctx, c, m, service.BootID); err != nil {
			return err
		}
	case service.State != plan.EtcdPreparing:
		return reconcile.WaitError{Reason: "WaitingForNode", Message: fmt.Sprintf("waiting for node %s to be ready for etcd, which is %s", m.Name, service.State), Requeue: true}
	}
	return reconcile.WaitError{Reason: "WaitingForEtcd", Message: fmt.Sprintf("waiting for node %s to pull the image of etcd and start it", m.Name), Requeue: true}
}

var errNotOurs = errors.New("the node does not show a certificate of the cluster")

// sendRequest records a bootstrap request, and sends it once in a delivery. A request that was
// recorded for this boot and is not answered is sent without another record.
func (b *bootstrapper) sendRequest(ctx context.Context, c *cluster, m *v1alpha1.Machine, boot string) error {
	if last := c.Status.BootstrapRequest; last == nil || last.BootID != boot || last.Accepted {
		c.Status.BootstrapRequest = &v1alpha1.BootstrapRequest{Time: metav1.NewTime(b.now()), BootID: boot}
		if err := b.status.patch(ctx, c); err != nil {
			return err
		}
	}
	c.report.bootstrapSent = true
	if err := talos.Bootstrap(ctx, plan.Address(m), c.connections.credentials); err != nil {
		return reconcile.WaitError{Reason: "WaitingForNode", Message: fmt.Sprintf("waiting for node %s to accept the bootstrap request", m.Name), Requeue: true}
	}
	c.Status.BootstrapRequest.Accepted = true
	return nil
}

// waitForNode returns why the chosen machine cannot be asked about etcd.
func (b *bootstrapper) waitForNode(c *cluster, m *v1alpha1.Machine, state talos.State) error {
	message := fmt.Sprintf("waiting for node %s to start with its configuration", m.Name)
	if state == talos.ClockSkewed {
		return clockSkewError(m)
	}
	if since, applied := conditionSince(c.KubernetesCluster, v1alpha1.ConditionConfigApplied, "ConfigApplied"); state == talos.Maintenance && applied && b.now().Sub(since) > startTimeout {
		message += fmt.Sprintf("; if the node lost its configuration (new disk or reset), delete Machine %s", m.Name)
	}
	return reconcile.WaitError{Reason: "WaitingForNode", Message: message, Requeue: true}
}

// startTimeout is how long a node may take to start with its configuration. Until then it shows
// the certificate of maintenance mode.
const startTimeout = 5 * time.Minute
