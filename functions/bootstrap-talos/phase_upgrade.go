package main

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"net"
	"slices"
	"strconv"
	"strings"
	"sync"
	"time"

	"golang.org/x/sync/errgroup"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/vitistack/stack/apis/cluster/plan"
	"github.com/vitistack/stack/apis/v1alpha1"
	"github.com/vitistack/stack/functions/bootstrap-talos/talos"
	"github.com/vitistack/stack/functions/bootstrap-talos/workload"
	"github.com/vitistack/stack/functions/internal/reconcile"
)

// reasonUpgradePaused is the reason of conditions that are False until an upgrade continues.
const reasonUpgradePaused = "UpgradePaused"

// reportUpgrade reports how far an upgrade is.
func (c *cluster) reportUpgrade(nodes []plan.UpgradeNode) error {
	s := c.Status.Upgrade
	what := map[v1alpha1.UpgradeKind]string{
		v1alpha1.UpgradeTalos:        "Talos to " + c.plan.Talos,
		v1alpha1.UpgradeControlPlane: "the control plane to Kubernetes " + c.plan.Kubernetes,
		v1alpha1.UpgradeKubelet:      "the kubelets to Kubernetes " + c.plan.Kubernetes,
	}[s.Kind]
	skew := cmp.Or(plan.DescribeVersions(nodes), "the workload API does not answer")
	if u := plan.FailedNode(s); u != nil {
		remedy := "change the versions"
		if s.Kind != v1alpha1.UpgradeTalos {
			remedy = "correct the patch of its configuration if that is the reason, change the versions"
		}
		message := fmt.Sprintf("the upgrade of %s has stopped: node %s: %s; %s, or set spec.upgrade.paused to true and back to try again", what, u.Name, u.Message, remedy)
		c.report.versions = conditionReport{false, "UpgradeFailed", skew}
		return reconcile.UserError{Reason: "UpgradeFailed", Message: message}
	}
	var names []string
	for _, u := range s.Nodes {
		name := u.Name
		if u.Message != "" {
			name += " (" + u.Message + ")"
		}
		names = append(names, name)
	}
	switch {
	case len(names) > 0:
		c.report.versions = conditionReport{false, "Upgrading", skew}
		return reconcile.WaitError{Reason: "Upgrading", Message: fmt.Sprintf("upgrading %s, %s nodes are done, now %s", what, s.Progress, strings.Join(names, ", ")), Requeue: true}
	case plan.IsUpgradePaused(c.KubernetesCluster):
		c.report.versions = conditionReport{false, reasonUpgradePaused, skew + "; spec.upgrade.paused is true"}
		return nil
	default:
		c.report.versions = conditionReport{false, "Upgrading", skew}
		message := fmt.Sprintf("upgrading %s, %s nodes are done", what, s.Progress)
		if c.report.upgradeBlocker != "" {
			message += "; " + c.report.upgradeBlocker
		}
		return reconcile.WaitError{Reason: "Upgrading", Message: message, Requeue: true}
	}
}

// upgrader upgrades the nodes of clusters to the versions of their plans.
type upgrader struct {
	etcd   *etcdChecker
	images talos.Images
	status *statusWriter
	now    func() time.Time
}

// upgradeNodes upgrades the nodes to the wanted versions. It returns a WaitError while it does, and a
// UserError when a node has failed. Each step is in the status first, so that a crash loses
// nothing and two deliveries do nothing twice.
func (up *upgrader) upgradeNodes(ctx context.Context, c *cluster) error {
	w, fresh := c.connections.workload, true
	return reconcile.Poll(ctx, c.deadline, func(ctx context.Context) error {
		if !fresh {
			nodes, err := w.Nodes(ctx)
			if err != nil {
				return reconcile.WaitError{Reason: "WaitingForAPI", Message: "waiting for the workload API at " + c.Status.Endpoint, Requeue: true}
			}
			c.observed.recordNodes(nodes)
		}
		fresh = false
		return up.doStep(ctx, c, w)
	})
}

// doStep does at most one step with each node.
func (up *upgrader) doStep(ctx context.Context, c *cluster, w *workload.Client) error {
	nodes := observeVersions(ctx, c, w)
	c.Status.Version = plan.LowestAPIVersion(c.Status.Version, nodes)
	s := c.Status.Upgrade
	if s == nil || len(s.Nodes) == 0 {
		kind := c.plan.NextUpgradeKind(nodes)
		if kind == "" {
			if s != nil {
				if err := refreshAddons(ctx, c); err != nil {
					return err
				}
			}
			c.Status.Upgrade, c.Status.TalosVersion = nil, c.plan.Talos
			c.report.versions = conditionReport{true, "VersionsCurrent", fmt.Sprintf("every node runs Kubernetes %s on Talos %s", c.plan.Kubernetes, c.plan.Talos)}
			return nil
		}
		s = &v1alpha1.UpgradeStatus{Kind: kind, Generation: c.Generation}
		c.Status.Upgrade = s
	}
	c.plan.RenewUpgrade(s, c.Generation, nodes, metav1.NewTime(up.now()))
	if err := uncordonNodes(ctx, c); err != nil {
		return err
	}
	left := len(c.plan.OutdatedNodes(s.Kind, nodes))
	s.Progress = fmt.Sprintf("%d/%d", len(nodes)-left, len(nodes))
	setNodes(c)
	if err := up.runSteps(ctx, c, w, nodes); err != nil {
		return err
	}
	return c.reportUpgrade(nodes)
}

// resume continues the upgrade of control planes while the workload API does not answer, because their new API servers, or a new
// Talos that does not boot, may be why: the upgrade times out, and a node gets the version that the spec has then.
func (up *upgrader) resume(ctx context.Context, c *cluster) error {
	s, w := c.Status.Upgrade, c.connections.workload
	if s.Kind == v1alpha1.UpgradeKubelet || w == nil || c.connections.credentials == nil {
		return nil
	}
	nodes := observeVersions(ctx, c, w)
	c.plan.RenewUpgrade(s, c.Generation, nodes, metav1.NewTime(up.now()))
	if !slices.ContainsFunc(s.Nodes, func(u v1alpha1.NodeUpgrade) bool {
		return plan.MayStopAPI(s.Kind, u, *plan.FindNode(nodes, u.Name), up.now())
	}) {
		return nil
	}
	if err := up.runSteps(ctx, c, w, nodes); err != nil {
		return err
	}
	return c.reportUpgrade(nodes)
}

// observeVersions returns the versions that each member runs.
func observeVersions(ctx context.Context, c *cluster, w *workload.Client) []plan.UpgradeNode {
	nodes := make([]plan.UpgradeNode, len(c.plan.Members))
	var group errgroup.Group
	group.SetLimit(plan.MaxConcurrentNodes)
	for i, m := range c.plan.Members {
		nodes[i].Member = m
		nodes[i].Node, _ = c.observed.node(m.Name)
		if m.Role != v1alpha1.RoleControlPlane || !plan.IsRunning(c.observed.machines[m.Name]) {
			continue
		}
		group.Go(func() error {
			host := "https://" + net.JoinHostPort(plan.Address(c.observed.machines[m.Name]), strconv.Itoa(int(c.plan.LocalPort())))
			nodes[i].APIVersion, _ = w.At(host).Version(ctx) // empty where it does not answer
			return nil
		})
	}
	_ = group.Wait()
	return nodes
}

// runSteps does the next step of the nodes that are being upgraded, and begins with
// others unless something blocks that.
func (up *upgrader) runSteps(ctx context.Context, c *cluster, w *workload.Client, nodes []plan.UpgradeNode) error {
	s := c.Status.Upgrade
	steps := map[string]plan.UpgradeStep{}
	for _, u := range s.Nodes {
		steps[u.Name] = plan.NextUpgradeStep(s.Kind, u, *plan.FindNode(nodes, u.Name), up.now())
	}
	up.drainNodes(ctx, c, w, steps, nodes)
	for i := range s.Nodes {
		plan.RecordStep(s.Kind, &s.Nodes[i], steps[s.Nodes[i].Name], plan.FindNode(nodes, s.Nodes[i].Name), metav1.NewTime(up.now()))
	}
	s.Nodes = slices.DeleteFunc(s.Nodes, func(u v1alpha1.NodeUpgrade) bool { return steps[u.Name] == plan.UpgradeFinish })
	for _, o := range up.nextNodes(ctx, c, nodes) {
		u := v1alpha1.NodeUpgrade{
			Name: o.Name, Step: v1alpha1.UpgradeDraining, From: o.RunningVersion(s.Kind), To: c.plan.WantedVersion(s.Kind, o.Member),
			Since: metav1.NewTime(up.now()), Cordoned: s.Kind == v1alpha1.UpgradeTalos && (!o.Node.Cordoned || o.Node.Annotations[v1alpha1.AnnotationUpgrading] != ""),
		}
		s.Nodes = append(s.Nodes, u)
	}
	if err := up.status.patch(ctx, c); err != nil {
		return err
	}
	up.sendRequests(ctx, c, steps)
	return nil
}

// drainNodes drains the nodes in step Drain, and uncordons upgraded nodes. A completed drain becomes
// an upgrade request, and a drain that times out a failure.
func (up *upgrader) drainNodes(ctx context.Context, c *cluster, w *workload.Client, steps map[string]plan.UpgradeStep, nodes []plan.UpgradeNode) {
	s := c.Status.Upgrade
	var mu sync.Mutex
	forEachNode(s.Nodes, func(u *v1alpha1.NodeUpgrade) {
		mu.Lock()
		now := steps[u.Name]
		mu.Unlock()
		message := u.Message
		switch now {
		case plan.UpgradeDrain:
			if now, message = drainNode(ctx, c, w, *u); now == plan.UpgradeDrain {
				now = plan.UpgradeWait
				if failure := plan.DrainFailure(plan.FindNode(nodes, u.Name).Properties, u.Since.Time, up.now(), message); failure != "" {
					now, message = plan.UpgradeFail, failure
				}
			}
		case plan.UpgradeFinish:
			if u.Cordoned {
				if err := w.UncordonUpgraded(ctx, u.Name); err != nil {
					now, message = plan.UpgradeWait, err.Error()
				}
			}
		}
		mu.Lock()
		defer mu.Unlock()
		steps[u.Name], u.Message = now, message
	})
}

// drainNode drains a node. Only an upgrade of Talos reboots it, and so needs that.
func drainNode(ctx context.Context, c *cluster, w *workload.Client, u v1alpha1.NodeUpgrade) (plan.UpgradeStep, string) {
	if c.Status.Upgrade.Kind != v1alpha1.UpgradeTalos {
		return plan.UpgradeRequest, ""
	}
	if m := c.observed.machines[u.Name]; u.Cordoned && m != nil {
		if err := w.CordonForUpgrade(ctx, u.Name, string(m.UID)); err != nil {
			return plan.UpgradeDrain, err.Error()
		}
	}
	isDrained, message := w.EvictPods(ctx, u.Name)
	if !isDrained {
		return plan.UpgradeDrain, message
	}
	return plan.UpgradeRequest, message
}

// forEachNode calls do for nodes, some at the same time.
func forEachNode(nodes []v1alpha1.NodeUpgrade, do func(*v1alpha1.NodeUpgrade)) {
	var group errgroup.Group
	group.SetLimit(plan.MaxConcurrentNodes)
	for i := range nodes {
		group.Go(func() error {
			do(&nodes[i])
			return nil
		})
	}
	_ = group.Wait()
}

// nextNodes returns the nodes whose upgrade begins now: none while one has failed or the
// cluster is unhealthy.
func (up *upgrader) nextNodes(ctx context.Context, c *cluster, nodes []plan.UpgradeNode) []plan.UpgradeNode {
	s := c.Status.Upgrade
	c.report.upgradeBlocker = ""
	if plan.IsUpgradePaused(c.KubernetesCluster) || plan.FailedNode(s) != nil {
		return nil
	}
	next := c.plan.NextNodesToUpgrade(s.Kind, nodes, s.Nodes, plan.UpgradeConcurrency(c.KubernetesCluster))
	if len(next) > 0 {
		if c.report.upgradeBlocker = up.upgradeBlocker(ctx, c, nodes, next[0].Member); c.report.upgradeBlocker != "" {
			return nil
		}
	}
	return next
}

// upgradeBlocker returns why the next node may not be taken out of service now. It is empty if every
// other node is Ready, every API server answers, and every member of etcd votes and answers. A control plane also
// waits for the others to run their static pods as rendered, because one whose API server answers may be about to restart it.
func (up *upgrader) upgradeBlocker(ctx context.Context, c *cluster, nodes []plan.UpgradeNode, next plan.Member) string {
	for _, o := range nodes {
		switch {
		case plan.IsNodeUpgrading(c.KubernetesCluster, o.Name):
		case !o.Node.Ready:
			return "node " + o.Name + " is not Ready"
		case o.Role == v1alpha1.RoleControlPlane && o.APIVersion == "":
			return "the API server of " + o.Name + " does not answer"
		}
	}
	if leaving := c.observed.leavingNode(); leaving != "" {
		return "node " + leaving + " is leaving"
	}
	err := up.etcd.checkMembers(ctx, c)
	if err == nil && next.Role == v1alpha1.RoleControlPlane {
		err = awaitOtherControlPlanes(ctx, c, next)
	}
	var w reconcile.WaitError
	switch {
	case errors.As(err, &w):
		return w.Message
	case err != nil:
		return err.Error()
	default:
		return ""
	}
}

// sendRequests sends the request to each node whose step that is. A node that refuses has
// failed, one that does not answer gets another request later, and one that has not pulled its images in time at once.
func (up *upgrader) sendRequests(ctx context.Context, c *cluster, steps map[string]plan.UpgradeStep) {
	s := c.Status.Upgrade
	forEachNode(s.Nodes, func(u *v1alpha1.NodeUpgrade) {
		if steps[u.Name] != plan.UpgradeRequest || !plan.IsRunning(c.observed.machines[u.Name]) {
			return
		}
		var err error
		address := plan.Address(c.observed.machines[u.Name])
		if s.Kind == v1alpha1.UpgradeTalos {
			err = talos.UpgradeTalos(ctx, address, c.connections.credentials, up.images.Installer(c.KubernetesCluster, u.To), u.To)
		} else {
			err = talos.UpgradeKubernetes(ctx, address, c.connections.credentials, s.Kind, u.To)
		}
		var refused reconcile.UserError
		var wait reconcile.WaitError
		switch {
		case errors.As(err, &refused):
			u.Step, u.Since, u.Message = v1alpha1.UpgradeFailed, metav1.NewTime(up.now()), refused.Message
		case errors.As(err, &wait):
			u.Message = wait.Message
			if wait.Requeue {
				u.Asked = nil
			}
		}
	})
}
