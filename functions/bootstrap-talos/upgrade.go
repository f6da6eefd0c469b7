package main

import (
	"context"
	"errors"
	"fmt"
	"net"
	"slices"
	"strconv"
	"sync"

	"github.com/blang/semver/v4"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"golang.org/x/sync/errgroup"

	"github.com/vitistack/stack/apis/v1alpha1"
)

// upgrade brings the nodes of a cluster to the wanted versions, one after the other.
// It returns waits while it does, and a fault when a node has failed. What it is
// about to do is written down first, so that a delivery that dies loses nothing and
// two do nothing twice.
func (f *function) upgrade(ctx context.Context, c *cluster) error {
	w, fresh := c.workload, true
	return poll(ctx, c.until, func(ctx context.Context) error {
		if !fresh {
			nodes, err := w.nodes(ctx)
			if err != nil {
				return waits{reason: "WaitingForAPI", message: "waits for the workload API at " + c.Status.Endpoint, silent: true}
			}
			c.nodes = c.current(nodes)
		}
		fresh = false
		return f.upgradeOnce(ctx, c, w)
	})
}

// upgradeOnce does at most one step with each node.
func (f *function) upgradeOnce(ctx context.Context, c *cluster, w *workload) error {
	nodes := c.observe(ctx, w)
	c.Status.Version = lowest(c.Status.Version, nodes)
	s := c.Status.Upgrade
	if s == nil || len(s.Nodes) == 0 {
		kind := c.plan.nextKind(nodes)
		if kind == "" {
			if s != nil {
				if err := f.refreshAddons(ctx, c); err != nil {
					return err
				}
			}
			c.Status.Upgrade, c.Status.TalosVersion = nil, c.plan.talos
			c.versions = versionReport{true, "VersionsCurrent", fmt.Sprintf("every node runs what is wanted: Kubernetes %s on Talos %s", c.plan.kubernetes, c.plan.talos)}
			return nil
		}
		s = &v1alpha1.UpgradeStatus{Kind: kind, Generation: c.Generation}
		c.Status.Upgrade = s
	}
	c.plan.renew(s, c.Generation, nodes, metav1.NewTime(f.now()))
	left := len(c.plan.pending(s.Kind, nodes))
	s.Progress = fmt.Sprintf("%d/%d", len(nodes)-left, len(nodes))
	describeNodes(c)
	if err := f.takeTurns(ctx, c, w, nodes); err != nil {
		return err
	}
	return c.reportUpgrade(nodes)
}

// observe puts together what is known of each member's versions.
func (c *cluster) observe(ctx context.Context, w *workload) []observed {
	nodes := make([]observed, len(c.plan.members))
	var group errgroup.Group
	group.SetLimit(atOnce)
	for i, m := range c.plan.members {
		nodes[i].member = m
		if at := slices.IndexFunc(c.nodes, func(n workloadNode) bool { return n.name == m.name }); at >= 0 {
			nodes[i].node = c.nodes[at]
		}
		if m.role != v1alpha1.RoleControlPlane || !running(c.machines[m.name]) {
			continue
		}
		group.Go(func() error {
			host := "https://" + net.JoinHostPort(addressOf(c.machines[m.name]), strconv.Itoa(int(c.plan.localPort())))
			nodes[i].api, _ = w.at(host).version(ctx) // empty where it does not answer
			return nil
		})
	}
	_ = group.Wait()
	return nodes
}

// lowest is the oldest version of the API servers that answer.
func lowest(otherwise string, nodes []observed) string {
	var oldest *semver.Version
	for _, o := range nodes {
		if v, err := semver.Parse(o.api); err == nil && (oldest == nil || v.LT(*oldest)) {
			oldest = &v
		}
	}
	if oldest == nil {
		return otherwise
	}
	return oldest.String()
}

// renew drops nodes that have left the cluster, and where the spec has changed, lets
// those that have not begun or have failed go for what is wanted now.
func (p plan) renew(s *v1alpha1.UpgradeStatus, generation int64, nodes []observed, now metav1.Time) {
	s.Nodes = slices.DeleteFunc(s.Nodes, func(u v1alpha1.NodeUpgrade) bool { return find(nodes, u.Name) == nil })
	if s.Generation == generation {
		return
	}
	s.Generation = generation
	for i := range s.Nodes {
		u := &s.Nodes[i]
		if u.Step == v1alpha1.UpgradeRequested {
			continue
		}
		u.To = p.wants(s.Kind, find(nodes, u.Name).member)
		if u.Step == v1alpha1.UpgradeFailed {
			u.Step, u.Since, u.Asked, u.Message = v1alpha1.UpgradeDraining, now, nil, ""
		}
	}
}

func find(nodes []observed, name string) *observed {
	i := slices.IndexFunc(nodes, func(o observed) bool { return o.name == name })
	if i < 0 {
		return nil
	}
	return &nodes[i]
}

// takeTurns goes on with the nodes that are under way, and begins with others where
// nothing speaks against it. What is about to happen to a node is in the status
// before it happens.
func (f *function) takeTurns(ctx context.Context, c *cluster, w *workload, nodes []observed) error {
	s := c.Status.Upgrade
	turns := map[string]turn{}
	for _, u := range s.Nodes {
		turns[u.Name] = takeTurn(s.Kind, u, *find(nodes, u.Name), f.now())
	}
	f.prepareNodes(ctx, c, w, turns, nodes)
	for i := range s.Nodes {
		record(s.Kind, &s.Nodes[i], turns[s.Nodes[i].Name], find(nodes, s.Nodes[i].Name), metav1.NewTime(f.now()))
	}
	s.Nodes = slices.DeleteFunc(s.Nodes, func(u v1alpha1.NodeUpgrade) bool { return turns[u.Name] == turnFinish })
	for _, o := range f.begin(ctx, c, nodes) {
		u := v1alpha1.NodeUpgrade{
			Name: o.name, Step: v1alpha1.UpgradeDraining, From: o.runs(s.Kind), To: c.plan.wants(s.Kind, o.member),
			Since: metav1.NewTime(f.now()), Cordoned: s.Kind == v1alpha1.UpgradeTalos && !o.node.cordoned,
		}
		s.Nodes = append(s.Nodes, u)
	}
	if err := f.patchStatus(ctx, c); err != nil {
		return err
	}
	f.askNodes(ctx, c, turns)
	return nil
}

// prepareNodes drains the nodes whose turn it is, and lets pods come back to those
// that are done. A drain that has come to its end becomes a request, and one whose
// time is over a failure.
func (f *function) prepareNodes(ctx context.Context, c *cluster, w *workload, turns map[string]turn, nodes []observed) {
	s := c.Status.Upgrade
	var mu sync.Mutex
	eachNode(s.Nodes, func(u *v1alpha1.NodeUpgrade) {
		mu.Lock()
		now := turns[u.Name]
		mu.Unlock()
		message := u.Message
		switch now {
		case turnDrain:
			limit := drainTime(find(nodes, u.Name).properties)
			if now, message = prepareNode(ctx, w, s.Kind, *u); now == turnDrain {
				now = turnWait
				if f.now().Sub(u.Since.Time) > limit {
					now, message = turnFail, fmt.Sprintf("its pods have not gone within %s: %s", limit, message)
				}
			}
		case turnFinish:
			if u.Cordoned {
				if err := w.cordon(ctx, u.Name, false); err != nil {
					now, message = turnWait, err.Error()
				}
			}
		}
		mu.Lock()
		defer mu.Unlock()
		turns[u.Name], u.Message = now, message
	})
}

// prepareNode makes a node ready for its upgrade. Only a change of Talos reboots it,
// and so needs its pods to go. It drains still while there are any.
func prepareNode(ctx context.Context, w *workload, kind v1alpha1.UpgradeKind, u v1alpha1.NodeUpgrade) (turn, string) {
	if kind != v1alpha1.UpgradeTalos {
		return turnAsk, ""
	}
	if u.Cordoned {
		if err := w.cordon(ctx, u.Name, true); err != nil {
			return turnDrain, err.Error()
		}
	}
	d, err := w.drain(ctx, u.Name)
	switch {
	case err != nil:
		return turnDrain, err.Error()
	case d.done():
		return turnAsk, ""
	case d.blocked != "":
		return turnDrain, d.blocked
	default:
		return turnDrain, "waits for " + count(len(d.left), "pod") + " to go, first of all " + d.left[0]
	}
}

// eachNode does something with some nodes at the same time.
func eachNode(nodes []v1alpha1.NodeUpgrade, do func(*v1alpha1.NodeUpgrade)) {
	var group errgroup.Group
	group.SetLimit(atOnce)
	for i := range nodes {
		group.Go(func() error {
			do(&nodes[i])
			return nil
		})
	}
	_ = group.Wait()
}

// record writes down what is about to happen to a node.
func record(kind v1alpha1.UpgradeKind, u *v1alpha1.NodeUpgrade, now turn, o *observed, at metav1.Time) {
	switch now {
	case turnAsk:
		if u.Step != v1alpha1.UpgradeRequested {
			u.Step, u.Since, u.BootID = v1alpha1.UpgradeRequested, at, o.node.boot
		}
		u.Asked, u.Message = &at, ""
	case turnFail:
		drained := u.Step != v1alpha1.UpgradeDraining
		if u.Step, u.Since = v1alpha1.UpgradeFailed, at; !drained {
			return
		}
		u.Message = fmt.Sprintf("it runs %s and has not come to %s within %s", o.runs(kind), u.To, upgradePatience)
		if kind == v1alpha1.UpgradeTalos && o.node.boot != u.BootID {
			u.Message = fmt.Sprintf("it has booted again with Talos %s: %s did not start there, and talosctl dmesg on the node says why", o.runs(kind), u.To)
		}
	}
}

// begin are the nodes that are to be upgraded next. While one has failed, or the
// cluster is not in order, those are none.
func (f *function) begin(ctx context.Context, c *cluster, nodes []observed) []observed {
	s := c.Status.Upgrade
	c.gate = ""
	if c.upgradePaused() || failedNode(s) != nil {
		return nil
	}
	next := c.plan.next(s.Kind, nodes, s.Nodes, c.concurrency())
	if len(next) > 0 {
		if c.gate = f.trouble(ctx, c, nodes); c.gate != "" {
			return nil
		}
	}
	return next
}

func (c *cluster) upgradePaused() bool { return c.Spec.Upgrade != nil && c.Spec.Upgrade.Paused }

// busy tells whether any node is.
func (c *cluster) busy() bool { return c.Status.Upgrade != nil && len(c.Status.Upgrade.Nodes) > 0 }

// upgrading tells whether a node is being upgraded, and so may be away.
func (c *cluster) upgrading(name string) bool {
	return c.Status.Upgrade != nil && slices.ContainsFunc(c.Status.Upgrade.Nodes, func(u v1alpha1.NodeUpgrade) bool { return u.Name == name })
}

// concurrency is how many nodes of each pool may be upgraded at the same time.
func (c *cluster) concurrency() map[string]int {
	out := map[string]int{}
	for _, p := range c.Spec.Topology.Workers {
		out[p.Name] = int(p.UpgradeConcurrency)
	}
	return out
}

func failedNode(s *v1alpha1.UpgradeStatus) *v1alpha1.NodeUpgrade {
	i := slices.IndexFunc(s.Nodes, func(u v1alpha1.NodeUpgrade) bool { return u.Step == v1alpha1.UpgradeFailed })
	if i < 0 {
		return nil
	}
	return &s.Nodes[i]
}

// trouble says why no other node may be taken out of service now, empty where one
// may: every other node is Ready, every API server answers, and every etcd member is
// a healthy voter.
func (f *function) trouble(ctx context.Context, c *cluster, nodes []observed) string {
	for _, o := range nodes {
		switch {
		case slices.ContainsFunc(c.Status.Upgrade.Nodes, func(u v1alpha1.NodeUpgrade) bool { return u.Name == o.name }):
		case !o.node.ready:
			return "node " + o.name + " is not Ready"
		case o.role == v1alpha1.RoleControlPlane && o.api == "":
			return "the API server of " + o.name + " does not answer"
		}
	}
	for name, m := range c.machines {
		if leaving(m) {
			return "node " + name + " is leaving"
		}
	}
	var w waits
	switch err := f.checkEtcd(ctx, c); {
	case errors.As(err, &w):
		return "it " + w.message
	case err != nil:
		return err.Error()
	default:
		return ""
	}
}

// askNodes sends the request to each node whose turn it is. A node that refuses has
// failed; one that does not answer is asked again later.
func (f *function) askNodes(ctx context.Context, c *cluster, turns map[string]turn) {
	s := c.Status.Upgrade
	eachNode(s.Nodes, func(u *v1alpha1.NodeUpgrade) {
		if turns[u.Name] != turnAsk || !running(c.machines[u.Name]) {
			return
		}
		var err error
		address := addressOf(c.machines[u.Name])
		if s.Kind == v1alpha1.UpgradeTalos {
			err = requestTalos(ctx, address, c.access, f.images.installer(c.KubernetesCluster, u.To), u.To)
		} else {
			err = requestKubernetes(ctx, address, c.access, s.Kind, u.To)
		}
		var refused fault
		if errors.As(err, &refused) {
			u.Step, u.Since, u.Message = v1alpha1.UpgradeFailed, metav1.NewTime(f.now()), refused.message
		}
	})
}
