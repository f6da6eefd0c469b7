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
)

// kept tells whether a NetworkConfiguration is deleted, but has machines that use it.
func kept(nc *v1alpha1.NetworkConfiguration) bool {
	return nc.DeletionTimestamp != nil && len(network.Users(nc)) > 0
}

// left tells whether a NetworkConfiguration is a machine's own which that has left.
// It is no news before it is gone.
func left(nc *v1alpha1.NetworkConfiguration) bool {
	return owned(nc) && len(network.Users(nc)) == 0
}

// explain writes into a NetworkConfiguration that is being deleted which machines it
// waits for. For those that are gone, whoever took their finalizer away, it waits no
// longer.
func (f *functions) explain(ctx context.Context, in event.Event, ref events.Ref) error {
	nc := &v1alpha1.NetworkConfiguration{}
	if events.IsDelete(in.Type()) || (events.Carried(in, nc) && !kept(nc)) {
		return nil
	}
	err := f.kube.Get(ctx, ref.Namespace, ref.Name, nc)
	if kube.NotFound(err) || (err == nil && !kept(nc)) {
		return nil
	}
	if err != nil {
		return err
	}
	before := nc.DeepCopy()
	users, err := f.leaveForGone(ctx, nc)
	if err != nil {
		return err
	}
	if _, err := f.kube.Patch(ctx, before, nc); err != nil || len(users) == 0 {
		return err
	}
	before = nc.DeepCopy()
	const reason = "InUse"
	message := "waits for " + strings.Join(users, ", ") + " to be deleted"
	s := &nc.Status
	s.Phase, s.Status, s.Message, s.ObservedGeneration = v1alpha1.NetworkConfigurationDeleting, reason, message, nc.Generation
	news := kube.SetReady(&s.Conditions, nc.Generation, false, reason, message)
	if _, err := f.kube.PatchStatus(ctx, before, nc); err != nil {
		return err
	}
	if news {
		f.kube.Tell(ctx, nc, false, reason, message)
	}
	return nil
}

// leaveForGone leaves a NetworkConfiguration for the machines that are gone, and
// returns the others in words.
func (f *functions) leaveForGone(ctx context.Context, nc *v1alpha1.NetworkConfiguration) (users []string, err error) {
	owner := metav1.GetControllerOf(nc)
	for _, name := range network.Users(nc) {
		m := &v1alpha1.Machine{}
		err := f.kube.Get(ctx, nc.Namespace, name, m)
		switch {
		case kube.NotFound(err), err == nil && owned(nc) && owner.UID != m.UID:
			network.Leave(nc, name)
		case err != nil:
			return nil, err
		default:
			users = append(users, "Machine "+name)
		}
	}
	return users, nil
}
