package main

import (
	"context"
	"fmt"
	"slices"
	"strings"

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
	// others is whether another control plane has etcd, and silent are those that have
	// their configuration and do not say.
	others bool
	silent []string
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
	case b.lost && len(b.silent) > 0:
		return beginWait
	default:
		return pick(b.up, beginChoose, beginWait)
	}
}

// ensureBootstrap begins etcd on one control plane, which is recorded first with its UID,
// and so is the same at every try: a machine that has only its name would begin another
// etcd. A cluster whose control plane has answered keeps the condition Bootstrapped;
// before that the machine is asked each time, because it may have lost the request.
func (f *function) ensureBootstrap(ctx context.Context, c *cluster) error {
	begun := isTrue(c.KubernetesCluster, v1alpha1.ConditionBootstrapped)
	b := c.beginning()
	if c.bootstrapped || (begun && (c.Status.Version != "" || b.lost || !b.up)) {
		c.bootstrapped = true
		return nil
	}
	if b.lost {
		f.askOthers(ctx, c, &b)
	}
	switch b.next() {
	case beginDone:
		c.bootstrapped = true
		return nil
	case beginWait:
		if len(b.silent) > 0 {
			return waitForEtcdAnswers(b.silent, "since Machine "+c.Status.BootstrapMachine+", which was to begin etcd, is gone")
		}
		return f.waitForMachines(c)
	case beginChoose:
		m := c.machines[c.candidate()]
		c.Status.BootstrapMachine, c.Status.BootstrapUID, c.Status.BootstrapRequest = m.Name, m.UID, nil
		if err := f.patchStatus(ctx, c); err != nil {
			return err
		}
	case beginAsk:
	}
	return f.bootstrapMachine(ctx, c, c.machines[c.Status.BootstrapMachine], begun)
}

// waitForEtcdAnswers waits for control planes that may have the data of etcd.
func waitForEtcdAnswers(silent []string, why string) error {
	slices.Sort(silent)
	return waits{reason: "WaitingForNode", message: fmt.Sprintf(
		"waits for %s to say whether it has etcd, %s; if it does not come back, delete Machine %s", strings.Join(silent, ", "), why, silent[0]), silent: true}
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

// askOthers finds out whether a control plane other than the chosen one has etcd.
func (f *function) askOthers(ctx context.Context, c *cluster, b *beginning) {
	b.others, b.silent = false, nil
	for name, address := range c.controlPlanes() {
		if name == c.Status.BootstrapMachine && !b.lost {
			continue
		}
		service, err := readEtcdService(ctx, address, c.access)
		switch {
		case err != nil:
			b.silent = append(b.silent, name)
		case service.begun():
			b.others = true
		}
	}
}
