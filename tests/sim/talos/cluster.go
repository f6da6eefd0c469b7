package talos

import (
	"cmp"
	"errors"
	"fmt"
	"math/rand/v2"
	"net/netip"
	"slices"

	"github.com/siderolabs/talos/pkg/machinery/resources/runtime"

	"github.com/vitistack/stack/tests/sim/talos/internal/etcd"
	"github.com/vitistack/stack/tests/sim/talos/internal/workload"
)

// cluster is the state that machines with one certificate authority share. Callers hold Fleet.mu.
type cluster struct {
	clusterRecord
	fleet    *Fleet
	workload *workload.Cluster
	// saved is the record on disk.
	saved string
}

func (f *Fleet) openCluster(r clusterRecord) error {
	timing := workload.Timing{NodeReady: f.timing.NodeReady, NodeLost: f.timing.NodeLost, PodStop: f.timing.PodStop}
	w, err := workload.Open(f.disk.journal(r.Key), timing, func() { f.touched.add(r.Key) })
	if err != nil {
		return fmt.Errorf("open cluster %s: %w", r.Key, err)
	}
	f.clusters[r.Key] = &cluster{clusterRecord: r, fleet: f, workload: w}
	return nil
}

// cluster returns the cluster in a machine's configuration, or nil without one.
func (n *node) cluster() *cluster {
	if n.config == nil {
		return nil
	}
	return n.fleet.clusters[n.key]
}

// members returns the machines that are configured for the cluster, in a stable order.
func (c *cluster) members() []*node {
	var found []*node
	for _, n := range c.fleet.nodes {
		if n.config != nil && n.key == c.Key {
			found = append(found, n)
		}
	}
	slices.SortFunc(found, func(a, b *node) int { return cmp.Compare(a.Machine.ID, b.Machine.ID) })
	return found
}

// working returns the members whose services run.
func (c *cluster) working() []*node {
	return slices.DeleteFunc(c.members(), func(n *node) bool {
		return n.boot == nil || !n.boot.services || !n.boot.network.address.IsValid()
	})
}

func (c *cluster) controlPlanes() []*node {
	return slices.DeleteFunc(c.working(), func(n *node) bool { return !n.controlPlane() })
}

// live returns the running etcd members.
func (c *cluster) live() etcd.Live {
	live := etcd.Live{}
	for _, n := range c.controlPlanes() {
		if n.boot.etcd == etcdUp && n.Etcd != nil {
			live[n.Etcd.Member] = true
		}
	}
	return live
}

func (c *cluster) quorum() bool { return c.Etcd != nil && c.Etcd.Quorum(c.live()) }

// online reports whether an API server can answer.
func (c *cluster) online() bool {
	return c.quorum() && slices.ContainsFunc(c.controlPlanes(), func(n *node) bool { return n.boot.kubernetes != nil })
}

// reconcile brings a cluster to the state that its machines allow. It is called after every change,
// and does nothing without a change.
func (f *Fleet) reconcile(c *cluster) {
	if c == nil || f.closed {
		return
	}
	c.forget()
	c.stepEtcd()
	c.stepKubernetes()
	c.stepVIPs()
	c.stepKubelets()
	for _, n := range c.working() {
		// The boot sequence waits for etcd, but a bootstrap request stops that service, and this ends the wait.
		if b := n.boot; b.stage == runtime.MachineStageBooting && (!n.controlPlane() || b.etcd == etcdUp || b.pulling != nil) {
			b.enter(runtime.MachineStageRunning)
		}
	}
	c.save()
	c.publish()
	f.announce()
}

// publish updates the resources of the members.
func (c *cluster) publish() {
	for _, n := range c.members() {
		if n.boot != nil {
			n.boot.announceStatus()
			n.boot.refresh()
		}
	}
}

// reconcileAll reconciles every cluster, and removes clusters without a machine.
func (f *Fleet) reconcileAll() error {
	var errs []error
	for key, c := range f.clusters {
		if len(c.members()) > 0 {
			f.reconcile(c)
			continue
		}
		delete(f.clusters, key)
		errs = append(errs, c.workload.Remove(), remove(f.disk.cluster(key)))
	}
	f.announce()
	return errors.Join(errs...)
}

func (c *cluster) save() {
	state := fmt.Sprintf("%+v", c.Etcd)
	if state == c.saved {
		return
	}
	if err := c.fleet.disk.save(c.fleet.disk.cluster(c.Key), c.clusterRecord); err != nil {
		c.fleet.log.Error("save cluster", "cluster", c.Key, "error", err)
		return
	}
	c.saved = state
}

// forget deletes an etcd cluster with its objects once the last machine with its data is destroyed or
// wiped.
func (c *cluster) forget() {
	if c.Etcd == nil || slices.ContainsFunc(c.members(), func(n *node) bool { return n.Etcd != nil && n.Etcd.Cluster == c.Etcd.ID }) {
		return
	}
	c.Etcd = nil
	c.replaceObjects()
}

// replaceObjects starts with an empty Kubernetes cluster.
func (c *cluster) replaceObjects() {
	if err := c.workload.Remove(); err != nil {
		c.fleet.log.Error("remove the objects of a cluster", "cluster", c.Key, "error", err)
	}
	if err := c.fleet.openCluster(c.clusterRecord); err != nil {
		c.fleet.log.Error("begin the objects of a cluster", "cluster", c.Key, "error", err)
		return
	}
	c.workload = c.fleet.clusters[c.Key].workload
	c.fleet.clusters[c.Key] = c
	for _, n := range c.working() {
		n.boot.joined = ""
		n.boot.kubernetes.retire()
		n.boot.kubernetes = nil
	}
}

// departed handles the end of a machine: its kubelet is silent, and its leadership and virtual
// addresses move to other machines.
func (f *Fleet) departed(n *node, b *boot) {
	c := n.cluster()
	if c == nil {
		f.announce()
		return
	}
	if b.joined != "" {
		c.workload.Leave(b.joined)
	}
	f.reconcile(c)
}

// found bootstraps the cluster's etcd on one machine.
func (c *cluster) found(n *node) {
	id, member := newID(), newID()
	c.Etcd = &etcd.Cluster{ID: id, Term: 1, Members: []etcd.Member{{ID: member, PeerURL: n.peerURL()}}}
	c.save() // before the data directory, see repair
	n.Etcd = &etcdData{Cluster: id, Member: member}
	n.Recovery = nil
	for _, other := range c.controlPlanes() {
		if other != n && other.Etcd != nil {
			other.boot.etcd = etcdStopped // what is left of the earlier cluster
		}
	}
	n.mustSave()
}

// repair removes members whose addition a killed process did not finish: no machine has their data.
func (c *cluster) repair() {
	if c.Etcd == nil {
		return
	}
	c.Etcd.Members = slices.DeleteFunc(c.Etcd.Members, func(m etcd.Member) bool {
		return !m.Started() && !slices.ContainsFunc(c.members(), func(n *node) bool {
			return n.Etcd != nil && n.Etcd.Member == m.ID
		})
	})
}

func newID() uint64 { return rand.Uint64() | 1 }

func (n *node) peerURL() string   { return n.etcdURL("2380") }
func (n *node) clientURL() string { return n.etcdURL("2379") }

func (n *node) etcdURL(port string) string {
	addr := n.boot.network.address.Addr()
	if addr.Is6() {
		return "https://[" + addr.String() + "]:" + port
	}
	return "https://" + addr.String() + ":" + port
}

// stepEtcd advances the etcd of every control plane node as far as possible. A member that has caught
// up becomes a voter first, because a cluster accepts one learner only.
func (c *cluster) stepEtcd() {
	if c.Etcd != nil {
		live := c.live()
		c.Etcd.Elect(live)
		for _, n := range c.controlPlanes() {
			if m, ok := c.memberOf(n); ok && m.Learner && n.boot.learned {
				if err := c.Etcd.Promote(m.ID, live); err != nil {
					n.boot.printf("[talos] etcd: failed promoting member: %v", err)
				}
			}
		}
	}
	for _, n := range c.controlPlanes() {
		if n.boot.etcd == etcdDown || n.boot.etcd == etcdWaiting {
			c.advance(n)
		}
	}
}

// advance does the next step of an etcd that does not run, depending on its data directory and the
// cluster:
//
//	data          cluster   step
//	none          none      wait for a bootstrap
//	none          some      join it
//	of a member   some      start
//	other         some      stop: the member was removed
func (c *cluster) advance(n *node) {
	b := n.boot
	switch {
	case n.Etcd == nil && c.Etcd == nil:
		b.etcd = etcdWaiting
	case n.Etcd == nil:
		c.join(n)
	case n.Etcd.Cluster == c.Etcd.ID && c.has(n.Etcd.Member):
		c.begin(n)
	default:
		b.etcd = etcdStopped
		b.printf("[talos] etcd: the member has been permanently removed from the cluster")
	}
}

func (c *cluster) has(member uint64) bool {
	_, ok := c.Etcd.Member(member)
	return ok
}

func (c *cluster) memberOf(n *node) (etcd.Member, bool) {
	if n.Etcd == nil || c.Etcd == nil || n.Etcd.Cluster != c.Etcd.ID {
		return etcd.Member{}, false
	}
	return c.Etcd.Member(n.Etcd.Member)
}

// join makes a machine with an empty data directory a member. An earlier member with its name is
// removed first.
func (c *cluster) join(n *node) {
	b, live := n.boot, c.live()
	b.etcd = etcdWaiting
	for _, m := range slices.Clone(c.Etcd.Members) {
		if m.Name == b.network.hostname {
			if err := c.Etcd.Remove(m.ID, live); err != nil {
				b.printf("[talos] etcd: error removing self from the member list: %v", err)
				return
			}
		}
	}
	id := newID()
	if err := c.Etcd.Add(id, n.peerURL(), live); err != nil {
		b.printf("[talos] etcd: error adding member: %v", err)
		return
	}
	c.save() // before the data directory, see repair
	n.Etcd = &etcdData{Cluster: c.Etcd.ID, Member: id}
	n.mustSave()
	c.begin(n)
}

// begin starts a member's process.
func (c *cluster) begin(n *node) {
	b, wait := n.boot, c.fleet.timing.EtcdStart
	b.etcd = etcdStarting
	b.later(wait, func() {
		if _, ok := c.memberOf(n); !ok || b.etcd != etcdStarting {
			return
		}
		b.etcd = etcdUp
		_ = c.Etcd.Start(n.Etcd.Member, b.network.hostname, n.clientURL()) // it was looked up above
		b.printf("[talos] service[etcd](Running): Started task etcd")
		c.fleet.reconcile(c)
		b.later(wait, func() {
			b.learned = true
			c.fleet.reconcile(c)
		})
	})
}

// stepVIPs keeps each virtual address on one control plane node whose etcd is a healthy member.
func (c *cluster) stepVIPs() {
	for _, n := range c.controlPlanes() {
		if n.boot.etcd != etcdUp {
			n.boot.keepVIPs(nil)
		}
	}
	if !c.quorum() {
		return
	}
	held := map[netip.Addr]bool{}
	for _, n := range c.controlPlanes() {
		for _, vip := range n.boot.vips {
			held[vip] = true
		}
	}
	for _, n := range c.controlPlanes() {
		b := n.boot
		for _, vip := range b.network.vips {
			if held[vip] || b.etcd != etcdUp {
				continue
			}
			if err := b.takeVIP(vip); err != nil {
				b.fail("take the shared address "+vip.String(), err)
				continue
			}
			held[vip] = true
		}
	}
}

// keepVIPs removes the virtual addresses that are not among the given ones.
func (b *boot) keepVIPs(wanted []netip.Addr) {
	b.vips = slices.DeleteFunc(b.vips, func(vip netip.Addr) bool {
		if slices.Contains(wanted, vip) {
			return false
		}
		for _, e := range []*endpoint{b.apid, b.trustd, b.kubernetes} {
			e.drop(vip)
		}
		return true
	})
}

func (b *boot) takeVIP(vip netip.Addr) error {
	for _, e := range []*endpoint{b.apid, b.trustd, b.kubernetes} {
		if e == nil {
			continue
		}
		if err := e.add(vip, b.withHandshakeFault); err != nil {
			for _, taken := range []*endpoint{b.apid, b.trustd, b.kubernetes} {
				taken.drop(vip)
			}
			return err
		}
	}
	b.vips = append(b.vips, vip)
	b.printf("[talos] enabled shared IP %s", vip)
	return nil
}
