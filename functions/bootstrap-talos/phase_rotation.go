package main

// The authorities of a cluster are rotated as talosctl rotate-ca does it. Each phase only changes
// the authorities that nodes have, and begins when every node has completed the phase before, so
// that neighbouring phases work together. The phase is stored with the next keys: a delivery that
// reads them knows which nodes have them.

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/siderolabs/talos/pkg/machinery/config"
	"golang.org/x/sync/errgroup"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/vitistack/stack/apis/cluster/plan"
	"github.com/vitistack/stack/apis/v1alpha1"
	"github.com/vitistack/stack/functions/bootstrap-talos/talos"
	"github.com/vitistack/stack/functions/internal/kube"
	"github.com/vitistack/stack/functions/internal/reconcile"
)

// reasonTalosTooOld is the reason of AuthoritiesRotated if Talos cannot accept two authorities.
const reasonTalosTooOld = "TalosTooOld"

// rotator rotates the authorities of clusters.
type rotator struct {
	kube    *kube.Client
	secrets *secretStore
	status  *statusWriter
	now     func() time.Time
}

// read records how far a rotation is, and makes the client certificate that every node
// accepts in its phase.
func (r *rotator) read(_ context.Context, c *cluster) error {
	if err := c.recordRotation(metav1.NewTime(r.now())); err != nil {
		return err
	}
	var err error
	c.connections.credentials, err = c.observed.keys.Credentials()
	return err
}

// recordRotation writes into the status how far the rotation of the keys is. If the next keys
// that nodes have do not exist, it returns a UserError.
func (c *cluster) recordRotation(now metav1.Time) error {
	k, s := c.observed.keys, c.Status.Authorities
	begun := plan.IsRotating(c.KubernetesCluster) && s.Rotation != k.Rotated
	wanted := plan.WantedRotation(c.KubernetesCluster)
	if k.Next == nil && k.Rotated != "" && !begun {
		c.Status.Authorities = &v1alpha1.AuthoritiesStatus{Completed: k.Rotated}
		c.report.authorities = conditionReport{true, v1alpha1.ConditionAuthoritiesRotated, "the authorities are those of rotation " + k.Rotated}
	}
	switch {
	case k.Next != nil:
		if s == nil || s.Rotation != k.Rotation || s.Phase != k.Phase {
			c.Status.Authorities = &v1alpha1.AuthoritiesStatus{Rotation: k.Rotation, Phase: k.Phase, Since: &now, Completed: k.Rotated}
		}
		c.reportRotation("waiting for the workload API")
	case begun && s.Phase != v1alpha1.RotationAccepting:
		c.report.apiUnanswered = true
		return reconcile.UserError{Reason: "KeysLost", Message: fmt.Sprintf(
			"Secret %s is gone, and nodes have certificates of the authorities in it: restore it from a backup, or delete the cluster and create it again", secretName(c.KubernetesCluster, nextPKISecret))}
	case begun:
		c.report.authorities = conditionReport{false, string(s.Phase), "rotation " + s.Rotation + " begins"}
	case wanted != "" && wanted != k.Rotated && !c.plan.Contract.Greater(config.TalosVersion1_6):
		c.report.authorities = conditionReport{false, reasonTalosTooOld, fmt.Sprintf(
			"Talos %s cannot accept two authorities at a time: write 1.7.0 or a later version into spec.talos.version, and rotation %s follows", c.plan.Talos, wanted)}
	case wanted != "" && wanted != k.Rotated:
		c.report.authorities = conditionReport{false, "WaitingForCluster", fmt.Sprintf(
			"rotation %s begins when every node is Ready and runs the wanted versions and configuration", wanted)}
	}
	return nil
}

// reportRotation reports how far the rotation is, and what it waits for.
func (c *cluster) reportRotation(waits string) {
	s := c.Status.Authorities
	message := "rotation " + s.Rotation
	if words := plan.RotationProgress[s.Phase]; words != "" && s.Progress != "" {
		message += fmt.Sprintf(": %s of the nodes %s", s.Progress, words)
	}
	if waits != "" {
		message += "; " + waits
	}
	c.report.authorities = conditionReport{false, string(s.Phase), message}
}

// start generates the next keys of a cluster that is up to date, if its spec requests a
// rotation. It records that in the status first.
func (r *rotator) start(ctx context.Context, c *cluster) error {
	rotation := plan.WantedRotation(c.KubernetesCluster)
	if plan.IsRotating(c.KubernetesCluster) && c.Status.Authorities.Rotation != c.observed.keys.Rotated {
		rotation = c.Status.Authorities.Rotation
	}
	if rotation == "" || rotation == c.observed.keys.Rotated || !c.report.config.current || c.report.authorities.reason == reasonTalosTooOld {
		return nil
	}
	if !plan.IsRotating(c.KubernetesCluster) {
		now := metav1.NewTime(r.now())
		c.Status.Authorities = &v1alpha1.AuthoritiesStatus{Rotation: rotation, Phase: v1alpha1.RotationAccepting, Since: &now, Completed: c.observed.keys.Rotated}
		if err := r.status.patch(ctx, c); err != nil {
			return err
		}
	}
	data, err := talos.WithNewAuthorities(c.observed.keys.Present, r.now(), c.plan.Contract)
	if err != nil {
		return err
	}
	secret := keysSecret(c.KubernetesCluster, nextPKISecret, rotation, data)
	secret.Annotations[v1alpha1.AnnotationRotationPhase] = string(v1alpha1.RotationAccepting)
	if err := r.kube.Create(ctx, secret); err != nil {
		return err
	}
	c.reportRotation("begins")
	r.kube.RecordEvent(ctx, c.KubernetesCluster, false, "RotationStarted", fmt.Sprintf("rotation %s of the certificate authorities of the Talos API and of Kubernetes has started", rotation))
	return nil
}

// reconcile continues a rotation until its phase ends or the deadline is over. waiting
// is what the cluster waits for otherwise: nodes that are not Ready may need the next step of
// the rotation.
func (r *rotator) reconcile(ctx context.Context, c *cluster, waiting error) error {
	if errors.As(waiting, new(reconcile.UserError)) {
		return waiting
	}
	clients, err := talos.NewRotationClients(c.observed.keys)
	if err != nil {
		return err
	}
	err = reconcile.Poll(ctx, c.deadline, func(ctx context.Context) error { return r.doStep(ctx, c, clients) })
	if errors.As(err, new(reconcile.WaitError)) {
		err = nil // the condition reports it
		if c.hasPolled(ctx) && len(clients.Renew) > 0 {
			err = r.revertWorkers(ctx, c, clients)
		}
	}
	if err == nil {
		err = waiting
	}
	if err == nil && c.observed.keys.Phase != v1alpha1.RotationFinishing {
		err = checkNodesReady(ctx, c)
	}
	return err
}

// doStep observes every node and does the next step. It returns a WaitError while the
// phase lasts.
func (r *rotator) doStep(ctx context.Context, c *cluster, clients *talos.RotationClients) error {
	if c.observed.keys.Phase == v1alpha1.RotationFinishing {
		return r.finish(ctx, c)
	}
	nodes, err := c.connections.workload.Nodes(ctx)
	if err == nil {
		c.observed.recordNodes(nodes)
	}
	shown := observeRotation(ctx, c, clients)
	serve := c.isKubeconfigCurrent(r.now())
	step := plan.DecideRotation(c.observed.keys.Phase, shown, serve)
	clients.Renew = step.Renew
	if !serve && step.Done == len(shown) {
		if err := r.secrets.ensureClientConfigs(ctx, c); err != nil { // a node can sign a kubeconfig by now
			return err
		}
	}
	c.Status.Authorities.Progress = fmt.Sprintf("%d/%d", step.Done, len(shown))
	c.reportRotation(step.WaitsFor)
	if step.Next == v1alpha1.RotationRemovingKubernetes {
		if err := c.connections.workload.RestartAddons(ctx, c.observed.keys.Rotation, func(ca []byte) bool {
			return talos.SameCertificates(ca, c.observed.keys.Next.Certs.K8s.Crt)
		}); err != nil {
			if w := (reconcile.WaitError{}); errors.As(err, &w) {
				c.reportRotation(w.Message)
			}
			return err
		}
	}
	if step.Next != "" {
		return r.enterPhase(ctx, c, step.Next)
	}
	if len(step.Change) > 0 {
		if err := r.secrets.checkKeys(ctx, c); err != nil {
			return err
		}
		if err := clients.ChangeAuthorities(ctx, c.observed.keys, c.observed.addressesOf(step.Change)); err != nil {
			return err
		}
	}
	return reconcile.WaitError{Reason: "Rotating", Message: step.WaitsFor, Requeue: true}
}

// revertWorkers gives workers that wait in vain for a certificate the authorities of the phase
// before. The next step gives them those of this phase again, which makes them request a
// certificate.
func (r *rotator) revertWorkers(ctx context.Context, c *cluster, clients *talos.RotationClients) error {
	if err := r.secrets.checkKeys(ctx, c); err != nil {
		return err
	}
	return clients.ChangeAuthorities(ctx, c.observed.keys.InPhaseBefore(), c.observed.addressesOf(clients.Renew))
}

// enterPhase writes the next phase into the Secret of the next keys. The status change causes
// the delivery that continues.
func (r *rotator) enterPhase(ctx context.Context, c *cluster, next v1alpha1.RotationPhase) error {
	before := c.observed.keys.NextSecret
	after := before.DeepCopy()
	metav1.SetMetaDataAnnotation(&after.ObjectMeta, v1alpha1.AnnotationRotationPhase, string(next))
	if _, err := r.kube.Patch(ctx, before, after); err != nil {
		return err
	}
	now := metav1.NewTime(r.now())
	s := c.Status.Authorities
	s.Phase, s.Since, s.Progress = next, &now, ""
	c.reportRotation("")
	return nil
}

// finish replaces the keys of the cluster by the next ones, which all nodes have. At
// each moment one Secret has them.
func (r *rotator) finish(ctx context.Context, c *cluster) error {
	k := c.observed.keys
	data := k.NextSecret.Data[pkiKey]
	if k.PresentSecret != nil && k.Rotated != k.Rotation {
		if err := r.kube.DeleteExactly(ctx, k.PresentSecret); err != nil {
			return err
		}
		k.PresentSecret = nil
	}
	if k.PresentSecret == nil {
		if err := r.kube.Create(ctx, keysSecret(c.KubernetesCluster, pkiSecret, k.Rotation, data)); err != nil {
			return err
		}
	}
	if err := r.kube.DeleteExactly(ctx, k.NextSecret); err != nil {
		return err
	}
	c.Status.Authorities = &v1alpha1.AuthoritiesStatus{Completed: k.Rotation}
	c.report.authorities = conditionReport{true, v1alpha1.ConditionAuthoritiesRotated, "the authorities are those of rotation " + k.Rotation}
	r.kube.RecordEvent(ctx, c.KubernetesCluster, false, "RotationFinished", fmt.Sprintf(
		"rotation %s is done: every talosconfig and kubeconfig that was handed out before it has ceased to work", k.Rotation))
	return nil
}

// observeRotation observes every node that has or may have a configuration. Other nodes get the
// configuration of the phase in which they join.
func observeRotation(ctx context.Context, c *cluster, clients *talos.RotationClients) []plan.RotatingNode {
	var shown []plan.RotatingNode
	for name, m := range c.observed.machines {
		if plan.IsInstalled(m) || plan.HasMachineConfig(m) {
			member := slices.ContainsFunc(c.plan.Members, func(p plan.Member) bool { return p.Name == name })
			shown = append(shown, plan.RotatingNode{Name: name, ControlPlane: plan.PoolOf(m) == v1alpha1.ControlPlanePool, Leaving: !member || plan.IsLeaving(m) || m.DeletionTimestamp != nil})
		}
	}
	slices.SortFunc(shown, func(a, b plan.RotatingNode) int { return strings.Compare(a.Name, b.Name) })
	var group errgroup.Group
	group.SetLimit(plan.MaxConcurrentNodes)
	for i := range shown {
		n := &shown[i]
		if m := c.observed.machines[n.Name]; n.Leaving || !plan.IsInstalled(m) || !plan.IsRunning(m) {
			continue
		}
		group.Go(func() error {
			node, _ := c.observed.node(n.Name)
			clients.Observe(ctx, c.observed.keys, plan.Address(c.observed.machines[n.Name]), c.plan.LocalPort(), node.Ready, n)
			return nil
		})
	}
	_ = group.Wait()
	return shown
}

// isKubeconfigCurrent reports whether the kubeconfig in its Secret is accepted in the phase of
// the rotation.
func (c *cluster) isKubeconfigCurrent(now time.Time) bool {
	return talos.IsKubeconfigCurrent(c.observed.kubeconfig, c.Status.Endpoint, c.observed.keys, now)
}
