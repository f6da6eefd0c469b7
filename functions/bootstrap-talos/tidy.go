package main

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strconv"
	"strings"

	"github.com/vitistack/stack/apis/v1alpha1"
	"github.com/vitistack/stack/functions/internal/kube"
)

// tidy takes away what machines that are gone have left behind: their Nodes, what
// was saved of them for people, and, where they ended without leaving it, their
// members of etcd.
func (f *function) tidy(ctx context.Context, c *cluster) error {
	if c.Status.Version != "" && !c.controlPlaneWorks() {
		if err := f.checkEtcd(ctx, c); errors.As(err, new(fault)) {
			return err
		}
	}
	for _, name := range strays(c.Name, c.nodes, c.exists) {
		if gone, err := f.gone(ctx, c, name); err != nil || !gone {
			return err
		}
		if err := f.results.forget(ctx, c.KubernetesCluster, name); err != nil {
			return err
		}
		if err := c.workload.deleteNode(ctx, name); err != nil {
			return waits{reason: "RemovingNodes", message: fmt.Sprintf("removes node %s: waits for the workload API", name), silent: true}
		}
	}
	return nil
}

// gone makes sure that a machine is gone now: it may have been made after the
// delivery has listed what there is.
func (f *function) gone(ctx context.Context, c *cluster, name string) (bool, error) {
	err := f.kube.Get(ctx, c.Namespace, name, &v1alpha1.Machine{})
	if kube.NotFound(err) {
		return true, nil
	}
	return false, err
}

func (c *cluster) exists(name string) bool { return c.machines[name] != nil }

func (c *cluster) controlPlaneWorks() bool {
	return !slices.ContainsFunc(c.plan.controlPlanes(), func(m member) bool { return !c.works(m.name) })
}

// checkEtcd makes sure that every control plane is a voting member of etcd, and
// nobody else is: a member whose machine is gone is expelled.
func (f *function) checkEtcd(ctx context.Context, c *cluster) error {
	c.etcd = ""
	view, err := askEtcd(ctx, c.controlPlanes(), c.access)
	if err != nil {
		return waits{reason: "WaitingForEtcd", message: "waits for a member of etcd to answer", silent: true}
	}
	if left := forsaken(view.members, c.exists); len(left) > 0 {
		return f.expelForsaken(ctx, c, view, left[0])
	}
	var wanted []string
	for _, m := range c.plan.controlPlanes() {
		wanted = append(wanted, m.name)
	}
	if name := ailing(view, wanted); name != "" {
		return waits{reason: "WaitingForEtcd", message: fmt.Sprintf("waits for control plane %s to be a member of etcd that votes and answers", name), silent: true}
	}
	c.etcd = count(len(wanted), "member")
	return nil
}

// expelForsaken takes a member out of etcd whose machine is gone.
func (f *function) expelForsaken(ctx context.Context, c *cluster, view etcdView, m etcdMember) error {
	message := fmt.Sprintf("takes %s, whose machine is gone, out of etcd", m.name)
	gone, err := f.gone(ctx, c, m.name)
	switch {
	case err != nil:
		return err
	case !gone:
		message = fmt.Sprintf("waits for %s, which has just joined etcd", m.name)
	default:
		if why := mayLeave(view, m); why != "" {
			return fault{reasonQuorumAtRisk, fmt.Sprintf("member %s of etcd, whose machine is gone, cannot be taken out: %s", m.name, why)}
		}
		if f.expel(ctx, c, view, m) != nil {
			message = fmt.Sprintf("waits for a member of etcd to take out %s, whose machine is gone", m.name)
		}
	}
	return waits{reason: "WaitingForEtcd", message: message, silent: true}
}

// ailing is the first of the wanted members of etcd that is none, does not vote,
// or does not answer.
func ailing(v etcdView, wanted []string) string {
	for _, name := range wanted {
		m, ok := v.of(name, "")
		if _, answers := v.lists[name]; !ok || m.learner || !answers {
			return name
		}
	}
	return ""
}

// strays are the nodes whose names are those of machines of the cluster, but whose
// machines are gone. Nodes that somebody else has added bear other names.
func strays(cluster string, nodes []workloadNode, exists func(name string) bool) []string {
	var found []string
	for _, n := range nodes {
		if _, _, ours := parseMachineName(cluster, n.name); ours && !exists(n.name) {
			found = append(found, n.name)
		}
	}
	slices.Sort(found)
	return found
}

// parseMachineName returns the pool and the ordinal in the name of a machine, which is the
// cluster's name, the pool's and the ordinal, joined by dashes. ok is false for other names.
func parseMachineName(cluster, name string) (pool string, ordinal int, ok bool) {
	tail, ok := strings.CutPrefix(name, cluster+"-")
	i := strings.LastIndex(tail, "-")
	if !ok || i < 0 {
		return "", 0, false
	}
	ordinal, err := strconv.Atoi(tail[i+1:])
	return tail[:i], ordinal, err == nil
}
