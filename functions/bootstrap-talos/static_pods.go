package main

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"net"
	"strconv"
	"time"

	"github.com/vitistack/stack/apis/cluster/plan"
	"github.com/vitistack/stack/functions/bootstrap-talos/talos"
	"github.com/vitistack/stack/functions/internal/kube"
	"github.com/vitistack/stack/functions/internal/reconcile"
)

// reasonChangingNodes is the reason for which a cluster waits whose nodes get new configurations.
const reasonChangingNodes = "ChangingNodes"

// renderTime is the time within which Talos begins to render the static pods of a changed
// configuration.
const renderTime = time.Second

// awaitOtherControlPlanes waits until every other control plane runs its static pods as rendered,
// because changing a node restarts its API server. A node whose API server does not answer may always
// be changed, because the change may let it recover.
func awaitOtherControlPlanes(ctx context.Context, c *cluster, changing plan.Member) error {
	var others []plan.Member
	for _, m := range c.plan.ControlPlanes() {
		if m.Name != changing.Name && plan.IsInstalled(c.observed.machines[m.Name]) {
			others = append(others, m)
		}
	}
	if len(others) == 0 || checkAPIServer(ctx, c, changing.Name) != nil {
		return nil
	}
	return awaitStaticPods(ctx, c, others...)
}

// awaitStaticPods waits until control planes run their static pods as rendered, and their API servers
// answer. It looks twice, because Talos renders a moment after a change, and more than once. The second look
// belongs to the same attempt of Poll, because the pauses of Poll are shorter and end at the deadline.
func awaitStaticPods(ctx context.Context, c *cluster, members ...plan.Member) error {
	return reconcile.Poll(ctx, c.deadline, func(ctx context.Context) error {
		var before map[string]map[string]talos.PodVersions
		for {
			now := map[string]map[string]talos.PodVersions{}
			for _, m := range members {
				pods, err := readStaticPods(ctx, c, m.Name)
				if err != nil {
					return waitForStaticPods(m.Name, err)
				}
				now[m.Name] = pods
			}
			if maps.EqualFunc(before, now, maps.Equal) {
				return nil
			}
			before = now
			select {
			case <-ctx.Done():
				return ctx.Err()
			case <-time.After(renderTime):
			}
		}
	})
}

// waitForStaticPods returns the error about a control plane that does not run its static pods as rendered.
func waitForStaticPods(node string, err error) error {
	reason := kube.Text(err.Error(), talos.MaxDiff)
	message := fmt.Sprintf("waiting for the control plane of node %s to run its new configuration: %s", node, reason)
	return reconcile.WaitError{Reason: reasonChangingNodes, Message: message, Requeue: true}
}

// readStaticPods returns the static pods of a control plane as Talos has rendered them, or an error if the
// kubelet does not run exactly these, one is not Ready, or the API server does not answer.
func readStaticPods(ctx context.Context, c *cluster, node string) (map[string]talos.PodVersions, error) {
	machine := c.observed.machines[node]
	if !plan.IsRunning(machine) {
		return nil, errors.New("the machine does not run")
	}
	rendered, err := talos.RenderedPods(ctx, plan.Address(machine), c.connections.credentials)
	if err != nil {
		return nil, err
	}
	for name, versions := range rendered {
		mirror := name + "-" + node
		annotations, ready, err := c.connections.workload.SystemPod(ctx, mirror)
		switch {
		case err != nil:
			return nil, err
		case talos.VersionsOf(annotations) != versions:
			return nil, fmt.Errorf("pod kube-system/%s is not the one that Talos has rendered", mirror)
		case !ready:
			return nil, fmt.Errorf("pod kube-system/%s is not Ready", mirror)
		}
	}
	return rendered, checkAPIServer(ctx, c, node)
}

// checkAPIServer returns an error unless the API server of a control plane answers.
func checkAPIServer(ctx context.Context, c *cluster, node string) error {
	host := net.JoinHostPort(plan.Address(c.observed.machines[node]), strconv.Itoa(int(c.plan.LocalPort())))
	_, err := c.connections.workload.At("https://" + host).Version(ctx)
	return err
}
