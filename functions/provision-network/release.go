package main

import (
	"context"
	"errors"
	"fmt"
	"slices"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/vitistack/stack/apis/v1alpha1"
	"github.com/vitistack/stack/apis/v1alpha2"
	"github.com/vitistack/stack/events"
	"github.com/vitistack/stack/functions/internal/kube"
	"github.com/vitistack/stack/functions/internal/reconcile"
	"github.com/vitistack/stack/functions/provision-network/provider"
)

// deleteNetwork waits until nothing uses the network, releases the segment, and then
// removes the finalizer.
func (f *function) deleteNetwork(ctx context.Context, nn *v1alpha2.NetworkNamespace) error {
	if !slices.Contains(nn.Finalizers, v1alpha1.FinalizerNetworkNamespace) {
		return nil
	}
	users, err := f.listUsers(ctx, nn)
	if err != nil {
		return err
	}
	before := nn.DeepCopy()
	if len(users) > 0 {
		outcome := setDeleting(nn, reasonInUse, "waiting for "+joinNames(users)+" to be deleted")
		if err := f.usage().setCounts(ctx, nn); err != nil {
			return err
		}
		_, err = reconcile.PatchStatus(ctx, f.kube, before, nn, nn.Status.Phase, outcome)
		return err
	}
	if next := nextCheck(nn); nn.Status.Phase == phaseDeleting && f.now().Before(next) && !kube.ReconcileRequested(nn) {
		return f.redeliverBefore(next)
	}
	if err := f.releaseSegment(ctx, nn); err != nil {
		return f.writeReleaseError(ctx, nn, err)
	}
	kube.RemoveFinalizer(nn, v1alpha1.FinalizerNetworkNamespace)
	if _, err := f.kube.Patch(ctx, before, nn); err != nil && !kube.NotFound(err) {
		return err
	}
	events.Report(ctx, phaseDeleting, "Released network")
	return nil
}

// releaseSegment releases the segment at the provider that was asked for it.
func (f *function) releaseSegment(ctx context.Context, nn *v1alpha2.NetworkNamespace) error {
	asked := nn.Annotations[v1alpha1.AnnotationProvider]
	if asked == "" {
		return nil
	}
	err := f.provider(asked).Release(ctx, nn)
	countRequest(nn, "release", err)
	return err
}

// releaseIfDeleted releases what a server created for a network that was deleted during the
// request, if its deletion has ended before: the release by the deletion is not repeated. It returns
// cause, or why the segment cannot be released. The deletion of a network that still has the finalizer waits for its users, and
// releases the segment then.
func (f *function) releaseIfDeleted(ctx context.Context, nn *v1alpha2.NetworkNamespace, from provider.Interface, cause error) error {
	if _, isServer := from.(provider.Server); !isServer {
		return cause
	}
	gone, err := f.kube.Gone(ctx, nn, v1alpha1.FinalizerNetworkNamespace)
	if err != nil {
		return err
	}
	if !gone {
		return cause
	}
	err = from.Release(ctx, nn)
	countRequest(nn, "release", err)
	if e := (provider.Error{}); err != nil && (!errors.As(err, &e) || e.Reason != provider.ReasonWorking) {
		return fmt.Errorf("release the segment of network %s/%s, which was deleted meanwhile: %w", nn.Namespace, nn.Name, err)
	}
	return cause
}

// writeReleaseError writes why a segment cannot be released, and when that is tried again.
func (f *function) writeReleaseError(ctx context.Context, nn *v1alpha2.NetworkNamespace, cause error) error {
	var problem provider.Error
	if !errors.As(cause, &problem) {
		return fmt.Errorf("release network %s/%s: %w", nn.Namespace, nn.Name, cause)
	}
	before, reason := nn.DeepCopy(), problem.Reason
	if reason == provider.ReasonWorking {
		reason = reasonReleasing
	}
	failing := f.now().Sub(nn.DeletionTimestamp.Time)
	outcome := setDeleting(nn, reason, problem.Message)
	nn.Status.NextCheckTime = checkTime(f.now(), problem.Delay(failing))
	if _, err := reconcile.PatchStatus(ctx, f.kube, before, nn, nn.Status.Phase, outcome); err != nil {
		return err
	}
	return f.redeliverBefore(nn.Status.NextCheckTime.Time)
}

// listUsers returns the kinds and names of the objects that use the network.
func (f *function) listUsers(ctx context.Context, nn *v1alpha2.NetworkNamespace) ([]string, error) {
	clusters, configurations, allocations := &v1alpha1.KubernetesClusterList{}, &v1alpha1.NetworkConfigurationList{}, &v1alpha2.IPAllocationList{}
	named := metav1.ListOptions{FieldSelector: "spec.networkNamespaceName=" + nn.Name}
	err := errors.Join(
		f.kube.List(ctx, nn.Namespace, "", clusters),
		f.kube.List(ctx, nn.Namespace, "", configurations),
		f.kube.ListPage(ctx, nn.Namespace, named, allocations))
	if err != nil {
		return nil, err
	}
	var users []string
	for _, c := range clusters.Items {
		if c.Spec.NetworkNamespaceName == nn.Name {
			users = append(users, "KubernetesCluster "+c.Name)
		}
	}
	for _, c := range configurations.Items {
		if c.Spec.NetworkNamespaceName == nn.Name || c.Status.NetworkNamespaceName == nn.Name {
			users = append(users, "NetworkConfiguration "+c.Name)
		}
	}
	for _, a := range allocations.Items {
		if a.Spec.NetworkConfigurationName == "" || !slices.Contains(users, "NetworkConfiguration "+a.Spec.NetworkConfigurationName) {
			users = append(users, "IPAllocation "+a.Name)
		}
	}
	slices.Sort(users)
	return users, nil
}
