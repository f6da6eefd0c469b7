package talos

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"

	clusterapi "github.com/siderolabs/talos/pkg/machinery/api/cluster"
	"github.com/siderolabs/talos/pkg/machinery/resources/runtime"
	"google.golang.org/grpc"
	"google.golang.org/grpc/status"

	"github.com/vitistack/stack/tests/sim/talos/internal/workload"
)

// check is one condition of a healthy cluster.
type check struct {
	name string
	// holds returns what is missing, or nil.
	holds func(c *cluster, nodes []*node) error
}

// checks are made in this order. Each waits for the previous one.
var checks = []check{
	{"etcd to be healthy", etcdHealthy},
	{"etcd members to be consistent across nodes", func(*cluster, []*node) error { return nil }},
	{"etcd members to be control plane nodes", etcdOnControlPlanes},
	{"apid to be ready", each(func(b *boot) string { return missingIf(b.apid == nil, "apid is not ready") })},
	{"all nodes memory sizes", func(*cluster, []*node) error { return nil }},
	{"all nodes disk sizes", func(*cluster, []*node) error { return nil }},
	{"no diagnostics", func(*cluster, []*node) error { return nil }},
	{"kubelet to be healthy", each(func(b *boot) string { return missingIf(!b.services, "kubelet is not healthy") })},
	{"all nodes to finish boot sequence", each(func(b *boot) string {
		return missingIf(b.stage != runtime.MachineStageRunning, "boot sequence is not finished")
	})},
	{"all k8s nodes to report", each(func(b *boot) string { return missingIf(b.joined == "", "node is not registered") })},
	{"all control plane static pods to be running", staticPodsRun},
	{"all control plane components to be ready", staticPodsRun},
	{"all k8s nodes to report ready", nodesAre("ready", workload.NodeReady)},
	{"kube-proxy to report ready", podsReady("kube-proxy")},
	{"coredns to report ready", podsReady("kube-dns")},
	{"all k8s nodes to report schedulable", nodesSchedulable},
}

func missingIf(missing bool, what string) string {
	if missing {
		return what
	}
	return ""
}

func each(missing func(*boot) string) func(*cluster, []*node) error {
	return func(_ *cluster, nodes []*node) error {
		var problems []string
		for _, n := range nodes {
			what := "the machine is off"
			if n.boot != nil {
				what = missing(n.boot)
			}
			if what != "" {
				problems = append(problems, n.Machine.Address.Addr().String()+": "+what)
			}
		}
		if len(problems) > 0 {
			return errors.New(strings.Join(problems, "; "))
		}
		return nil
	}
}

func etcdHealthy(c *cluster, nodes []*node) error {
	return each(func(b *boot) string {
		if !b.node.controlPlane() {
			return ""
		}
		s := etcdService(b.facts())
		return missingIf(!s.healthy, "service \"etcd\" not in expected state \"Running\": current state ["+s.state+"] "+s.message)
	})(c, nodes)
}

func etcdOnControlPlanes(c *cluster, nodes []*node) error {
	var planes []string
	for _, n := range nodes {
		if n.boot != nil && n.controlPlane() {
			planes = append(planes, n.peerURL())
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

func staticPodsRun(c *cluster, nodes []*node) error {
	return each(func(b *boot) string {
		if !b.node.controlPlane() {
			return ""
		}
		want := len(staticPods(b.node.config))
		return missingIf(c.workload.StaticPodsReady(b.joined) < want, "some static pods are not ready")
	})(c, nodes)
}

func nodesAre(what string, is func(workload.NodeView) bool) func(*cluster, []*node) error {
	return func(c *cluster, nodes []*node) error {
		return each(func(b *boot) string {
			node, ok := c.workload.Node(b.joined)
			return missingIf(!ok || !is(node), "node is not "+what)
		})(c, nodes)
	}
}

func nodesSchedulable(c *cluster, nodes []*node) error {
	return nodesAre("schedulable", func(n workload.NodeView) bool { return !n.Spec.Unschedulable })(c, nodes)
}

func podsReady(app string) func(*cluster, []*node) error {
	return func(c *cluster, _ []*node) error {
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
		for _, n := range b.asked(in.GetClusterInfo()) {
			found = append(found, n.Machine.Address.Addr().String())
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
		missing := k.holds(b.node.cluster(), b.asked(asked))
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

// asked returns the machines of a health check: the named ones, or all of the cluster. Callers hold
// Fleet.mu.
func (b *boot) asked(info *clusterapi.ClusterInfo) []*node {
	names := slices.Concat(info.GetControlPlaneNodes(), info.GetWorkerNodes())
	members := b.node.cluster().members()
	if len(names) == 0 {
		return members
	}
	return slices.DeleteFunc(members, func(n *node) bool {
		return !slices.Contains(names, n.Machine.Address.Addr().String())
	})
}
