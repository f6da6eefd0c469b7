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
)

const (
	phaseDeleting   = "Deleting"
	reasonInUse     = "InUse"
	reasonReleasing = "Releasing"
)

// release waits for the users of the network to go, gives the segment back, and
// then lets the object go.
func (f *function) release(ctx context.Context, nn *v1alpha2.NetworkNamespace) error {
	if !slices.Contains(nn.Finalizers, v1alpha1.FinalizerNetworkNamespace) {
		return nil
	}
	users, err := f.users(ctx, nn)
	if err != nil {
		return err
	}
	before := nn.DeepCopy()
	if len(users) > 0 {
		told := deleting(nn, reasonInUse, "waits for "+sentence(users)+" to be deleted")
		if err := f.summarize(ctx, nn); err != nil {
			return err
		}
		return f.write(ctx, before, nn, told)
	}
	if next := nextCheck(nn); nn.Status.Phase == phaseDeleting && f.now().Before(next) && !kube.AskedFor(nn) {
		return f.later(next)
	}
	if err := f.giveBack(ctx, nn); err != nil {
		return f.notReleased(ctx, nn, err)
	}
	kube.RemoveFinalizer(nn, v1alpha1.FinalizerNetworkNamespace)
	if _, err := f.kube.Patch(ctx, before, nn); err != nil && !kube.NotFound(err) {
		return err
	}
	events.Report(ctx, phaseDeleting, "Released network")
	return nil
}

// overtaken gives back what was made for a network that has been deleted meanwhile:
// its release may have come before, and does not come again. why is what is returned
// then.
func (f *function) overtaken(ctx context.Context, nn *v1alpha2.NetworkNamespace, from source, why error) error {
	if _, makes := from.(finder); !makes {
		return why
	}
	gone, err := f.kube.Gone(ctx, nn)
	if err != nil {
		return err
	}
	if !gone {
		return why
	}
	err = from.Release(ctx, nn)
	counted(nn, "release", err)
	if f := (fault{}); err != nil && (!errors.As(err, &f) || f.reason != reasonWorking) {
		return fmt.Errorf("release what was made for network %s/%s, which is gone: %w", nn.Namespace, nn.Name, err)
	}
	return why
}

// giveBack has whoever was asked for the segment take it back.
func (f *function) giveBack(ctx context.Context, nn *v1alpha2.NetworkNamespace) error {
	asked := nn.Annotations[v1alpha1.AnnotationProvider]
	if asked == "" {
		return nil
	}
	err := f.source(asked).Release(ctx, nn)
	counted(nn, "release", err)
	return err
}

// notReleased says why a segment cannot be given back, and when that is tried again.
func (f *function) notReleased(ctx context.Context, nn *v1alpha2.NetworkNamespace, why error) error {
	var problem fault
	if !errors.As(why, &problem) {
		return fmt.Errorf("release network %s/%s: %w", nn.Namespace, nn.Name, why)
	}
	before, reason := nn.DeepCopy(), problem.reason
	if reason == reasonWorking {
		reason = reasonReleasing
	}
	lasting := f.now().Sub(nn.DeletionTimestamp.Time)
	told := deleting(nn, reason, problem.message)
	nn.Status.NextCheckTime = at(f.now(), problem.wait(lasting))
	if err := f.write(ctx, before, nn, told); err != nil {
		return err
	}
	return f.later(nn.Status.NextCheckTime.Time)
}

// users names what still needs the network.
func (f *function) users(ctx context.Context, nn *v1alpha2.NetworkNamespace) ([]string, error) {
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
