package main

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/vitistack/stack/apis/cluster/plan"
	"github.com/vitistack/stack/apis/v1alpha1"
	"github.com/vitistack/stack/apis/v1alpha2"
	"github.com/vitistack/stack/events"
	"github.com/vitistack/stack/functions/bootstrap-talos/manifests"
	"github.com/vitistack/stack/functions/internal/kube"
	"github.com/vitistack/stack/functions/internal/reconcile"
)

// deleter deletes what belongs to clusters that are being deleted.
type deleter struct {
	kube      *kube.Client
	manifests *manifests.Store
	machines  *machineStore
	status    *statusWriter
}

// deleteCluster deletes the Machines and waits for them, then the virtual address, the saved
// manifests, and last the keys, without which a remaining node could not be reached. Nodes are
// not drained. If a hypervisor no longer exists, the annotation vitistack.io/force=true
// stops the wait for its machines. While a Machine is protected it deletes nothing and returns a
// UserError, because a part of a cluster is of no use, and the node needs its keys. A deletion with
// --cascade=orphan keeps everything that the garbage collector orphans.
func (d *deleter) deleteCluster(ctx context.Context, c *cluster) error {
	if slices.Contains(c.Finalizers, metav1.FinalizerOrphanDependents) {
		return d.status.write(ctx, c, setDeleting(c, reasonDeleting, "waiting for the garbage collector to orphan the Machines and Secrets of the cluster", false))
	}
	if err := d.machines.read(ctx, c); err != nil {
		return err
	}
	left := slices.Sorted(maps.Keys(c.observed.machines))
	if err := d.machines.deleteAll(ctx, c, left); err != nil {
		return err
	}
	forced := c.Annotations[v1alpha1.AnnotationForce] == "true"
	if len(left) > 0 && !forced {
		return d.status.write(ctx, c, setDeleting(c, reasonDeleting, fmt.Sprintf("waiting for %s to be deleted, the first is %s%s; the annotation %s=true on the KubernetesCluster skips this wait",
			plan.Plural(len(left), "machine"), left[0], plan.NotReadySuffix(c.observed.machines[left[0]]), v1alpha1.AnnotationForce), false))
	}
	if len(left) > 0 {
		kube.SetCondition(&c.Status.Conditions, c.Generation, v1alpha1.ConditionForced, true, "MachinesSkipped", "does not wait for these machines, which their provider has to delete: "+strings.Join(left, ", "))
		if err := d.status.write(ctx, c, setDeleting(c, reasonDeleting, fmt.Sprintf("not waiting for %s, the first is %s; the condition Forced lists them", plan.Plural(len(left), "machine"), left[0]), false)); err != nil {
			return err
		}
	}
	if err := deleteOwned(ctx, d.kube, c.KubernetesCluster, vipName(c.KubernetesCluster), &v1alpha2.IPAllocation{}); err != nil {
		return err
	}
	if err := d.manifests.DeleteAll(ctx, c.KubernetesCluster); err != nil {
		return err
	}
	for _, name := range []string{kubeconfigSecret, talosconfigSecret, nextPKISecret, pkiSecret} {
		if err := deleteOwned(ctx, d.kube, c.KubernetesCluster, secretName(c.KubernetesCluster, name), &corev1.Secret{}); err != nil {
			return err
		}
	}
	if !kube.RemoveFinalizer(c.KubernetesCluster, v1alpha1.FinalizerCluster) {
		return nil
	}
	if _, err := d.kube.Patch(ctx, c.before, c.KubernetesCluster); err != nil && !kube.NotFound(err) {
		return err
	}
	events.Report(ctx, string(v1alpha1.ClusterDeleting), "Removed cluster")
	return nil
}

// reconcile deletes what belongs to a cluster, and writes a UserError into its status.
func (d *deleter) reconcile(ctx context.Context, c *cluster) error {
	err := reconcile.SecretsError(d.deleteCluster(ctx, c), plan.FunctionName)
	var problem reconcile.UserError
	if !errors.As(err, &problem) {
		return err
	}
	return d.status.write(ctx, c, setDeleting(c, problem.Reason, problem.Message, true))
}

const reasonDeleting = "Deleting"

// setDeleting writes what a deletion waits for into the status.
func setDeleting(c *cluster, reason, message string, warning bool) reconcile.Outcome {
	c.Status.Phase = v1alpha1.ClusterDeleting
	c.Status.ObservedGeneration = c.Generation
	return setReady(c, reason, message, warning)
}
