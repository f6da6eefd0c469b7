package main

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"slices"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/vitistack/stack/apis/cluster/plan"
	"github.com/vitistack/stack/apis/v1alpha1"
	"github.com/vitistack/stack/functions/internal/kube"
	"github.com/vitistack/stack/functions/internal/reconcile"
)

// resizer resizes the machines of pools in place.
type resizer struct {
	kube     *kube.Client
	machines *machineStore
	nodes    *nodeLister
	etcd     *etcdChecker
	status   *statusWriter
	now      func() time.Time
}

// readClasses reads the MachineClasses if it depends on them which machines can be resized in place.
func (rs *resizer) readClasses(ctx context.Context, c *cluster) error {
	if !c.plan.NeedsClasses(c.observed.machines) {
		return nil
	}
	list, err := kube.ListShared[v1alpha1.MachineClassList](ctx, rs.kube, "", metav1.ListOptions{})
	if err != nil {
		return err
	}
	c.observed.classes = list.Items
	return nil
}

// resizeOutdated begins to resize machines in place whose template is not that of their pool. It runs
// while the whole cluster is Ready, and returns a WaitError until every such machine is resized.
func (rs *resizer) resizeOutdated(ctx context.Context, c *cluster) error {
	outdated := c.outdated()
	if len(outdated.InPlace) == 0 || plan.IsUpgradePaused(c.KubernetesCluster) {
		return nil
	}
	rs.beginResizes(ctx, c)
	waiting := c.resizeReport()
	if waiting == nil {
		message := "resizing machines in place: " + outdated.Describe()
		if c.report.resizeBlocker != "" {
			message += "; " + c.report.resizeBlocker
		}
		return reconcile.WaitError{Reason: plan.ReasonResizing, Message: message, Requeue: true}
	}
	if err := rs.status.reportWaiting(ctx, c, waiting); !errors.As(err, new(reconcile.WaitError)) {
		return err
	}
	return cmp.Or(rs.status.patch(ctx, c), waiting)
}

// resume does the next steps of the machines that are being resized, and begins with others. It
// returns a WaitError until all are resized, and a UserError when one has failed. Each step is in the
// status first, so that a crash loses nothing and two deliveries do nothing twice.
func (rs *resizer) resume(ctx context.Context, c *cluster) error {
	fresh := true
	return reconcile.Poll(ctx, c.deadline, func(ctx context.Context) error {
		if !fresh {
			if err := rs.machines.read(ctx, c); err != nil {
				return err
			}
			_ = rs.nodes.list(ctx, c) // an API that does not answer is what a control plane's restart looks like
		}
		fresh = false
		return rs.resizeOnce(ctx, c)
	})
}

// resizeOnce does at most one step with each machine.
func (rs *resizer) resizeOnce(ctx context.Context, c *cluster) error {
	outdated := c.outdated()
	c.Status.Resizes = slices.DeleteFunc(c.Status.Resizes, func(r v1alpha1.MachineResize) bool {
		m := c.observed.machines[r.Name]
		return m == nil || m.UID != r.UID || plan.IsLeaving(m)
	})
	done := map[string]bool{}
	for i := range c.Status.Resizes {
		r := &c.Status.Resizes[i]
		done[r.Name] = rs.doResizeStep(ctx, c, r, c.plan.ResizeTarget(c.observed.machines[r.Name], outdated))
	}
	c.Status.Resizes = slices.DeleteFunc(c.Status.Resizes, func(r v1alpha1.MachineResize) bool { return done[r.Name] })
	if err := uncordonNodes(ctx, c); err != nil {
		return err
	}
	if len(c.Status.Resizes) > 0 && !plan.IsUpgradePaused(c.KubernetesCluster) {
		rs.beginResizes(ctx, c)
	}
	setNodes(c)
	if err := rs.status.patch(ctx, c); err != nil {
		return err
	}
	for _, r := range c.Status.Resizes {
		if err := rs.restartResized(ctx, c, r); err != nil {
			return err
		}
	}
	return c.resizeReport()
}

// doResizeStep does the next step of a machine, except its restart, and reports whether its resize is
// completed or cancelled. target is the template that the machine should have: see plan.ResizeTarget.
func (rs *resizer) doResizeStep(ctx context.Context, c *cluster, r *v1alpha1.MachineResize, target string) bool {
	m := c.observed.machines[r.Name]
	var node *plan.Node
	if n, ok := c.observed.node(r.Name); ok && c.observed.apiAnswers {
		node = &n
	}
	plan.RenewResize(r, target, node, c.Generation, metav1.NewTime(rs.now()))
	switch plan.NextResizeStep(*r, m, node, target, rs.now()) {
	case plan.ResizeFinish, plan.ResizeCancel:
		return true
	case plan.ResizeDrain:
		rs.drainResized(ctx, c, r, node)
	case plan.ResizeFail:
		rs.failResize(r, fmt.Sprintf("its node is not Ready with the new size after %s%s", plan.ResizeTimeout, plan.NotReadySuffix(m)))
	case plan.ResizeWait, plan.ResizeRestart:
		if r.Step == v1alpha1.ResizeRestarting {
			r.Message = v1alpha1.WhyNotReady(m.Status.Conditions)
		}
	}
	return false
}

// drainResized drains the node of a machine. After the drain, the next step is the restart, for a control
// plane only while every member of etcd votes and answers.
func (rs *resizer) drainResized(ctx context.Context, c *cluster, r *v1alpha1.MachineResize, node *plan.Node) {
	m := c.observed.machines[r.Name]
	isDrained := false
	if r.Message = "waiting for the workload API to return its node"; node != nil {
		isDrained, r.Message = cordonAndEvict(ctx, c, m, *node)
	}
	if isDrained && plan.PoolOf(m) == v1alpha1.ControlPlanePool {
		r.Message = messageOf(rs.etcd.checkMembers(ctx, c))
		isDrained = r.Message == ""
	}
	if isDrained {
		r.Step, r.Since, r.BootID = v1alpha1.ResizeRestarting, metav1.NewTime(rs.now()), node.BootID
		return
	}
	if failure := plan.DrainFailure(c.plan.PropertiesOf(plan.PoolOf(m)), r.Since.Time, rs.now(), r.Message); failure != "" {
		rs.failResize(r, failure)
	}
}

// cordonAndEvict cordons the node of a machine, unless it is cordoned, and evicts its pods.
func cordonAndEvict(ctx context.Context, c *cluster, m *v1alpha1.Machine, node plan.Node) (isDrained bool, message string) {
	if !node.Cordoned {
		if err := c.connections.workload.CordonForResize(ctx, node.Name, string(m.UID)); err != nil {
			return false, err.Error()
		}
	}
	return c.connections.workload.EvictPods(ctx, node.Name)
}

// messageOf returns what an error says, without the reason of a WaitError, and an empty string without
// an error.
func messageOf(err error) string {
	var w reconcile.WaitError
	switch {
	case err == nil:
		return ""
	case errors.As(err, &w):
		return w.Message
	default:
		return err.Error()
	}
}

func (rs *resizer) failResize(r *v1alpha1.MachineResize, message string) {
	r.Step, r.Since, r.Message = v1alpha1.ResizeFailed, metav1.NewTime(rs.now()), message
}

// restartResized gives a Machine its new template and a new restart token at once, if its resize is that
// far. A second call finds the template, and changes nothing.
func (rs *resizer) restartResized(ctx context.Context, c *cluster, r v1alpha1.MachineResize) error {
	m := c.observed.machines[r.Name]
	if r.Step != v1alpha1.ResizeRestarting || m.Spec.Template == r.To {
		return nil
	}
	before := m.DeepCopy()
	metav1.SetMetaDataLabel(&m.ObjectMeta, v1alpha1.LabelMachineTemplate, r.To)
	m.Spec.Template, m.Spec.RestartToken = r.To, plan.ResizeRestartToken(r)
	_, err := rs.kube.Patch(ctx, before, m)
	if message, refused := kube.RejectionMessage(err); refused {
		return reconcile.UserError{Reason: "MachineRefused", Message: message}
	}
	return err
}

// beginResizes records in the status with which machines the resize begins now: none while one has failed
// or the cluster is unhealthy. The first step of each follows in the next call of resizeOnce.
func (rs *resizer) beginResizes(ctx context.Context, c *cluster) {
	c.report.resizeBlocker = ""
	if plan.FailedResize(c.Status.Resizes) != nil {
		return
	}
	outdated := c.outdated()
	names := c.plan.NextResizes(c.Name, c.observed.machines, outdated, c.Status.Resizes)
	if len(names) == 0 {
		return
	}
	if c.report.resizeBlocker = rs.resizeBlocker(ctx, c); c.report.resizeBlocker != "" {
		return
	}
	for _, name := range names {
		m := c.observed.machines[name]
		c.Status.Resizes = append(c.Status.Resizes, v1alpha1.MachineResize{
			Name: name, UID: m.UID, Step: v1alpha1.ResizeDraining, Generation: c.Generation,
			From: m.Spec.Template, To: c.plan.ResizeTarget(m, outdated), Since: metav1.NewTime(rs.now()),
		})
		rs.kube.RecordEvent(ctx, c.KubernetesCluster, false, plan.ReasonResizing, fmt.Sprintf("resizing Machine %s of pool %s in place: it has %s", name, plan.PoolOf(m), outdated.InPlace[name]))
	}
}

// resizeBlocker returns why no other node may be taken out of service now. It is empty if every node is
// Ready that is not being resized, and every member of etcd votes and answers.
func (rs *resizer) resizeBlocker(ctx context.Context, c *cluster) string {
	if leaving := c.observed.leavingNode(); leaving != "" {
		return "node " + leaving + " is leaving"
	}
	if !c.observed.apiAnswers {
		return "the workload API does not answer"
	}
	if err := checkNodesReady(ctx, c); err != nil {
		return messageOf(err)
	}
	return messageOf(rs.etcd.checkMembers(ctx, c))
}

// resizeReport returns what the machines wait for that are being resized, a UserError if one has failed, and nil
// if there are none.
func (c *cluster) resizeReport() error {
	if failure, hasFailed := plan.ResizeFailure(c.Status.Resizes); hasFailed {
		return failure
	}
	if len(c.Status.Resizes) == 0 {
		return nil
	}
	return reconcile.WaitError{Reason: plan.ReasonResizing, Message: "resizing machines in place: " + plan.DescribeResizes(c.Status.Resizes), Requeue: true}
}
