package main

import (
	"context"
	"fmt"
	"maps"
	"slices"

	"github.com/vitistack/stack/apis/v1alpha1"
)

// beginStep is what is done so that a cluster has an etcd.
type beginStep string

const (
	beginWait   beginStep = "Wait"
	beginChoose beginStep = "Choose"
	beginAsk    beginStep = "Ask"
	beginDone   beginStep = "Done"
)

// beginning is what is known of a cluster whose etcd may not have begun.
type beginning struct {
	// chosen is whether somebody has been chosen to begin, and lost whether the disk
	// of that one is gone, so that what it may have begun has to be asked of others.
	chosen, lost bool
	// up is whether the one that is chosen, or would be, has its configuration.
	up bool
	// others is whether another control plane runs etcd, and silent whether one that
	// has its configuration does not say.
	others, silent bool
}

// next decides how etcd begins. It begins once, on a machine that is written down
// before:
//
//	nobody is chosen              choose, once there is somebody
//	the chosen one is there       ask it, however often: it remembers
//	it is lost, others run etcd   it had begun: done
//	it is lost, somebody silent   wait: that one may have joined it
//	it is lost, nobody has etcd   choose again
func (b beginning) next() beginStep {
	switch {
	case b.chosen && !b.lost:
		return pick(b.up, beginAsk, beginWait)
	case b.lost && b.others:
		return beginDone
	case b.lost && b.silent:
		return beginWait
	default:
		return pick(b.up, beginChoose, beginWait)
	}
}

// ensureBootstrap lets etcd begin on one control plane, which is written down
// first with its UID, and so is the same at every try: a machine that has only its
// name would begin another etcd.
func (f *function) ensureBootstrap(ctx context.Context, c *cluster) error {
	if c.bootstrapped || isTrue(c.KubernetesCluster, v1alpha1.ConditionBootstrapped) {
		c.bootstrapped = true
		return nil
	}
	b := c.beginning()
	if b.lost {
		f.askOthers(ctx, c, &b)
	}
	switch b.next() {
	case beginDone:
		c.bootstrapped = true
		return nil
	case beginWait:
		if b.silent {
			return waits{reason: "WaitingForNode", message: "waits for every control plane to say whether it has etcd, since the one that etcd was to begin on is lost", silent: true}
		}
		return f.waitForMachines(c)
	case beginChoose:
		m := c.machines[c.candidate()]
		c.Status.BootstrapMachine, c.Status.BootstrapUID = m.Name, m.UID
		if err := f.patchStatus(ctx, c); err != nil {
			return err
		}
	case beginAsk:
	}
	m := c.machines[c.Status.BootstrapMachine]
	switch state, _ := probe(ctx, addressOf(m), c.access); state {
	case stateOurs:
	case stateSkewed:
		return skewed(m)
	case stateMaintenance:
		return waits{reason: "WaitingForNode", message: fmt.Sprintf("waits for node %s to start with its configuration; if it has lost that, by a new disk or a reset, delete Machine %s", m.Name, m.Name), silent: true}
	default:
		return waits{reason: "WaitingForNode", message: fmt.Sprintf("waits for node %s to start with its configuration", m.Name), silent: true}
	}
	if err := bootstrap(ctx, addressOf(m), c.access); err != nil {
		return waits{reason: "WaitingForNode", message: fmt.Sprintf("waits for node %s to be ready for etcd", m.Name), silent: true}
	}
	c.bootstrapped = true
	return nil
}

func (c *cluster) beginning() beginning {
	b := beginning{chosen: c.Status.BootstrapMachine != ""}
	m := c.machines[c.Status.BootstrapMachine]
	if b.chosen && (m == nil || (c.Status.BootstrapUID != "" && m.UID != c.Status.BootstrapUID)) {
		b.lost = true
	}
	if b.chosen && !b.lost {
		b.up = running(m)
		return b
	}
	b.up = c.candidate() != ""
	return b
}

// candidate is the first control plane that has its configuration.
func (c *cluster) candidate() string {
	for _, m := range c.plan.controlPlanes() {
		if machine := c.machines[m.name]; running(machine) && installed(machine) {
			return m.name
		}
	}
	return ""
}

// askOthers finds out whether any control plane has etcd.
func (f *function) askOthers(ctx context.Context, c *cluster, b *beginning) {
	addresses := c.controlPlanes()
	for _, name := range slices.Sorted(maps.Keys(addresses)) {
		state, err := etcdState(ctx, addresses[name], c.access)
		switch {
		case err != nil:
			b.silent = true
		case state:
			b.others = true
		}
	}
}
