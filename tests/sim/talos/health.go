package talos

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"

	clusterapi "github.com/siderolabs/talos/pkg/machinery/api/cluster"
	"github.com/siderolabs/talos/pkg/machinery/resources/runtime"
	"google.golang.org/grpc"
	"google.golang.org/grpc/status"
	corev1 "k8s.io/api/core/v1"

	"github.com/vitistack/stack/tests/sim/talos/internal/workload"
)

// host is a machine that a health check is about. An address at which no machine of the cluster is has no node.
type host struct {
	address      string
	controlPlane bool
	node         *node
}

// check is one condition of a healthy cluster.
type check struct {
	name string
	// holds returns what is missing, or nil.
	holds func(c *cluster, hosts []host) error
}

// checks are made in this order, which is the one of
// https://github.com/siderolabs/talos/blob/v1.13.9/pkg/cluster/check/default.go. Each waits for the previous one.
var checks = []check{
	{"etcd to be healthy", onControlPlanes(each(func(b *boot) string {
		s := etcdService(b.facts())
		return missingIf(!s.healthy, "service \"etcd\" not in expected state \"Running\": current state ["+s.state+"] "+s.message)
	}))},
	{"etcd members to be consistent across nodes", func(*cluster, []host) error { return nil }},
	{"etcd members to be control plane nodes", onControlPlanes(membersAreHosts)},
	{"apid to be ready", each(func(b *boot) string { return missingIf(b.apid == nil, "apid is not ready") })},
	{"all nodes memory sizes", func(*cluster, []host) error { return nil }},
	{"all nodes disk sizes", func(*cluster, []host) error { return nil }},
	{"no diagnostics", func(*cluster, []host) error { return nil }},
	{"kubelet to be healthy", onControlPlanes(each(func(b *boot) string { return missingIf(!b.services, "kubelet is not healthy") }))},
	{"all nodes to finish boot sequence", each(func(b *boot) string {
		return missingIf(b.stage != runtime.MachineStageRunning, "boot sequence is not finished")
	})},
	{"all k8s nodes to report", nodesAreHosts},
	{"all control plane static pods to be running", onControlPlanes(staticPodsRun)},
	{"all control plane components to be ready", onControlPlanes(staticPodsRun)},
	{"all k8s nodes to report ready", nodesAre("ready", workload.NodeReady)},
	{"kube-proxy to report ready", podsReady("kube-proxy")},
	{"coredns to report ready", podsReady("kube-dns")},
	{"all k8s nodes to report schedulable", nodesAre("schedulable", func(n workload.NodeView) bool { return !n.Spec.Unschedulable })},
}

func missingIf(missing bool, what string) string {
	if missing {
		return what
	}
	return ""
}

func each(missing func(*boot) string) func(*cluster, []host) error {
	return func(_ *cluster, hosts []host) error {
		var problems []string
		for _, h := range hosts {
			what := "the machine is off"
			if h.node != nil && h.node.boot != nil {
				what = missing(h.node.boot)
			}
			if what != "" {
				problems = append(problems, h.address+": "+what)
			}
		}
		if len(problems) > 0 {
			return errors.New(strings.Join(problems, "; "))
		}
		return nil
	}
}

// onControlPlanes returns a check of control planes only.
func onControlPlanes(holds func(*cluster, []host) error) func(*cluster, []host) error {
	return func(c *cluster, hosts []host) error {
		return holds(c, slices.DeleteFunc(slices.Clone(hosts), func(h host) bool { return !h.controlPlane }))
	}
}

func membersAreHosts(c *cluster, hosts []host) error {
	var planes []string
	for _, h := range hosts {
		if h.node != nil && h.node.boot != nil {
			planes = append(planes, h.node.peerURL())
		}
	}
	if c.Etcd == nil {
		return errors.New("etcd is not bootstrapped")
	}
	for _, m := range c.Etcd.Members {
		if !slices.Contains(planes, m.PeerURL) {
			return fmt.Errorf("etcd member %s is not a control plane node", m.PeerURL)
		}
	}
	return nil
}

// nodesAreHosts compares in both directions:
// https://github.com/siderolabs/talos/blob/v1.13.9/pkg/cluster/cluster.go, NodesMatch.
func nodesAreHosts(c *cluster, hosts []host) error {
	unexpected := map[string]bool{}
	for _, node := range c.workload.Nodes() {
		for _, address := range node.Status.Addresses {
			if address.Type == corev1.NodeInternalIP {
				unexpected[address.Address] = true
			}
		}
	}
	for _, h := range hosts {
		if !unexpected[h.address] {
			return fmt.Errorf("can't find expected node with IPs [%q]", h.address)
		}
		delete(unexpected, h.address)
	}
	if len(unexpected) > 0 {
		return fmt.Errorf("unexpected nodes with IPs %q", slices.Sorted(maps.Keys(unexpected)))
	}
	return nil
}

func staticPodsRun(c *cluster, hosts []host) error {
	return each(func(b *boot) string {
		want := len(staticPods(b.node.config))
		return missingIf(c.workload.StaticPodsReady(b.joined) < want, "some static pods are not ready")
	})(c, hosts)
}

func nodesAre(what string, is func(workload.NodeView) bool) func(*cluster, []host) error {
	return func(c *cluster, _ []host) error {
		var not []string
		for _, node := range c.workload.Nodes() {
			if !is(node) {
				not = append(not, node.Name)
			}
		}
		if len(not) > 0 {
			return fmt.Errorf("some nodes are not %s: %v", what, not)
		}
		return nil
	}
}

func podsReady(app string) func(*cluster, []host) error {
	return func(c *cluster, _ []host) error {
		if waiting := c.workload.NotReady(app); len(waiting) > 0 {
			return fmt.Errorf("some pods are not ready: %q", waiting)
		}
		return nil
	}
}

// HealthCheck streams what the cluster still misses until it misses nothing or the time is over.
func (a *api) HealthCheck(in *clusterapi.HealthCheckRequest, out grpc.ServerStreamingServer[clusterapi.HealthCheckProgress]) error {
	b := a.boot
	unlock, err := b.accept()
	if err != nil {
		return err
	}
	err = b.onlyControlPlane("cluster health check")
	var found []string
	if err == nil {
		for _, h := range b.hosts(in.GetClusterInfo()) {
			found = append(found, h.address)
		}
	}
	unlock()
	if err != nil {
		return err
	}
	ctx, cancel := context.WithTimeout(out.Context(), in.GetWaitTimeout().AsDuration())
	defer cancel()
	send := func(message string) error { return out.Send(&clusterapi.HealthCheckProgress{Message: message}) }
	if err := send(fmt.Sprintf("discovered nodes: %q", found)); err != nil {
		return err
	}
	for _, k := range checks {
		if err := b.await(ctx, k, in.GetClusterInfo(), send); err != nil {
			return err
		}
	}
	return nil
}

// await reports on one check until it succeeds.
func (b *boot) await(ctx context.Context, k check, asked *clusterapi.ClusterInfo, send func(string) error) error {
	last := ""
	for {
		unlock, err := b.accept()
		if err != nil {
			return err
		}
		missing := k.holds(b.node.cluster(), b.hosts(asked))
		changed := b.node.fleet.changed
		unlock()
		line := "waiting for " + k.name + ": OK"
		if missing != nil {
			line = "waiting for " + k.name + ": " + missing.Error()
		}
		if line != last {
			if err := send(line); err != nil {
				return err
			}
			last = line
		}
		if missing == nil {
			return nil
		}
		select {
		case <-ctx.Done():
			return status.FromContextError(ctx.Err()).Err()
		case <-b.ctx.Done():
			return errRestarting
		case <-changed:
		}
	}
}

// hosts returns the machines of a health check: those at the addresses in the request, or all of the cluster. Callers hold
// Fleet.mu.
func (b *boot) hosts(info *clusterapi.ClusterInfo) []host {
	var all, requested []host
	known := map[string]*node{}
	for _, n := range b.node.cluster().members() {
		h := host{address: n.Machine.Address.Addr().String(), controlPlane: n.controlPlane(), node: n}
		all, known[h.address] = append(all, h), n
	}
	for _, address := range info.GetControlPlaneNodes() {
		requested = append(requested, host{address: address, controlPlane: true, node: known[address]})
	}
	for _, address := range info.GetWorkerNodes() {
		requested = append(requested, host{address: address, node: known[address]})
	}
	if len(requested) == 0 {
		return all
	}
	return requested
}
