package main

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"sync"
	"time"

	"golang.org/x/sync/errgroup"

	"github.com/vitistack/stack/apis/v1alpha1"
	"github.com/vitistack/stack/functions/internal/kube"
)

// readmit finds nodes that have lost their configuration, since their disk is new or
// somebody has reset them, and takes back what their Machines remember of it: they get
// it again as new nodes do. Nobody is asked by a delivery that waits for no node, since
// each Machine of a new cluster brings one of those. It returns waits when it has found
// one, and a fault where somebody has to decide.
func (f *function) readmit(ctx context.Context, c *cluster) error {
	if !c.patient {
		return nil
	}
	var problems []error
	found := c.inMaintenance(ctx)
	for _, name := range slices.Sorted(maps.Keys(found)) {
		if err := f.readmitNode(ctx, c, c.machines[name], found[name]); err != nil {
			problems = append(problems, err)
		}
	}
	return worst(problems)
}

// suspects are the nodes that may have lost their configuration: those that have
// taken it, and are not Ready. Where the workload API does not answer, only control
// planes are, as they may be the reason; a cluster whose etcd may not have begun has
// none of those.
func (c *cluster) suspects() []*v1alpha1.Machine {
	var found []*v1alpha1.Machine
	begun := isTrue(c.before, v1alpha1.ConditionBootstrapped)
	for _, m := range c.plan.members {
		machine := c.machines[m.name]
		n, _ := c.node(m.name)
		if running(machine) && installed(machine) && !leaving(machine) && !n.ready && pick(m.role == v1alpha1.RoleControlPlane, begun, c.reachable) {
			found = append(found, machine)
		}
	}
	return found
}

// inMaintenance asks suspects what they are. It returns the certificates of those that
// wait for a configuration, by their names. Who is not asked in time is so by the next
// delivery: others that do not answer may take long.
func (c *cluster) inMaintenance(ctx context.Context) map[string]fingerprint {
	var mu sync.Mutex
	var group errgroup.Group
	group.SetLimit(atOnce)
	found, end := map[string]fingerprint{}, time.Now().Add(longPatience)
	for _, m := range c.suspects() {
		if time.Now().After(end) {
			break
		}
		group.Go(func() error {
			if state, shown := probe(ctx, addressOf(m), c.access); state == stateMaintenance {
				mu.Lock()
				defer mu.Unlock()
				found[m.Name] = shown
			}
			return nil
		})
	}
	_ = group.Wait()
	return found
}

// readmitNode takes back that a node has its configuration, if it is the machine that
// it should be. A control plane has to have others to join.
func (f *function) readmitNode(ctx context.Context, c *cluster, m *v1alpha1.Machine, shown fingerprint) error {
	nc := &v1alpha1.NetworkConfiguration{}
	if err := f.kube.Get(ctx, m.Namespace, m.Name, nc); err != nil && !kube.NotFound(err) {
		return err
	}
	if err := recognise(ctx, m, macsOf(nc), shown); err != nil {
		if errors.As(err, new(fault)) {
			return err
		}
		return nil // it may be restarting; the next look tells
	}
	c.states[m.Name] = stateMaintenance
	if poolOf(m) == controlPlanePool {
		why := c.mayRejoin(ctx, m)
		if why != "" && c.Status.Version == "" {
			return nil // etcd is still being built up
		}
		if why != "" {
			return fault{"NodeReset", fmt.Sprintf(
				"control plane %s has lost its configuration, by a new disk or a reset, and gets it again only while etcd has a majority without it: %s; where all control planes have lost it, first take the annotation %s from their Machines",
				m.Name, why, v1alpha1.AnnotationInstalled)}
		}
	}
	before := m.DeepCopy()
	delete(m.Annotations, v1alpha1.AnnotationInstalled)
	if _, err := f.kube.Patch(ctx, before, m); err != nil && !kube.NotFound(err) && !kube.Conflict(err) {
		return err
	}
	return waits{reason: "WaitingForNode", message: fmt.Sprintf("node %s has lost its configuration, by a new disk or a reset, and gets it again", m.Name), silent: true}
}

// mayRejoin says why a control plane that has lost its configuration may not have it
// now, or nothing. It never begins another etcd, whatever it has lost: where its data
// is still there it is the member that it was, and otherwise Talos replaces that,
// which takes the majority of the others.
func (c *cluster) mayRejoin(ctx context.Context, m *v1alpha1.Machine) string {
	view, err := askEtcd(ctx, c.controlPlanes(), c.access)
	if err != nil {
		return "no member of etcd answers: bring one back, or restore a backup"
	}
	member, listed := view.of(m.Name, addressOf(m))
	member.learner = member.learner || !listed
	return mayLeave(view, member)
}
