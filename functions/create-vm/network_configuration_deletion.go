package main

import (
	"context"
	"strings"

	"github.com/cloudevents/sdk-go/v2/event"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/vitistack/stack/apis/v1alpha1"
	"github.com/vitistack/stack/events"
	"github.com/vitistack/stack/functions/internal/kube"
	"github.com/vitistack/stack/functions/internal/network"
	"github.com/vitistack/stack/functions/internal/reconcile"
)

// isDeletingInUse reports whether a NetworkConfiguration is being deleted while machines use
// it.
func isDeletingInUse(nc *v1alpha1.NetworkConfiguration) bool {
	return nc.DeletionTimestamp != nil && len(network.Users(nc)) > 0
}

// isReleased reports whether a NetworkConfiguration is a machine's own and the machine has
// released it. Only its deletion matters to the machine.
func isReleased(nc *v1alpha1.NetworkConfiguration) bool {
	return isOwn(nc) && len(network.Users(nc)) == 0
}

// explainDeletion writes into a NetworkConfiguration that is being deleted which machines it
// waits for. It removes the finalizers of machines that do not exist.
func (r networkReconciler) explainDeletion(ctx context.Context, in event.Event, ref events.Ref) error {
	nc := &v1alpha1.NetworkConfiguration{}
	if events.IsDelete(in.Type()) || (events.ObjectFrom(in, nc) && !isDeletingInUse(nc)) {
		return nil
	}
	err := r.kube.Get(ctx, ref.Namespace, ref.Name, nc)
	if kube.NotFound(err) || (err == nil && !isDeletingInUse(nc)) {
		return nil
	}
	if err != nil {
		return err
	}
	before := nc.DeepCopy()
	users, err := r.releaseForDeletedMachines(ctx, nc)
	if err != nil {
		return err
	}
	if _, err := r.kube.Patch(ctx, before, nc); err != nil || len(users) == 0 {
		return err
	}
	before = nc.DeepCopy()
	const reason = "InUse"
	message := "waiting for " + strings.Join(users, ", ") + " to be deleted"
	s := &nc.Status
	s.Phase, s.Status, s.Message, s.ObservedGeneration = v1alpha1.NetworkConfigurationDeleting, reason, message, nc.Generation
	outcome := reconcile.SetReady(&s.Conditions, nc.Generation, false, reason, message)
	_, err = reconcile.PatchStatus(ctx, r.kube, before, nc, string(s.Phase), outcome)
	return err
}

// releaseForDeletedMachines removes the finalizers of machines that do not exist from a
// NetworkConfiguration, and returns the names of the others.
func (r networkReconciler) releaseForDeletedMachines(ctx context.Context, nc *v1alpha1.NetworkConfiguration) (users []string, err error) {
	owner := metav1.GetControllerOf(nc)
	for _, name := range network.Users(nc) {
		m := &v1alpha1.Machine{}
		err := r.kube.Get(ctx, nc.Namespace, name, m)
		switch {
		case kube.NotFound(err), err == nil && isOwn(nc) && owner.UID != m.UID:
			network.RemoveUser(nc, name)
		case err != nil:
			return nil, err
		default:
			users = append(users, "Machine "+name)
		}
	}
	return users, nil
}
