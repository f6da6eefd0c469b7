package main

import (
	"context"
	"slices"
	"strings"

	"github.com/cloudevents/sdk-go/v2/event"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/vitistack/stack/apis/v1alpha1"
	"github.com/vitistack/stack/events"
	"github.com/vitistack/stack/functions/create-vm/hypervisor"
	"github.com/vitistack/stack/functions/create-vm/hypervisor/kubevirt"
	"github.com/vitistack/stack/functions/internal/kube"
	"github.com/vitistack/stack/functions/internal/network"
)

// machineFinder finds the Machines that an event affects.
type machineFinder struct{ kube *kube.Client }

// affectedMachines returns the names of the Machines that an event affects.
func (f machineFinder) affectedMachines(ctx context.Context, in event.Event, ref events.Ref) ([]string, error) {
	switch ref.Kind {
	case causeMachine:
		m := &v1alpha1.Machine{}
		if in.Type() != events.TypeResync && events.ObjectFrom(in, m) && m.DeletionTimestamp == nil && decideAction(m, causeMachine) == actionNone {
			return nil, nil
		}
		return []string{ref.Name}, nil
	case causeVM, causeInstance:
		if kubevirt.ShowsNothing(ref.Kind, objectIn(in)) {
			return nil, nil
		}
		return []string{ref.Name}, nil
	case causeNetwork:
		return f.machinesWaitingForNetwork(ctx, in, ref)
	case causeNamespace:
		return f.selectMachines(ctx, ref.Namespace, func(m *v1alpha1.Machine) bool { return network.IsMissing(m.Status.Conditions) })
	case causeClaim:
		return f.machineOfVolumeClaim(ctx, in, ref)
	case "KubernetesCluster":
		if events.IsAdd(in.Type()) {
			return nil, nil // its Machines come soon: the delivery has started this process
		}
	}
	return nil, events.UnexpectedEvent(ref, hypervisor.FunctionName)
}

// objectIn returns a function that decodes the object of an event. It returns false for an event without one, or of a deletion.
func objectIn(in event.Event) func(into any) bool {
	return func(into any) bool { return !events.IsDelete(in.Type()) && events.ObjectFrom(in, into) }
}

// machinesWaitingForNetwork returns the names of the Machines that a change of a
// NetworkConfiguration or NetworkNamespace may affect.
func (f machineFinder) machinesWaitingForNetwork(ctx context.Context, in event.Event, ref events.Ref) ([]string, error) {
	nc := &v1alpha1.NetworkConfiguration{}
	there, err := f.readObject(ctx, in, ref, nc)
	switch {
	case err != nil:
		return nil, err
	case there && (isNew(nc) || isReleased(nc)):
		return nil, nil
	case there && isOwn(nc):
		return []string{ref.Name}, nil
	case !there:
		own := &v1alpha1.Machine{}
		err := f.kube.Get(ctx, ref.Namespace, ref.Name, own)
		if err == nil && len(own.Spec.Networks) == 0 {
			return []string{ref.Name}, nil
		}
		if err != nil && !kube.NotFound(err) {
			return nil, err
		}
	}
	return f.selectMachines(ctx, ref.Namespace, func(m *v1alpha1.Machine) bool {
		return slices.ContainsFunc(machineNetworks(m), func(n v1alpha1.MachineNetwork) bool { return n.NetworkName == ref.Name })
	})
}

// machineOfVolumeClaim returns the name of the Machine whose disk has become bound or is
// deleted.
func (f machineFinder) machineOfVolumeClaim(ctx context.Context, in event.Event, ref events.Ref) ([]string, error) {
	claim := &corev1.PersistentVolumeClaim{}
	there, err := f.readObject(ctx, in, ref, claim)
	if err != nil {
		return nil, err
	}
	if !there {
		return f.selectMachines(ctx, ref.Namespace, func(m *v1alpha1.Machine) bool {
			return m.DeletionTimestamp != nil && strings.HasPrefix(ref.Name, m.Name+"-")
		})
	}
	name := claim.Labels[v1alpha1.LabelMachine]
	if name == "" || claim.DeletionTimestamp != nil || claim.Status.Phase != corev1.ClaimBound {
		return nil, nil
	}
	return []string{name}, nil
}

// readObject reads an object from an event that carries it, or else from the API server, and
// reports whether it exists.
func (f machineFinder) readObject(ctx context.Context, in event.Event, ref events.Ref, into kube.Object) (bool, error) {
	if events.IsDelete(in.Type()) {
		return false, nil
	}
	if events.ObjectFrom(in, into) {
		return true, nil
	}
	err := f.kube.Get(ctx, ref.Namespace, ref.Name, into)
	if kube.NotFound(err) {
		return false, nil
	}
	return err == nil, err
}

// selectMachines returns the names of the Machines of a namespace that match accepts. It
// leaves out Machines that run, because they wait for nothing and may be many.
func (f machineFinder) selectMachines(ctx context.Context, namespace string, match func(*v1alpha1.Machine) bool) ([]string, error) {
	list := &v1alpha1.MachineList{}
	waiting := metav1.ListOptions{FieldSelector: "status.phase!=" + string(v1alpha1.MachineRunning)}
	if err := f.kube.ListPage(ctx, namespace, waiting, list); err != nil {
		return nil, err
	}
	var names []string
	for i := range list.Items {
		if match(&list.Items[i]) {
			names = append(names, list.Items[i].Name)
		}
	}
	return names, nil
}
